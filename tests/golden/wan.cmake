# SPDX-License-Identifier: Apache-2.0
set(_wan ${PROJECT_SOURCE_DIR}/plugins/wan)
limbeck_test(
  limbeck_wan_test
  LABEL
  golden
  TORCH
  SOURCES
  golden/wan_flops_test.cpp
  golden/wan_golden_test.cpp
  ${_wan}/flops.cpp
  ${_wan}/names.cpp
  ${_wan}/rotary.cpp
  ${_wan}/sinusoid.cpp
  ${_wan}/transformer.cpp)
target_include_directories(limbeck_wan_test PRIVATE ${PROJECT_SOURCE_DIR}/plugins)
