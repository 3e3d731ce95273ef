# SPDX-License-Identifier: Apache-2.0
limbeck_test(limbeck_transfer_test LABEL unit SOURCES transfer_numbers_test.cpp
                                                      transfer_roles_test.cpp transfer_test.cpp)
target_include_directories(limbeck_transfer_test PRIVATE ${PROJECT_SOURCE_DIR}/tests)
# Their helpers have the same names.
set_target_properties(limbeck_transfer_test PROPERTIES UNITY_BUILD OFF)
