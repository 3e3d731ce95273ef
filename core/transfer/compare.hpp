// SPDX-License-Identifier: Apache-2.0
// What is different between two sets of tensors on disk.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/export.hpp"
#include "core/transfer/tensor_files.hpp"

namespace limbeck {

struct TensorDifference {
  std::string name;
  TensorShape first;
  TensorShape second;
  // Of shapes that are equal. Numbers that differ as values, or as bits if the types are equal (0
  // and -0, two NaNs); of types without numbers, bytes.
  uint64_t count = 0;
  double max_abs = 0;  // greatest difference of two numbers; infinite if an infinity is in it
  uint64_t nans = 0;   // of `count`: a NaN on one side alone
};

struct TensorDifferences {
  std::vector<std::string> only_first;  // sorted, as are the others
  std::vector<std::string> only_second;
  std::vector<TensorDifference> shapes;  // another shape; values were not compared
  std::vector<TensorDifference> types;   // another type; also in `values` if those differ
  std::vector<TensorDifference> values;
  uint64_t compared = 0;  // tensors with values compared

  bool is_empty() const {
    return only_first.empty() && only_second.empty() && shapes.empty() && types.empty() &&
           values.empty();
  }
};

// Of a side that has names which begin with `prefix`, only those count, without it; so a role of a
// checkpoint is compared with weights. An empty prefix: all names. Throws Error(kData) for what
// cannot be read.
LIMBECK_API TensorDifferences compare_tensors(const TensorFiles& first,
                                              const TensorFiles& second,
                                              const std::string& prefix);

}  // namespace limbeck
