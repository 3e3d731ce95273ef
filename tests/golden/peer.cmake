# SPDX-License-Identifier: Apache-2.0
limbeck_add_plugin(
  hash_fill
  ID org.limbeck.test.hash-fill
  VERSION 0.1.0
  SOURCES fixtures/plugins/hash_fill.cpp
  OUTPUT_DIRECTORY ${LIMBECK_TEST_PLUGIN_DIR})
target_include_directories(hash_fill PRIVATE ${PROJECT_SOURCE_DIR}/tests)

find_package(nlohmann_json REQUIRED)
limbeck_test(
  limbeck_peer_test
  LABEL
  golden
  TORCH
  SOURCES
  golden/peer_dmd2_test.cpp
  golden/peer_sft_test.cpp
  e2e/program.cpp
  LIBRARIES
  nlohmann_json::nlohmann_json)
target_include_directories(limbeck_peer_test PRIVATE ${PROJECT_SOURCE_DIR}/tests)
add_dependencies(limbeck_peer_test runtime hash_fill)
# Its fixtures have the names of those of peer_sft_test.cpp.
set_source_files_properties(golden/peer_dmd2_test.cpp PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
