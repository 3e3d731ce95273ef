# SPDX-License-Identifier: Apache-2.0
limbeck_test(
  limbeck_sdk_test
  LABEL
  unit
  TORCH
  SOURCES
  unit/sft_test.cpp
  ${PROJECT_SOURCE_DIR}/plugins/sft/fine_tuning.cpp)
target_include_directories(limbeck_sdk_test PRIVATE ${PROJECT_SOURCE_DIR}/plugins)
