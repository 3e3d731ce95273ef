# SPDX-License-Identifier: Apache-2.0
limbeck_test(limbeck_dcp_test LABEL golden SOURCES dcp_golden_test.cpp dcp_sample.cpp)
