// SPDX-License-Identifier: Apache-2.0
// The position of a run in its data, as a checkpoint keeps it: one record for all ranks. It counts
// samples of all ranks together, so that it means the same under another number of ranks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/data/order.hpp"

namespace limbeck {

struct DataRecord {
  DataPosition position;      // samples that were handed out; what was read ahead does not count
  int64_t total_samples = 0;  // of the data set; -1: a stream
  uint64_t seed = 0;
  std::string order;  // order_name(), or "stream"
  std::string mix;    // "repeat", "weight"
  int64_t window = 0;
  uint64_t fingerprint = 0;
  int64_t groups = 0;      // data-parallel; may differ on resume
  int64_t batch_size = 0;  // of a micro-batch; may differ on resume

  bool operator==(const DataRecord&) const = default;

  // What makes this position meaningless for a loader that has the record `now`: "seed is 2, was
  // 1". Empty: it goes on exactly.
  std::vector<std::string> differences(const DataRecord& now) const;

  // {"version": 1, "epoch": ..., ...}
  std::string to_json() const;
  // Throws Error(kData) for text that is not such a record, or of a newer version.
  static DataRecord from_json(std::string_view text);
};

}  // namespace limbeck
