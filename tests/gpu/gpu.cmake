# SPDX-License-Identifier: Apache-2.0
# Needs a GPU to say anything: part of `all`, and a test, only with LIMBECK_CUDA.
limbeck_test_executable(limbeck_gpu_test TRUE)
target_sources(limbeck_gpu_test PRIVATE ${CMAKE_CURRENT_LIST_DIR}/fused_cuda_test.cpp)
if(LIMBECK_CUDA)
  add_dependencies(limbeck_gpu_test limbeck_cuda)
  add_test(NAME limbeck_gpu_test.gpu COMMAND limbeck_gpu_test)
  set_tests_properties(
    limbeck_gpu_test.gpu PROPERTIES LABELS gpu SKIP_REGULAR_EXPRESSION "skipped: no GPU")
else()
  set_target_properties(limbeck_gpu_test PROPERTIES EXCLUDE_FROM_ALL ON)
endif()
