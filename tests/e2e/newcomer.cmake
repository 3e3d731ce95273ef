# SPDX-License-Identifier: Apache-2.0
limbeck_test(limbeck_e2e_test LABEL e2e SOURCES e2e/newcomer_test.cpp)
add_dependencies(limbeck_e2e_test limbeck_fixture_plugins)
