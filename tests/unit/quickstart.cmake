# SPDX-License-Identifier: Apache-2.0
set(_quickstart ${PROJECT_SOURCE_DIR}/plugins/quickstart)
limbeck_test(
  limbeck_quickstart_test
  LABEL
  unit
  TORCH
  SOURCES
  unit/digits_test.cpp
  unit/measures_test.cpp
  unit/quickstart_networks_test.cpp
  unit/report_test.cpp
  ${_quickstart}/digit_clips.cpp
  ${_quickstart}/digit_judge.cpp
  ${_quickstart}/digit_table.cpp
  ${_quickstart}/digits.cpp
  ${_quickstart}/measures.cpp
  ${_quickstart}/pixel_shuffle.cpp
  ${_quickstart}/report.cpp)
target_include_directories(limbeck_quickstart_test PRIVATE ${PROJECT_SOURCE_DIR}/plugins)
