# SPDX-License-Identifier: Apache-2.0
# What core/dcp reads of checkpoints that anybody may have written.
limbeck_fuzzer(dcp_index SOURCES dcp_index_fuzz.cpp)
limbeck_fuzzer(dcp_item SOURCES dcp_item_fuzz.cpp)
