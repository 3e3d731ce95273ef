# SPDX-License-Identifier: Apache-2.0
# PEFT's own reader and writer; skipped, and reported as such, without .interop/.
find_program(LIMBECK_PYTHON python3 REQUIRED)
mark_as_advanced(LIMBECK_PYTHON)
add_test(NAME limbeck_adapters.e2e
         COMMAND ${LIMBECK_PYTHON} ${CMAKE_CURRENT_LIST_DIR}/adapters_test.py
                 ${PROJECT_BINARY_DIR}/bin/limbeck)
set_tests_properties(limbeck_adapters.e2e PROPERTIES LABELS e2e SKIP_RETURN_CODE 77 ENVIRONMENT
                                                     OMP_NUM_THREADS=1)

limbeck_test(limbeck_e2e_test LABEL e2e SOURCES e2e/adapter_export_test.cpp)
