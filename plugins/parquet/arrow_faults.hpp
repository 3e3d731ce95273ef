// SPDX-License-Identifier: Apache-2.0
// Arrow's faults as ours: lb::Error(LB_DATA_LOSS) with the file's name.
#pragma once

#include <string>
#include <utility>

#include <arrow/result.h>
#include <arrow/status.h>
#include <parquet/exception.h>

#include <limbeck/error.hpp>

namespace parquet_data {

[[noreturn]] inline void fail(const std::string& file, const std::string& reason) {
  throw lb::Error(LB_DATA_LOSS, "cannot read '" + file + "': " + reason);
}

template <class T>
T value_of(arrow::Result<T> result, const std::string& file) {
  if (!result.ok()) {
    fail(file, result.status().ToString());
  }
  return std::move(result).ValueUnsafe();
}

inline void check(const arrow::Status& status, const std::string& file) {
  if (!status.ok()) {
    fail(file, status.ToString());
  }
}

// Runs `body`, which may throw what Parquet throws.
template <class Body>
auto guarded(const std::string& file, Body&& body) {
  try {
    return body();
  } catch (const parquet::ParquetException& fault) {
    fail(file, fault.what());
  }
}

}  // namespace parquet_data
