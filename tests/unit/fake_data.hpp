// SPDX-License-Identifier: Apache-2.0
// A data set in memory for tests of the loader, and what happened to it: 23 rows in runs of unequal
// size, each with the entries "value" [2], "context" [row mod 3 + 1, 2], "caption" and "weight".
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <ATen/ATen.h>

#include "core/data/loader.hpp"
#include "core/plugin/status.hpp"

namespace limbeck::testing {

using Rows = std::vector<int64_t>;

struct Fake {
  std::atomic<int64_t> length{23};
  Rows ends = {4, 5, 9, 9, 14, 16, 23};
  std::atomic<int64_t> broken_row{-1};
  std::atomic<bool> breaks_on_open{false};
  bool adds_undeclared = false;
  bool is_stream = false;
  int64_t delay_us = 0;
  std::set<int64_t> broken_rows;     // read and read_many fail
  std::set<int64_t> misshapen_rows;  // their "value" has another shape than declared
  std::vector<lb_mix_source> mix;
  int64_t kept_runs = 0;
  uint64_t fingerprint = 0;

  std::atomic<int> opened{0}, closed{0}, shared{0};
  std::mutex mutex;
  std::vector<lb_source> sources;  // without `wanted`
  std::vector<std::string> wanted;
  std::vector<Rows> runs_read;  // by read_many
  Rows rows_read;               // by read
};

struct Instance {
  Fake* fake;
  std::atomic<bool> is_busy{false};
};

// Notes two threads in one instance.
class Busy {
 public:
  explicit Busy(void* self) : instance_(*static_cast<Instance*>(self)) {
    if (instance_.is_busy.exchange(true)) {
      ++instance_.fake->shared;
    }
  }
  ~Busy() { instance_.is_busy = false; }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

 private:
  Instance& instance_;
};

inline Fake& fake_of(void* self) { return *static_cast<Instance*>(self)->fake; }

inline lb_status* fake_open(lb_state* plugin,
                            const lb_config*,
                            const lb_source* source,
                            void** out) {
  auto& fake = *reinterpret_cast<Fake*>(plugin);
  if (fake.breaks_on_open && fake.opened > 0) {
    return make_status(LB_NOT_FOUND, "the disk is gone");
  }
  ++fake.opened;
  const std::lock_guard lock(fake.mutex);
  fake.sources.push_back(*source);
  fake.wanted.clear();
  for (const char* const* name = source->wanted; name != nullptr && *name != nullptr; ++name) {
    fake.wanted.emplace_back(*name);
  }
  *out = new Instance{&fake};
  return nullptr;
}

inline void fake_close(void* self) {
  ++fake_of(self).closed;
  delete static_cast<Instance*>(self);
}

inline int64_t fake_length(void* self) {
  return fake_of(self).is_stream ? -1 : fake_of(self).length.load();
}

inline lb_status* fake_fields(void*, lb_fields* out) {
  static const int64_t value_sizes[] = {2};
  static const int64_t context_sizes[] = {-1, 2};
  static const lb_field fields[] = {{"value", value_sizes, LB_F32, 1, 0, 0},
                                    {"context", context_sizes, LB_F32, 2, 0, 0},
                                    {"caption", nullptr, 0, 0, LB_FIELD_TEXT, 0},
                                    {"weight", nullptr, LB_F64, 0, 0, 0}};
  *out = {sizeof(lb_field), 4, fields};
  return nullptr;
}

inline lb_status* fill(Fake& fake, int64_t index, lb_batch* sample) {
  if (fake.delay_us > 0) {
    std::this_thread::sleep_for(std::chrono::microseconds(fake.delay_us));
  }
  if (index == fake.broken_row || fake.broken_rows.count(index) > 0) {
    return make_status(LB_DATA_LOSS, "the bytes are damaged");
  }
  const auto number = static_cast<double>(index);
  const auto value = static_cast<float>(number);
  sample->put("value",
              at::tensor(fake.misshapen_rows.count(index) > 0 ? std::vector<float>{value}
                                                              : std::vector<float>{value, 1.0F}));
  sample->put("context", at::full({index % 3 + 1, 2}, number, at::kFloat));
  sample->put("caption", TextRows{"row " + std::to_string(index)});
  sample->put("weight", number / 2);
  if (fake.adds_undeclared) {
    sample->put("surprise", 1.0);
  }
  return nullptr;
}

inline lb_status* fake_read(void* self, int64_t index, lb_batch* sample) {
  const Busy busy(self);
  auto& fake = fake_of(self);
  if (fake.is_stream && index >= fake.length) {
    return make_status(LB_OUT_OF_RANGE, "the end");
  }
  {
    const std::lock_guard lock(fake.mutex);
    fake.rows_read.push_back(index);
  }
  return fill(fake, index, sample);
}

inline lb_status* fake_runs(void* self, const int64_t** ends, uint64_t* count) {
  *ends = fake_of(self).ends.data();
  *count = fake_of(self).ends.size();
  return nullptr;
}

inline lb_status* fake_read_many(void* self,
                                 const int64_t* indices,
                                 uint32_t count,
                                 lb_batch* const* samples) {
  const Busy busy(self);
  auto& fake = fake_of(self);
  {
    const std::lock_guard lock(fake.mutex);
    fake.runs_read.emplace_back(indices, indices + count);
  }
  for (uint32_t i = 0; i < count; ++i) {
    if (auto* status = fill(fake, indices[i], samples[i])) {
      return status;
    }
  }
  return nullptr;
}

inline int64_t fake_kept_runs(void* self) { return fake_of(self).kept_runs; }

inline lb_status* fake_mix(void* self, lb_mix* out) {
  const auto& mix = fake_of(self).mix;
  *out = {sizeof(lb_mix_source), static_cast<uint32_t>(mix.size()), mix.data()};
  return nullptr;
}

inline uint64_t fake_fingerprint(void* self) { return fake_of(self).fingerprint; }

// The component around a Fake, as a registry and a manifest would hold it.
struct Setup {
  Fake fake;
  lb_dataset_vtable vtable = {sizeof(lb_dataset_vtable),
                              0,
                              fake_open,
                              fake_close,
                              fake_length,
                              fake_fields,
                              fake_read,
                              fake_runs,
                              nullptr,
                              nullptr,
                              nullptr,
                              fake_kept_runs,
                              fake_mix,
                              fake_fingerprint,
                              nullptr};
  lb_component table = {};
  Library library;
  Component component;
  DataSpec data;
  Mesh mesh;
  uint64_t seed = 5;
  std::vector<std::string> wanted;
  TokenCounts tokens;

  Setup() {
    table.struct_size = sizeof(lb_component);
    table.kind = "limbeck.dataset/1";
    table.name = "fake";
    table.vtable = &vtable;
    library.state = reinterpret_cast<lb_state*>(&fake);
    component.table = &table;
    component.library = &library;
    data.dataset.key = "training.data";
    data.dataset.component = &component;
    data.window = 2;
  }

  std::unique_ptr<Loader> loader(int64_t batch, int64_t workers = 0) {
    data.workers = workers;
    return std::make_unique<Loader>(data, wanted, mesh, seed, batch, tokens);
  }
};

inline Rows rows_of(const lb_batch& batch) {
  const auto row = batch.tensor("row");
  const auto* values = row.const_data_ptr<int64_t>();
  return {values, values + row.numel()};
}

inline Rows rows_of_next(Loader& loader, int64_t batches) {
  Rows rows;
  for (int64_t i = 0; i < batches; ++i) {
    const auto more = rows_of(*loader.next());
    rows.insert(rows.end(), more.begin(), more.end());
  }
  return rows;
}

inline bool same(const lb_batch& a, const lb_batch& b) {
  if (a.entries.size() != b.entries.size()) {
    return false;
  }
  for (const auto& [name, entry] : a.entries) {
    const auto other = b.entries.find(name);
    if (other == b.entries.end() || entry.index() != other->second.index()) {
      return false;
    }
    if (const auto* tensor = std::get_if<at::Tensor>(&entry)) {
      if (!at::equal(*tensor, std::get<at::Tensor>(other->second))) {
        return false;
      }
    } else if (std::get<TextRows>(entry) != std::get<TextRows>(other->second)) {
      return false;
    }
  }
  return true;
}

}  // namespace limbeck::testing
