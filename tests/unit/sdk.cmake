# SPDX-License-Identifier: Apache-2.0
limbeck_test(
  limbeck_sdk_test
  LABEL
  unit
  TORCH
  SOURCES
  unit/sdk_components_test.cpp
  unit/sdk_tensor_test.cpp)
