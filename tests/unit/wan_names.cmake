# SPDX-License-Identifier: Apache-2.0
limbeck_test(limbeck_wan_names_test LABEL unit SOURCES
             wan_names_test.cpp ${PROJECT_SOURCE_DIR}/plugins/wan/names.cpp)
target_include_directories(limbeck_wan_names_test PRIVATE ${PROJECT_SOURCE_DIR}/plugins)
