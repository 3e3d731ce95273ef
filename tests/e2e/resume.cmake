# SPDX-License-Identifier: Apache-2.0
limbeck_test(limbeck_e2e_test LABEL e2e SOURCES e2e/resume_test.cpp)
