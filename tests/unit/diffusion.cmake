# SPDX-License-Identifier: Apache-2.0
limbeck_test(limbeck_base_test LABEL unit SOURCES unit/diffusion_test.cpp)
