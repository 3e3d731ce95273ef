// SPDX-License-Identifier: Apache-2.0
#include "core/data/order.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/hash.hpp"
#include "core/base/text.hpp"

namespace limbeck {
namespace {

// Streams of an epoch's key: the order of runs, then one for every window.
constexpr uint64_t kRunStream = 0;
constexpr uint64_t kFirstWindowStream = 1;

void require(bool holds, const std::string& what) {
  if (!holds) {
    throw Error(Fault::kInternal, "order of samples: " + what);
  }
}

}  // namespace

uint64_t fold(uint64_t key, uint64_t value) {
  return finalise64(finalise64(key + kGolden64) + kGolden64 * (value + 1));
}

void shuffle(std::vector<int64_t>& items, uint64_t key) {
  uint64_t state = key;
  for (uint64_t left = items.size(); left > 1; --left) {
    // Numbers below 2^64 mod left are drawn again: the others fall evenly on 0 ... left - 1.
    const uint64_t too_low = (std::numeric_limits<uint64_t>::max() - left + 1) % left;
    uint64_t drawn = 0;
    do {
      state += kGolden64;
      drawn = finalise64(state);
    } while (drawn < too_low);
    std::swap(items[left - 1], items[drawn % left]);
  }
}

Order::Order(OrderSpec spec) : spec_(std::move(spec)) {
  require(spec_.length > 0, cat("length is ", spec_.length, ", expected at least 1"));
  require(spec_.window > 0, cat("window is ", spec_.window, ", expected at least 1"));
  if (!spec_.ends.empty()) {
    require(spec_.ends.front() >= 0 && std::is_sorted(spec_.ends.begin(), spec_.ends.end()),
            "the ends of the runs descend");
    require(spec_.ends.back() == spec_.length,
            cat("the last run ends at ", spec_.ends.back(), ", expected ", spec_.length));
    // Empty runs would use up places in a window.
    spec_.ends.erase(std::unique(spec_.ends.begin(), spec_.ends.end()), spec_.ends.end());
    if (spec_.ends.front() == 0) {
      spec_.ends.erase(spec_.ends.begin());
    }
  }
}

int64_t Order::runs() const {
  return spec_.ends.empty() ? spec_.length : static_cast<int64_t>(spec_.ends.size());
}

int64_t Order::run_of(int64_t sample) const {
  require(sample >= 0 && sample < spec_.length,
          cat("sample ", sample, " is outside [0, ", spec_.length, ")"));
  if (spec_.ends.empty()) {
    return sample;
  }
  return std::upper_bound(spec_.ends.begin(), spec_.ends.end(), sample) - spec_.ends.begin();
}

int64_t Order::run_begin(int64_t run) const {
  if (spec_.ends.empty()) {
    return run;
  }
  return run == 0 ? 0 : spec_.ends[static_cast<size_t>(run - 1)];
}

int64_t Order::run_size(int64_t run) const {
  return spec_.ends.empty() ? 1 : spec_.ends[static_cast<size_t>(run)] - run_begin(run);
}

int64_t Order::at(int64_t epoch, int64_t k) {
  require(epoch >= 0, cat("epoch is ", epoch));
  require(k >= 0 && k < spec_.length, cat("place ", k, " is outside [0, ", spec_.length, ")"));
  if (!spec_.shuffle) {
    return k;
  }
  if (epoch != epoch_) {
    enter_epoch(epoch);
  }
  if (window_ < 0 || k < window_begins_[static_cast<size_t>(window_)] ||
      k >= window_begins_[static_cast<size_t>(window_ + 1)]) {
    const auto after = std::upper_bound(window_begins_.begin(), window_begins_.end(), k);
    enter_window(after - window_begins_.begin() - 1);
  }
  return samples_[static_cast<size_t>(k - window_begins_[static_cast<size_t>(window_)])];
}

void Order::enter_epoch(int64_t epoch) {
  epoch_ = epoch;
  epoch_key_ = fold(spec_.seed, static_cast<uint64_t>(epoch));
  window_ = -1;
  run_order_.resize(static_cast<size_t>(runs()));
  std::iota(run_order_.begin(), run_order_.end(), int64_t{0});
  limbeck::shuffle(run_order_, fold(epoch_key_, kRunStream));

  window_begins_.clear();
  int64_t begin = 0;
  for (size_t i = 0; i < run_order_.size(); ++i) {
    if (static_cast<int64_t>(i) % spec_.window == 0) {
      window_begins_.push_back(begin);
    }
    begin += run_size(run_order_[i]);
  }
  window_begins_.push_back(begin);
}

void Order::enter_window(int64_t window) {
  window_ = window;
  samples_.clear();
  const int64_t first = window * spec_.window;
  const int64_t last = std::min(first + spec_.window, runs());
  for (int64_t i = first; i < last; ++i) {
    const int64_t run = run_order_[static_cast<size_t>(i)];
    for (int64_t sample = run_begin(run); sample < run_begin(run) + run_size(run); ++sample) {
      samples_.push_back(sample);
    }
  }
  limbeck::shuffle(samples_, fold(epoch_key_, kFirstWindowStream + static_cast<uint64_t>(window)));
}

}  // namespace limbeck
