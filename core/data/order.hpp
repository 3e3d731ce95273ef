// SPDX-License-Identifier: Apache-2.0
// In which order an epoch visits the samples of a data set. A pure function of length, runs,
// seed, epoch and window: the same on every rank, platform and thread, with nothing to save but
// a position.
//
// Shuffling keeps neighbours together: runs (samples that are cheap to read together, such as a
// row group) are shuffled first; then the samples of each `window` consecutive shuffled runs are
// shuffled among themselves. A reader that keeps the runs of one window in memory therefore
// reads every run once per epoch.
//
// Sources with weights are mixed: each gets its share of the places of an epoch, and goes through
// its own samples in an order of its own, epoch after epoch, so that none of them comes back before
// the others of its source were visited.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace limbeck {

// A place in the endless sequence of epochs, counted in samples of all ranks together; so it
// means the same under another world size or batch size.
struct DataPosition {
  int64_t epoch = 0;
  int64_t sample = 0;  // samples of this epoch that were handed out, [0, length]

  bool operator==(const DataPosition&) const = default;
};

// A key made of two; fold(a, b) and fold(b, a) differ.
uint64_t fold(uint64_t key, uint64_t value);
// Shuffles in place: Fisher-Yates from the end, with the unbiased numbers of a SplitMix64
// sequence that starts at `key`.
void shuffle(std::vector<int64_t>& items, uint64_t key);

// Where element j of data-parallel group q stands within a global batch that `groups` groups
// share. Samples are dealt out one by one, so a global batch holds the same samples however
// groups and micro-batches divide it.
inline int64_t place_in_batch(int64_t group, int64_t slot, int64_t groups) {
  return group + slot * groups;
}

// Samples of one source: from the end of the source before.
struct Share {
  int64_t end = 0;    // also the end of a run
  double weight = 0;  // >= 0, relative to the other shares; 0: never visited
};

enum class OrderKind {
  kSequential,  // 0, 1, 2, ... in every epoch
  kEpoch,       // as above: every epoch has an order of its own
  kReference,   // the permutation that libtorch's randperm gives for the seed, in every epoch
};
// "sequential", "epoch", "reference".
const char* order_name(OrderKind kind);

struct OrderSpec {
  int64_t length = 0;         // samples, > 0
  std::vector<int64_t> ends;  // of the runs, not descending, the last one is `length`; empty: every
                              // sample is a run of its own
  uint64_t seed = 0;
  OrderKind kind = OrderKind::kEpoch;
  int64_t window = 64;        // runs, > 0; sources divide it among themselves
  std::vector<Share> shares;  // mixed by weight; empty: every sample once an epoch. Not for
                              // kReference
};

// Keeps one permutation of runs and one window of samples; going on to the next sample is cheap,
// going anywhere else costs one window, or one epoch's permutation of runs. Not thread-safe.
class Order {
 public:
  // Throws Error(kInternal) if the spec breaks its own rules.
  explicit Order(OrderSpec spec);

  // Places of an epoch: the samples of all sources that have a weight.
  int64_t length() const { return length_; }
  int64_t runs() const;
  // The run that a sample belongs to.
  int64_t run_of(int64_t sample) const;

  // The samples [first, second) of the source of `sample`; all without sources.
  std::pair<int64_t, int64_t> source_of(int64_t sample) const;

  // The sample that is visited `k`-th, 0 <= k < length(), in epoch `epoch` >= 0.
  int64_t at(int64_t epoch, int64_t k);

 private:
  // A source with a weight.
  struct Source {
    int64_t begin;
    int64_t quota;  // places of an epoch
  };

  void check_spec();
  void add_sources();
  void mix_epoch(int64_t epoch);
  int64_t run_begin(int64_t run) const;
  int64_t run_size(int64_t run) const;
  void enter_epoch(int64_t epoch);
  void enter_window(int64_t window);

  OrderSpec spec_;
  int64_t length_ = 0;
  std::vector<Source> sources_;
  std::vector<Order> source_orders_;  // of the samples of each, counted from 0
  int64_t epoch_ = -1;
  int64_t window_ = -1;
  uint64_t epoch_key_ = 0;
  std::vector<int64_t> run_order_;      // of epoch_
  std::vector<int64_t> window_begins_;  // first k of every window of epoch_, then length()
  std::vector<int64_t> samples_;        // of window_, in order; with sources, of epoch_
};

}  // namespace limbeck
