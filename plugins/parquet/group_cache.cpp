// SPDX-License-Identifier: Apache-2.0
#include "group_cache.hpp"

#include <algorithm>
#include <exception>

namespace parquet_data {

GroupCache::Loaded GroupCache::get(size_t group, const std::function<Loaded()>& read) {
  std::promise<Loaded> promise;
  {
    std::unique_lock lock(mutex_);
    if (const auto known = find(group); known.valid()) {
      lock.unlock();
      return known.get();
    }
    entries_.push_front({group, promise.get_future().share()});
    ++reads_;
  }
  try {
    auto loaded = read();
    promise.set_value(loaded);
    settle(group, loaded->bytes);
    return loaded;
  } catch (...) {
    promise.set_exception(std::current_exception());
    forget(group);
    throw;
  }
}

int64_t GroupCache::reads() const {
  const std::lock_guard lock(mutex_);
  return reads_;
}

std::shared_future<GroupCache::Loaded> GroupCache::find(size_t group) {
  const auto entry = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& one) { return one.group == group; });
  if (entry == entries_.end()) {
    return {};
  }
  entries_.splice(entries_.begin(), entries_, entry);
  return entry->loaded;
}

// Who uses a group that is dropped keeps it alive.
void GroupCache::settle(size_t group, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  for (auto& entry : entries_) {
    if (entry.group == group) {
      entry.bytes = bytes;
      bytes_ += bytes;
    }
  }
  while (bytes_ > limit_ && entries_.size() > 1) {
    const auto oldest = std::find_if(entries_.rbegin(), entries_.rend(),
                                     [](const Entry& entry) { return entry.bytes > 0; });
    if (oldest == entries_.rend() || oldest->group == entries_.front().group) {
      return;
    }
    bytes_ -= oldest->bytes;
    entries_.erase(std::next(oldest).base());
  }
}

void GroupCache::forget(size_t group) {
  const std::lock_guard lock(mutex_);
  entries_.remove_if([&](const Entry& entry) { return entry.group == group; });
}

}  // namespace parquet_data
