// SPDX-License-Identifier: Apache-2.0
// The micro-batches of one rank, in the global order of the data set, read by the calling thread
// or ahead of it by threads of its own.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "core/base/error.hpp"
#include "core/data/collate.hpp"
#include "core/data/order.hpp"
#include "core/data/reader.hpp"
#include "core/data/record.hpp"
#include "core/dist/mesh.hpp"
#include "core/manifest/manifest.hpp"
#include "core/plugin/stateful.hpp"
#include "core/tensor/batch.hpp"

namespace limbeck {

// With G = mesh.data_size() groups and micro-batches of B samples, the micro-batches of all groups
// together are one global batch: the next G * B samples of the epoch's order; group q gets those
// at places q, q + G, q + 2 G, ... of it. What is left of an epoch when fewer than G * B samples
// remain is dropped. Position and order do not depend on G, B, or the number of workers, so one
// micro-batch of 16 holds the samples of two micro-batches of 8.
//
// Of sources that the data set weighs, each has its share of an epoch (see Order). Under
// DataSpec::max_skipped, a row that cannot be read is reported and replaced by one of the same
// source, chosen by seed and row alone, so that batches keep their size on every rank.
//
// A stream (length -1) gives what each rank's own instance reads, 0, 1, 2, ...; when it ends, it is
// opened again for the next epoch, with a seed made of seed and epoch. It is never shuffled here,
// and read by the calling thread.
//
// The data set is opened once on the constructing thread and once on each worker thread, there when
// its first micro-batch is read. All functions: [control].
class Loader {
 public:
  // `wanted`: entries that somebody reads, empty for all; `tokens`: see collate(). `data` is
  // copied, but the component behind it must outlive the loader. Throws Error(kData) for a data
  // set that is empty or smaller than a global batch, and whatever opening it throws.
  Loader(DataSpec data,
         std::vector<std::string> wanted,
         const Mesh& mesh,
         uint64_t seed,
         int64_t batch_size,
         TokenCounts tokens);
  // Waits for reads that are under way.
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // Samples of the whole set, -1 for a stream.
  int64_t length() const { return control_->length(); }
  // "data set 'name' (training.data)".
  const std::string& title() const { return title_; }
  // The entries that batches have.
  std::vector<BatchName> fields() const { return batch_names(fields_); }
  // Changes when the number of samples, the runs, the sources or what the data set says of its
  // files do: a position of another data set means nothing for this one. The same in every process
  // that has the same data.
  uint64_t fingerprint() const;
  // Samples of one epoch, -1 for a stream: length(), less those of sources without weight.
  int64_t epoch_length() const { return order_ == nullptr ? -1 : order_->length(); }
  // Runs that are shuffled together: what the manifest says, or less if the data set cannot keep
  // so many in memory.
  int64_t window() const { return window_; }
  // Micro-batches that are at most read ahead.
  int64_t batches_ahead() const;
  // Rows that could not be read so far. [any]
  int64_t skipped() const;

  // The next micro-batch, which is the caller's alone. A failure to read it is thrown when its
  // turn comes and leaves the position where it was: the next call tries again.
  std::shared_ptr<lb_batch> next();
  // These samples as one batch; they may repeat. Leaves the position alone. Not for streams.
  std::shared_ptr<lb_batch> rows(const std::vector<int64_t>& indices);

  // The first sample that next() has not handed out yet; read ahead does not count. At the end of
  // an epoch the next one begins only when it is asked for.
  DataPosition position() const { return position_; }
  // Throws Error(kData) if the data set has no such position.
  void seek(DataPosition position);

  // The state of a stream that cannot go to a position by itself, for checkpoints: to be loaded
  // after restore(). Without functions: the position is all there is.
  Stateful stateful();

  // position() with everything that gives it a meaning.
  DataRecord record() const;
  // Goes on where the loader that made `record` stood, also with other ranks and batches: at the
  // first sample that was not handed out. Throws Error(kData) that names what differs if seed,
  // order or data set are others; with `allow_change` that is a warning, and a position that the
  // data set does not have becomes the start of the next epoch.
  void restore(const DataRecord& record, bool allow_change = false);

 private:
  // One micro-batch to read.
  struct Ticket {
    DataPosition after;
    std::vector<int64_t> rows;
    // Written by a worker before is_done, read after it; is_done under mutex_.
    std::shared_ptr<lb_batch> batch;
    std::exception_ptr failure;
    bool is_done = false;
  };

  SourceSpec source(int64_t worker) const;
  int64_t global_batch() const { return batch_size_ * mesh_.data_size(); }
  void open_order();
  std::shared_ptr<Ticket> plan(DataPosition from);
  std::shared_ptr<lb_batch> read(const Reader& reader, const std::vector<int64_t>& rows) const;
  std::shared_ptr<lb_batch> read_readable(const Reader& reader, std::vector<int64_t> rows);
  lb_batch read_or_replace(const Reader& reader, int64_t& row);
  int64_t substitute(int64_t row, uint64_t attempt) const;
  void note_skipped(int64_t row, const Error& error);
  std::shared_ptr<lb_batch> next_from_workers();
  std::shared_ptr<lb_batch> next_of_stream();
  void open_stream(int64_t epoch);
  const Reader& present_stream();
  void start_workers();
  void stop_workers() noexcept;
  void forget_tickets();
  void work(int64_t worker);

  DataSpec data_;
  std::vector<std::string> wanted_;
  Mesh mesh_;
  uint64_t seed_;
  int64_t batch_size_;
  TokenCounts tokens_;
  std::string title_;

  std::unique_ptr<Reader> control_;  // never null after construction
  int64_t stream_epoch_ = 0;         // of a stream in control_
  std::vector<Field> fields_;
  std::vector<int64_t> runs_;
  std::vector<Share> shares_;
  int64_t window_ = 1;
  std::unique_ptr<Order> order_;  // null for a stream; workers use its const functions only
  DataPosition position_;

  // Micro-batches that are being read ahead, in order; known to the control thread only.
  std::deque<std::shared_ptr<Ticket>> ahead_;
  std::vector<std::thread> workers_;

  mutable std::mutex skipped_mutex_;
  std::set<int64_t> skipped_;  // rows

  std::mutex mutex_;  // of the members below and of Ticket::is_done
  std::condition_variable has_work_;
  std::condition_variable has_result_;
  std::deque<std::shared_ptr<Ticket>> waiting_;  // those of ahead_ that no worker has begun
  bool is_stopping_ = false;
};

}  // namespace limbeck
