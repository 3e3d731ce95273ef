# SPDX-License-Identifier: Apache-2.0
limbeck_test(
  limbeck_base_test
  LABEL
  conformance
  SOURCES
  conformance/abi_docs_test.cpp
  conformance/plugin_commands_test.cpp)
# Their helpers have the names of others'.
set_source_files_properties(
  conformance/abi_docs_test.cpp conformance/plugin_commands_test.cpp
  PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
