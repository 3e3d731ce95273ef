# SPDX-License-Identifier: Apache-2.0
limbeck_test(limbeck_sdk_test LABEL unit TORCH SOURCES unit/score_test.cpp)
target_include_directories(limbeck_sdk_test PRIVATE ${PROJECT_SOURCE_DIR}/tests)
