# SPDX-License-Identifier: Apache-2.0
# Data sets in Parquet files. Arrow itself comes without instrumentation.
limbeck_fuzzer(parquet SOURCES parquet_fuzz.cpp LIBRARIES limbeck_parquet_files)
