# SPDX-License-Identifier: Apache-2.0
limbeck_test(
  limbeck_base_test
  LABEL
  unit
  SOURCES
  base_files_test.cpp
  base_log_test.cpp
  base_text_test.cpp
  manifest_bad_test.cpp
  manifest_config_test.cpp
  manifest_diagnostics_test.cpp
  manifest_good_test.cpp
  manifest_override_test.cpp
  manifest_resolved_test.cpp)
