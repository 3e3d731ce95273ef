# SPDX-License-Identifier: Apache-2.0
limbeck_test(limbeck_base_test LABEL conformance SOURCES conformance/plugin_commands_test.cpp)
