// SPDX-License-Identifier: Apache-2.0
#include "core/data/loader.hpp"

#include <bit>
#include <system_error>
#include <utility>

#include "core/base/log.hpp"
#include "core/base/profile.hpp"
#include "core/base/text.hpp"

namespace limbeck {
namespace {

// Micro-batches in flight for each worker: one in its hands, one ready.
constexpr size_t kAheadPerWorker = 2;

// A mask is made from its field, so who wants the mask wants the field.
std::vector<std::string> with_masked_fields(std::vector<std::string> wanted) {
  const std::string suffix = "_mask";
  const size_t count = wanted.size();
  for (size_t i = 0; i < count; ++i) {
    const auto& name = wanted[i];
    if (name.size() > suffix.size() &&
        name.compare(name.size() - suffix.size(), suffix.size(), suffix) == 0) {
      wanted.push_back(name.substr(0, name.size() - suffix.size()));
    }
  }
  return wanted;
}

}  // namespace

Loader::Loader(DataSpec data,
               std::vector<std::string> wanted,
               const Mesh& mesh,
               uint64_t seed,
               int64_t batch_size,
               TokenCounts tokens)
    : data_(std::move(data)),
      wanted_(with_masked_fields(std::move(wanted))),
      mesh_(mesh),
      seed_(seed),
      batch_size_(batch_size),
      tokens_(std::move(tokens)),
      title_(dataset_title(data_.dataset)) {
  if (batch_size_ < 1 || data_.workers < 0 || data_.window < 1) {
    throw Error(Fault::kInternal, cat(title_, ": batch size ", batch_size_, ", workers ",
                                      data_.workers, ", window ", data_.window));
  }
  control_ = std::make_unique<Reader>(data_.dataset, source(0));
  fields_ = control_->fields(wanted_);
  if (length() == 0) {
    throw Error(Fault::kData, cat(title_, " is empty: it has no samples"),
                "check the path that the manifest gives it");
  }
  if (length() > 0) {
    open_order();
  }
}

void Loader::open_order() {
  runs_ = control_->runs();
  shares_ = control_->shares(runs_);
  window_ = data_.window;
  if (const int64_t kept = control_->kept_runs(); kept > 0 && kept < window_ && data_.shuffle) {
    log::info("data", cat(title_, " keeps ", kept, " runs of samples in memory: as many are ",
                          "shuffled together instead of ", window_));
    window_ = kept;
  }
  if (data_.is_reference_order && !shares_.empty()) {
    throw Error(Fault::kData,
                cat(title_, ": order = \"reference\" does not go together with a mix by weight"),
                "mix by repeat counts, or set order = \"epoch\"");
  }
  const auto kind = !data_.shuffle             ? OrderKind::kSequential
                    : data_.is_reference_order ? OrderKind::kReference
                                               : OrderKind::kEpoch;
  order_ = std::make_unique<Order>(OrderSpec{length(), runs_, seed_, kind, window_, shares_});
  if (epoch_length() < global_batch()) {
    throw Error(Fault::kData,
                cat(title_, " has ", epoch_length(), " samples, fewer than one global batch of ",
                    global_batch(), " (", mesh_.data_size(), " data-parallel ranks x batches of ",
                    batch_size_, ")"),
                "lower train_batch_size, or add samples");
  }
  log::info("data", cat(title_, ": ", epoch_length(), " samples an epoch, ",
                        epoch_length() / global_batch(), " global batches of ", global_batch()));
}

Loader::~Loader() { stop_workers(); }

// Instance 0 is the control thread's; worker threads have 1 ... workers.
SourceSpec Loader::source(int64_t worker) const {
  SourceSpec source;
  source.worker = static_cast<uint32_t>(worker);
  source.workers = static_cast<uint32_t>(data_.workers + 1);
  source.rank = static_cast<uint32_t>(mesh_.data_rank());
  source.world = static_cast<uint32_t>(mesh_.data_size());
  source.skips_unreadable = data_.max_skipped.has_value();
  source.seed = seed_;
  source.wanted = wanted_;
  return source;
}

uint64_t Loader::fingerprint() const {
  uint64_t hash = fold(0, static_cast<uint64_t>(length()));
  for (const int64_t end : runs_) {
    hash = fold(hash, static_cast<uint64_t>(end));
  }
  for (const auto& share : shares_) {
    hash =
        fold(fold(hash, static_cast<uint64_t>(share.end)), std::bit_cast<uint64_t>(share.weight));
  }
  return fold(hash, control_->fingerprint());
}

int64_t Loader::batches_ahead() const {
  return data_.workers * static_cast<int64_t>(kAheadPerWorker);
}

int64_t Loader::skipped() const {
  const std::lock_guard lock(skipped_mutex_);
  return static_cast<int64_t>(skipped_.size());
}

std::shared_ptr<Loader::Ticket> Loader::plan(DataPosition from) {
  if (epoch_length() - from.sample < global_batch()) {
    from = {from.epoch + 1, 0};
  }
  auto ticket = std::make_shared<Ticket>();
  ticket->after = {from.epoch, from.sample + global_batch()};
  for (int64_t slot = 0; slot < batch_size_; ++slot) {
    const int64_t place = place_in_batch(mesh_.data_rank(), slot, mesh_.data_size());
    ticket->rows.push_back(order_->at(from.epoch, from.sample + place));
  }
  return ticket;
}

std::shared_ptr<lb_batch> Loader::read(const Reader& reader,
                                       const std::vector<int64_t>& rows) const {
  return std::make_shared<lb_batch>(
      collate(fields_, reader.read(rows, *order_), rows, tokens_, title_));
}

std::shared_ptr<lb_batch> Loader::read_readable(const Reader& reader, std::vector<int64_t> rows) {
  try {
    return read(reader, rows);
  } catch (const Error& error) {
    if (!data_.max_skipped || error.fault() != Fault::kData) {
      throw;
    }
  }
  std::vector<lb_batch> samples;
  for (auto& row : rows) {
    samples.push_back(read_or_replace(reader, row));
  }
  return std::make_shared<lb_batch>(collate(fields_, samples, rows, tokens_, title_));
}

// Changes `row` to the one that was read.
lb_batch Loader::read_or_replace(const Reader& reader, int64_t& row) {
  constexpr uint64_t kAttempts = 16;
  const int64_t wanted = row;
  for (uint64_t attempt = 0;; ++attempt) {
    try {
      auto sample = reader.read({row}, *order_);
      collate(fields_, sample, {row}, tokens_, title_);  // a sample of another shape fails here
      return std::move(sample.front());
    } catch (const Error& error) {
      if (error.fault() != Fault::kData || attempt == kAttempts) {
        throw;
      }
      note_skipped(row, error);
      row = substitute(wanted, attempt);
    }
  }
}

// Any row of the same source, the same whoever asks.
int64_t Loader::substitute(int64_t row, uint64_t attempt) const {
  const auto [begin, end] = order_->source_of(row);
  const uint64_t drawn = fold(fold(seed_, static_cast<uint64_t>(row)), attempt);
  return begin + static_cast<int64_t>(drawn % static_cast<uint64_t>(end - begin));
}

void Loader::note_skipped(int64_t row, const Error& error) {
  const std::lock_guard lock(skipped_mutex_);
  if (!skipped_.insert(row).second) {
    return;
  }
  if (static_cast<int64_t>(skipped_.size()) > *data_.max_skipped) {
    throw Error(Fault::kData,
                cat(title_, ": ", skipped_.size(),
                    " samples cannot be read, more than max_skipped = ", *data_.max_skipped,
                    "; the last one: ", error.message()),
                "repair the data, or raise training.data.max_skipped")
        .with(cat("while reading row ", row));
  }
  log::warn("data", cat(title_, ": row ", row, " is skipped (", skipped_.size(), " of at most ",
                        *data_.max_skipped, "): ", error.message()));
}

std::shared_ptr<lb_batch> Loader::next() {
  const profile::Timed timed(profile::Part::kData);
  if (order_ == nullptr) {
    return next_of_stream();
  }
  if (data_.workers > 0) {
    return next_from_workers();
  }
  const auto ticket = plan(position_);
  auto batch = read_readable(*control_, ticket->rows);
  position_ = ticket->after;
  return batch;
}

std::shared_ptr<lb_batch> Loader::rows(const std::vector<int64_t>& indices) {
  const profile::Timed timed(profile::Part::kData);
  if (order_ == nullptr) {
    throw Error(Fault::kData, cat(title_, " is a stream: its rows cannot be chosen"));
  }
  if (indices.empty()) {
    throw Error(Fault::kData, cat(title_, ": a batch of no rows was asked for"));
  }
  for (const int64_t index : indices) {
    if (index < 0 || index >= length()) {
      throw Error(Fault::kData,
                  cat(title_, ": row ", index, " was asked for; it has rows 0 to ", length() - 1));
    }
  }
  return read(*control_, indices);
}

void Loader::seek(DataPosition position) {
  if (position.epoch < 0 || position.sample < 0 ||
      (length() >= 0 && position.sample > epoch_length())) {
    throw Error(Fault::kData, cat(title_, " has no position epoch ", position.epoch, ", sample ",
                                  position.sample, "; an epoch has ", epoch_length(), " samples"));
  }
  forget_tickets();
  position_ = position;
}

Stateful Loader::stateful() {
  Stateful result{"data", data_.dataset.component, "in " + title_, {}, {}};
  if (control_->has_state()) {
    result.save = [this](lb_writer* writer) { return present_stream().save(writer); };
    result.load = [this](const lb_reader* reader) { return present_stream().load(reader); };
  }
  return result;
}

DataRecord Loader::record() const {
  DataRecord record;
  record.position = position_;
  record.total_samples = length();
  record.seed = seed_;
  record.order = length() < 0               ? "stream"
                 : !data_.shuffle           ? order_name(OrderKind::kSequential)
                 : data_.is_reference_order ? order_name(OrderKind::kReference)
                                            : order_name(OrderKind::kEpoch);
  record.mix = shares_.empty() ? "repeat" : "weight";
  record.window = window_;
  record.fingerprint = fingerprint();
  record.groups = mesh_.data_size();
  record.batch_size = batch_size_;
  return record;
}

void Loader::restore(const DataRecord& record, bool allow_change) {
  const auto differences = record.differences(this->record());
  auto position = record.position;
  if (!differences.empty()) {
    const std::string text =
        cat(title_, " is not the one that the position was saved with: ", join(differences, "; "));
    if (!allow_change) {
      throw Error(
          Fault::kData, text,
          "bring back the data and settings, or set training.checkpoint.allow_dataset_change = "
          "true: the samples of this epoch are then not the ones that are left");
    }
    log::warn("data", text);
    if (length() >= 0 && position.sample > epoch_length()) {
      position = {position.epoch + 1, 0};
    }
  }
  seek(position);
  if (length() >= 0 && position.sample % global_batch() != 0) {
    log::info("data", cat(title_, ": goes on at sample ", position.sample, " of epoch ",
                          position.epoch, ", which no global batch of ", global_batch(),
                          " begins with in this epoch: its last batch ends elsewhere"));
  }
}

// ---- worker threads

std::shared_ptr<lb_batch> Loader::next_from_workers() {
  if (workers_.empty()) {
    start_workers();
  }
  while (ahead_.size() < kAheadPerWorker * workers_.size()) {
    auto ticket = plan(ahead_.empty() ? position_ : ahead_.back()->after);
    {
      const std::lock_guard lock(mutex_);
      waiting_.push_back(ticket);
    }
    has_work_.notify_one();
    // Last: what is in here must have been given to the workers, or next() would wait forever.
    ahead_.push_back(std::move(ticket));
  }
  const auto first = ahead_.front();
  {
    std::unique_lock lock(mutex_);
    has_result_.wait(lock, [&] { return first->is_done; });
  }
  if (first->failure) {
    forget_tickets();
    std::rethrow_exception(first->failure);
  }
  ahead_.pop_front();
  position_ = first->after;
  return std::move(first->batch);
}

void Loader::start_workers() {
  try {
    for (int64_t worker = 1; worker <= data_.workers; ++worker) {
      workers_.emplace_back([this, worker] { work(worker); });
    }
  } catch (const std::system_error& error) {
    stop_workers();
    throw Error(Fault::kMemory,
                cat("cannot start thread ", workers_.size() + 1, " of ", data_.workers, " of the ",
                    title_, ": ", error.what()),
                "lower dataloader_num_workers");
  }
}

void Loader::stop_workers() noexcept {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  has_work_.notify_all();
  for (auto& worker : workers_) {
    worker.join();
  }
  workers_.clear();
  is_stopping_ = false;
}

// A ticket that a worker holds is read to its end and dropped.
void Loader::forget_tickets() {
  const std::lock_guard lock(mutex_);
  waiting_.clear();
  ahead_.clear();
}

void Loader::work(int64_t worker) {
  std::unique_ptr<Reader> reader;
  std::unique_lock lock(mutex_);
  while (true) {
    has_work_.wait(lock, [&] { return is_stopping_ || !waiting_.empty(); });
    if (is_stopping_) {
      return;
    }
    const auto ticket = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    try {
      if (reader == nullptr) {
        reader = std::make_unique<Reader>(data_.dataset, source(worker));
        if (reader->length() != length()) {
          const int64_t now = reader->length();
          reader.reset();
          throw Error(
              Fault::kData,
              cat(title_, " had ", length(), " samples when it was opened, and now has ", now),
              "do not change the files of a data set while it is in use");
        }
      }
      ticket->batch = read_readable(*reader, ticket->rows);
    } catch (...) {
      ticket->failure = std::current_exception();
    }
    lock.lock();
    ticket->is_done = true;
    has_result_.notify_all();
  }
}

// ---- streams

void Loader::open_stream(int64_t epoch) {
  auto spec = source(0);
  if (epoch > 0) {
    spec.seed = fold(seed_, static_cast<uint64_t>(epoch));
  }
  control_ = std::make_unique<Reader>(data_.dataset, spec);
  stream_epoch_ = epoch;
}

// Opened for the epoch of the position.
const Reader& Loader::present_stream() {
  if (stream_epoch_ != position_.epoch) {
    open_stream(position_.epoch);
  }
  return *control_;
}

std::shared_ptr<lb_batch> Loader::next_of_stream() {
  const int64_t groups = mesh_.data_size();
  // Twice: the rest of an epoch that does not fill a batch is dropped.
  for (int attempt = 0; attempt < 2; ++attempt) {
    const Reader& stream = present_stream();
    const int64_t first = position_.sample / groups;
    std::vector<lb_batch> samples(static_cast<size_t>(batch_size_));
    std::vector<int64_t> rows;
    while (static_cast<int64_t>(rows.size()) < batch_size_) {
      const auto i = static_cast<int64_t>(rows.size());
      if (!stream.read_stream(first + i, samples[static_cast<size_t>(i)])) {
        break;
      }
      rows.push_back((first + i) * groups + mesh_.data_rank());
    }
    if (static_cast<int64_t>(rows.size()) == batch_size_) {
      auto batch = std::make_shared<lb_batch>(collate(fields_, samples, rows, tokens_, title_));
      position_.sample += global_batch();
      return batch;
    }
    if (position_.sample == 0) {
      throw Error(Fault::kData,
                  cat(title_, " is a stream that ended after ", rows.size(),
                      " samples, fewer than one batch of ", batch_size_),
                  "lower train_batch_size, or add samples");
    }
    position_ = {position_.epoch + 1, 0};
  }
  throw Error(Fault::kInternal, cat(title_, ": a new epoch of the stream gave no batch"));
}

}  // namespace limbeck
