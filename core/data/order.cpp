// SPDX-License-Identifier: Apache-2.0
#include "core/data/order.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/hash.hpp"
#include "core/base/text.hpp"

namespace limbeck {
namespace {

// Streams of an epoch's key: the order of runs, then one for every window; of sources, which of
// them has which place.
constexpr uint64_t kRunStream = 0;
constexpr uint64_t kFirstWindowStream = 1;
constexpr uint64_t kMixStream = 0;

void require(bool holds, const std::string& what) {
  if (!holds) {
    throw Error(Fault::kInternal, "order of samples: " + what);
  }
}

// What torch.randperm(length, generator=torch.Generator().manual_seed(seed)) gives: its CPU
// generator is the Mersenne Twister of the standard library, seeded with the low 32 bits.
std::vector<int64_t> torch_permutation(int64_t length, uint64_t seed) {
  std::mt19937 generator(static_cast<uint32_t>(seed));
  std::vector<int64_t> items(static_cast<size_t>(length));
  std::iota(items.begin(), items.end(), int64_t{0});
  for (size_t i = 0; i + 1 < items.size(); ++i) {
    std::swap(items[i], items[i + generator() % (items.size() - i)]);
  }
  return items;
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

const char* order_name(OrderKind kind) {
  switch (kind) {
    case OrderKind::kSequential:
      return "sequential";
    case OrderKind::kEpoch:
      return "epoch";
    case OrderKind::kReference:
      return "reference";
  }
  return "";
}

Order::Order(OrderSpec spec) : spec_(std::move(spec)), length_(spec_.length) {
  check_spec();
  if (!spec_.ends.empty()) {
    // Empty runs would use up places in a window.
    spec_.ends.erase(std::unique(spec_.ends.begin(), spec_.ends.end()), spec_.ends.end());
    if (spec_.ends.front() == 0) {
      spec_.ends.erase(spec_.ends.begin());
    }
  }
  if (!spec_.shares.empty()) {
    add_sources();
  }
}

void Order::check_spec() {
  require(spec_.length > 0, cat("length is ", spec_.length, ", expected at least 1"));
  require(spec_.window > 0, cat("window is ", spec_.window, ", expected at least 1"));
  if (!spec_.ends.empty()) {
    require(spec_.ends.front() >= 0 && std::is_sorted(spec_.ends.begin(), spec_.ends.end()),
            "the ends of the runs descend");
    require(spec_.ends.back() == spec_.length,
            cat("the last run ends at ", spec_.ends.back(), ", expected ", spec_.length));
  }
  if (spec_.shares.empty()) {
    return;
  }
  require(spec_.kind != OrderKind::kReference, "the reference order does not mix by weight");
  require(spec_.shares.back().end == spec_.length, "the last source does not end at the length");
  int64_t begin = 0;
  double sum = 0;
  for (const auto& share : spec_.shares) {
    require(share.end >= begin && share.weight >= 0,
            "the sources descend, or a weight is negative");
    require(share.weight == 0 || share.end > begin, "a source with a weight has no samples");
    require(spec_.ends.empty() || share.end == 0 ||
                std::binary_search(spec_.ends.begin(), spec_.ends.end(), share.end),
            cat("a source ends at ", share.end, ", inside a run"));
    begin = share.end;
    sum += share.weight;
  }
  require(sum > 0, "no source has a weight");
}

// Quotas are shares of the samples that can be visited, rounded so that they add up: those with the
// largest remainders are rounded up.
void Order::add_sources() {
  double sum = 0;
  int64_t count = 0;
  length_ = 0;
  int64_t begin = 0;
  for (const auto& share : spec_.shares) {
    sum += share.weight;
    if (share.weight > 0) {
      length_ += share.end - begin;
      ++count;
    }
    begin = share.end;
  }

  std::vector<std::pair<double, size_t>> remainders;
  int64_t given = 0;
  begin = 0;
  for (size_t i = 0; i < spec_.shares.size(); ++i) {
    const auto& share = spec_.shares[i];
    if (share.weight > 0) {
      const double exact = share.weight / sum * static_cast<double>(length_);
      const auto quota = std::min(static_cast<int64_t>(exact), length_ - given);
      OrderSpec own{share.end - begin,
                    {},
                    fold(spec_.seed, i),
                    spec_.kind,
                    std::max<int64_t>(1, spec_.window / count),
                    {}};
      for (const int64_t end : spec_.ends) {
        if (end > begin && end <= share.end) {
          own.ends.push_back(end - begin);
        }
      }
      remainders.emplace_back(static_cast<double>(quota) - exact, sources_.size());
      sources_.push_back({begin, quota});
      source_orders_.emplace_back(std::move(own));
      given += quota;
    }
    begin = share.end;
  }
  std::sort(remainders.begin(), remainders.end());
  for (size_t i = 0; given < length_; i = (i + 1) % remainders.size(), ++given) {
    ++sources_[remainders[i].second].quota;
  }
}

std::pair<int64_t, int64_t> Order::source_of(int64_t sample) const {
  int64_t begin = 0;
  for (const auto& share : spec_.shares) {
    if (sample < share.end) {
      return {begin, share.end};
    }
    begin = share.end;
  }
  return {0, spec_.length};
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
  require(k >= 0 && k < length_, cat("place ", k, " is outside [0, ", length_, ")"));
  if (!sources_.empty()) {
    if (epoch != epoch_) {
      mix_epoch(epoch);
    }
    return samples_[static_cast<size_t>(k)];
  }
  if (spec_.kind == OrderKind::kSequential) {
    return k;
  }
  if (spec_.kind == OrderKind::kReference) {
    if (samples_.empty()) {
      samples_ = torch_permutation(length_, spec_.seed);
    }
    return samples_[static_cast<size_t>(k)];
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

void Order::mix_epoch(int64_t epoch) {
  epoch_ = epoch;
  // When each source has its turns: its places are spread evenly, or shuffled.
  std::vector<std::pair<double, size_t>> turns;
  for (size_t i = 0; i < sources_.size(); ++i) {
    const auto quota = sources_[i].quota;
    for (int64_t turn = 0; turn < quota; ++turn) {
      turns.emplace_back((static_cast<double>(turn) + 0.5) / static_cast<double>(quota), i);
    }
  }
  std::sort(turns.begin(), turns.end());
  std::vector<int64_t> whose;
  for (const auto& turn : turns) {
    whose.push_back(static_cast<int64_t>(turn.second));
  }
  if (spec_.kind == OrderKind::kEpoch) {
    limbeck::shuffle(whose, fold(fold(spec_.seed, static_cast<uint64_t>(epoch)), kMixStream));
  }

  std::vector<int64_t> visits;  // of each source, in all epochs before
  for (const auto& source : sources_) {
    visits.push_back(epoch * source.quota);
  }
  samples_.clear();
  for (const int64_t i : whose) {
    auto& order = source_orders_[static_cast<size_t>(i)];
    const int64_t visit = visits[static_cast<size_t>(i)]++;
    samples_.push_back(sources_[static_cast<size_t>(i)].begin +
                       order.at(visit / order.length(), visit % order.length()));
  }
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
