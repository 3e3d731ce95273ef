# SPDX-License-Identifier: Apache-2.0
limbeck_test(limbeck_base_test LABEL unit SOURCES base_files_test.cpp base_log_test.cpp
                                                  base_text_test.cpp)

# Of their own: they need neither the executable nor libtorch, and are built in seconds.
limbeck_test(
  limbeck_manifest_test
  LABEL
  unit
  SOURCES
  manifest_bad_test.cpp
  manifest_config_test.cpp
  manifest_diagnostics_test.cpp
  manifest_good_test.cpp
  manifest_keys_test.cpp
  manifest_override_test.cpp
  manifest_resolved_test.cpp)
add_dependencies(limbeck_manifest_test limbeck_fixture_plugins)
# Their fixtures have the same names.
set_target_properties(limbeck_manifest_test PROPERTIES UNITY_BUILD OFF)
