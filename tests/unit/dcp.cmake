# SPDX-License-Identifier: Apache-2.0
find_package(ZLIB REQUIRED)
limbeck_test(
  limbeck_dcp_test
  LABEL
  unit
  SOURCES
  dcp_archive_test.cpp
  dcp_boxes_test.cpp
  dcp_pickle_test.cpp
  dcp_test.cpp
  LIBRARIES
  ZLIB::ZLIB)
# Their helpers have the same names.
set_source_files_properties(
  ${CMAKE_CURRENT_LIST_DIR}/dcp_archive_test.cpp ${CMAKE_CURRENT_LIST_DIR}/dcp_test.cpp
  PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
