// SPDX-License-Identifier: Apache-2.0
// Row groups in memory, shared by the instances of one data set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <list>
#include <memory>
#include <mutex>

#include "row_group.hpp"

namespace parquet_data {

// Keeps the groups used last up to a number of bytes, and always the newest one. All functions:
// [any].
class GroupCache {
 public:
  using Loaded = std::shared_ptr<const RowGroup>;

  explicit GroupCache(int64_t bytes) : limit_(bytes) {}

  // The group, read with `read` unless it is here. A thread that asks for a group that another one
  // is reading waits for it. Throws what `read` throws; the next call tries again.
  Loaded get(size_t group, const std::function<Loaded()>& read);

  // Groups that were read so far; shows that the cache works.
  int64_t reads() const;

 private:
  struct Entry {
    size_t group;
    std::shared_future<Loaded> loaded;
    int64_t bytes = 0;  // 0 while it is being read
  };

  std::shared_future<Loaded> find(size_t group);
  void settle(size_t group, int64_t bytes);
  void forget(size_t group);

  int64_t limit_;
  mutable std::mutex mutex_;
  std::list<Entry> entries_;  // newest first
  int64_t bytes_ = 0;
  int64_t reads_ = 0;
};

}  // namespace parquet_data
