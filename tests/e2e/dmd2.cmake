# SPDX-License-Identifier: Apache-2.0
limbeck_add_plugin(
  gauss
  ID org.limbeck.test.gauss
  VERSION 0.1.0
  SOURCES fixtures/plugins/gauss.cpp
  OUTPUT_DIRECTORY ${LIMBECK_TEST_PLUGIN_DIR})
limbeck_test(limbeck_e2e_test LABEL e2e SOURCES e2e/dmd2_test.cpp)
add_dependencies(limbeck_e2e_test gauss)
# Its fixtures have the names of others'.
set_source_files_properties(e2e/dmd2_test.cpp PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
