# SPDX-License-Identifier: Apache-2.0
find_package(nlohmann_json REQUIRED)
limbeck_test(
  limbeck_e2e_test
  LABEL
  e2e
  SOURCES
  e2e/callback_test.cpp
  e2e/check_test.cpp
  e2e/data_test.cpp
  e2e/determinism_test.cpp
  e2e/inspect_test.cpp
  e2e/program.cpp
  e2e/swap_test.cpp
  e2e/teacher_loss_test.cpp
  e2e/wrong_input_test.cpp
  LIBRARIES
  limbeck_parquet_files
  nlohmann_json::nlohmann_json)
target_compile_definitions(
  limbeck_e2e_test PRIVATE LIMBECK_TORCH_DIR="${LIMBECK_TORCH_DIR}"
                           LIMBECK_SANITIZE="${LIMBECK_SANITIZE}")
add_dependencies(limbeck_e2e_test runtime limbeck_fixture_plugins)
