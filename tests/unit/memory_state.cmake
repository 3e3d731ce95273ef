# SPDX-License-Identifier: Apache-2.0
limbeck_test(limbeck_core_test LABEL unit TORCH SOURCES unit/memory_state_test.cpp)
