# SPDX-License-Identifier: Apache-2.0
limbeck_test(limbeck_checkpoint_test LABEL unit SOURCES unit/checkpoint_files_test.cpp)
