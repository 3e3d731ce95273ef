# SPDX-License-Identifier: Apache-2.0
limbeck_test(
  limbeck_parquet_test
  LABEL
  unit
  SOURCES
  unit/parquet_test.cpp
  LIBRARIES
  limbeck_parquet_files)

limbeck_test(
  limbeck_parquet_rows_test
  LABEL
  unit
  TORCH
  SOURCES
  unit/parquet_rows_test.cpp
  unit/parquet_writer_test.cpp
  ${PROJECT_SOURCE_DIR}/plugins/parquet/encode_clips.cpp
  ${PROJECT_SOURCE_DIR}/plugins/parquet/video_rows.cpp
  LIBRARIES
  limbeck_parquet_files)
