# SPDX-License-Identifier: Apache-2.0
# PyTorch reads our checkpoints, and we read PyTorch's; skipped, and reported as such, without
# .interop/.
add_executable(dcp_sample ${CMAKE_CURRENT_LIST_DIR}/dcp_sample_main.cpp
                          ${CMAKE_CURRENT_LIST_DIR}/../golden/dcp_sample.cpp)
set_target_properties(dcp_sample PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests
                                            BUILD_RPATH ${PROJECT_BINARY_DIR}/lib)
target_link_libraries(dcp_sample PRIVATE limbeck_flags limbeck_base)

find_program(LIMBECK_PYTHON python3 REQUIRED)
mark_as_advanced(LIMBECK_PYTHON)
add_test(NAME limbeck_dcp.e2e COMMAND ${LIMBECK_PYTHON} ${CMAKE_CURRENT_LIST_DIR}/dcp_test.py
                                      $<TARGET_FILE:dcp_sample>)
set_tests_properties(limbeck_dcp.e2e PROPERTIES LABELS e2e SKIP_RETURN_CODE 77 ENVIRONMENT
                                                OMP_NUM_THREADS=1)
