# SPDX-License-Identifier: Apache-2.0
limbeck_test(limbeck_sdk_test LABEL unit TORCH SOURCES unit/dmd2_test.cpp
             ${PROJECT_SOURCE_DIR}/plugins/dmd2/dmd2.cpp)
limbeck_test(limbeck_core_test LABEL unit TORCH SOURCES unit/frozen_role_test.cpp)
