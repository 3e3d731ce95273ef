// SPDX-License-Identifier: Apache-2.0
// From samples to a batch: what a data set declares, and how entries of several samples become
// one entry with a batch dimension.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include <limbeck/abi.h>

#include "core/tensor/batch.hpp"

namespace limbeck {

// "<field>.tokens" -> how many entries the varying dimension of that field gets, > 0. Facts of a
// network may be passed as they are; other names are ignored.
using TokenCounts = std::map<std::string, int64_t>;

// One declared entry of a sample: an lb_field with memory of its own.
struct Field {
  std::string name;
  std::vector<int64_t> sizes;  // of one sample; -1: varies
  at::ScalarType dtype = at::kFloat;
  bool is_text = false;
  bool is_optional = false;  // not in every sample
  bool is_wanted = true;     // somebody reads it or its mask

  // The dimension that is padded: the only one that varies. -1: none varies, or several do; then
  // the samples of a batch must have equal shapes.
  int64_t ragged_dim() const;
};

// An entry of the batches that collate() makes.
struct BatchName {
  std::string name;
  bool is_optional = false;  // not in every batch

  bool operator==(const BatchName&) const = default;
};

// Copies and checks a table of a data set. `wanted`: names that somebody reads, empty for all.
// Throws Error(kPlugin), naming `owner`, for a repeated or reserved name, an unknown dtype or a
// bad size.
std::vector<Field> copy_fields(const lb_fields& table,
                               const std::vector<std::string>& wanted,
                               const std::string& owner);

// What collate() makes of the wanted fields, sorted by name.
std::vector<BatchName> batch_names(const std::vector<Field>& fields);

// One batch of `samples`, b of them, on the CPU:
//   tensors    [b, ...], stacked. A ragged field is padded with zeros, or cut, to its count in
//              `tokens`, else padded to the longest of the batch; "<name>_mask" f32 [b, count] is
//              1 where there is data.
//   numbers    f64 [b]
//   text       one row for each sample
//   "row"      i64 [b], the global indices
// An optional field that no sample has is left out. Uses no threads of libtorch.
// Throws Error(kData) naming field and row for a missing entry or an unequal shape, and
// Error(kPlugin) for an entry that does not fit its declaration.
lb_batch collate(const std::vector<Field>& fields,
                 const std::vector<lb_batch>& samples,
                 const std::vector<int64_t>& rows,
                 const TokenCounts& tokens,
                 const std::string& owner);

}  // namespace limbeck
