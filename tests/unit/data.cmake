# SPDX-License-Identifier: Apache-2.0
limbeck_test(
  limbeck_data_test
  TORCH
  LABEL
  unit
  SOURCES
  data_collate_test.cpp
  data_loader_test.cpp
  data_mix_test.cpp
  data_order_test.cpp
  data_position_test.cpp
  data_skip_test.cpp
  safetensors_file_test.cpp
  weights_folder_test.cpp
  weights_names_test.cpp
  ${PROJECT_SOURCE_DIR}/plugins/wan/names.cpp)
target_include_directories(limbeck_data_test PRIVATE ${PROJECT_SOURCE_DIR}/plugins)
