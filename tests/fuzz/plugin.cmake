# SPDX-License-Identifier: Apache-2.0
# What core/plugin and core/manifest read from files that anybody may have written.
limbeck_fuzzer(elf SOURCES elf_fuzz.cpp)
limbeck_fuzzer(options SOURCES options_fuzz.cpp)
limbeck_fuzzer(manifest SOURCES manifest_fuzz.cpp)
foreach(name manifest_fuzz manifest_replay)
  if(TARGET ${name})
    add_dependencies(${name} fixture_good_study)
  endif()
endforeach()
