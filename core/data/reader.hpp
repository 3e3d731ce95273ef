// SPDX-License-Identifier: Apache-2.0
// One opened instance of a data set component.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <limbeck/abi.h>

#include "core/data/collate.hpp"
#include "core/data/order.hpp"
#include "core/manifest/manifest.hpp"
#include "core/tensor/batch.hpp"

namespace limbeck {

// Which instance this is, and what it is asked for; see lb_source.
struct SourceSpec {
  uint32_t worker = 0;
  uint32_t workers = 1;
  uint32_t rank = 0;
  uint32_t world = 1;
  bool skips_unreadable = false;
  uint64_t seed = 0;
  std::vector<std::string> wanted;  // empty: all
};

// "data set 'name' (training.data)", as messages call it.
std::string dataset_title(const ComponentSpec& dataset);

// Opens in the constructor and closes in the destructor. Used by one thread at a time. `dataset`
// must outlive it. What the component reports is thrown as Error with the data set's title.
class Reader {
 public:
  Reader(const ComponentSpec& dataset, const SourceSpec& source);
  ~Reader();
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  // Samples of the whole set; -1: a stream.
  int64_t length() const { return length_; }
  std::vector<Field> fields(const std::vector<std::string>& wanted) const;
  // Where runs end, checked against length(); empty: every sample is a run of its own.
  std::vector<int64_t> runs() const;

  // See the vtable: 0 when the data set does not say.
  int64_t kept_runs() const;
  uint64_t fingerprint() const;
  // Sources to mix by weight, checked against length() and `runs`, which runs() gave; empty: none.
  // Throws Error(kPlugin), and Error(kData) for weights that leave nothing to read.
  std::vector<Share> shares(const std::vector<int64_t>& runs) const;

  // The samples `rows`, which may repeat, in that order; repeated ones share their tensors. Every
  // run of `order` is asked for once, in ascending order of its samples.
  std::vector<lb_batch> read(const std::vector<int64_t>& rows, const Order& order) const;
  // Of a stream: whether it has a state of its own, because read_stream() cannot seek.
  bool has_state() const { return length_ < 0 && LB_CAN(&table_, save) && LB_CAN(&table_, load); }
  lb_status* save(lb_writer* writer) const { return table_.save(instance_, writer); }
  lb_status* load(const lb_reader* reader) const { return table_.load(instance_, reader); }

  // Sample `index` of a stream into `sample`; false: the stream has ended.
  bool read_stream(int64_t index, lb_batch& sample) const;

 private:
  std::vector<lb_batch> read_run(const std::vector<int64_t>& rows) const;

  const lb_dataset_vtable& table_;
  std::string title_;
  void* instance_ = nullptr;
  int64_t length_ = 0;
};

}  // namespace limbeck
