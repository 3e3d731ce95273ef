# SPDX-License-Identifier: Apache-2.0
# What core/weights reads of files that anybody may have written.
limbeck_fuzzer(safetensors SOURCES safetensors_fuzz.cpp)
limbeck_fuzzer(weight_index SOURCES weight_index_fuzz.cpp)
