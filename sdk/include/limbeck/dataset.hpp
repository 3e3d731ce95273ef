// SPDX-License-Identifier: Apache-2.0
// Data sets: samples by index. Order, shuffling, epochs, mixing, sharding, collation and the
// position in a checkpoint are the host's.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <limbeck/component.hpp>

namespace lb {
inline namespace v1 LB_HIDDEN {

// One entry of a sample.
struct Field {
  std::string name;
  std::vector<int64_t> sizes;  // of one sample; -1: varies, and the host pads with zeros
  lb_dtype dtype = LB_F32;
  uint32_t flags = 0;  // LB_FIELD_*

  // An entry that is one row of text.
  static Field text(std::string name, uint32_t flags = 0) {
    return {std::move(name), {}, LB_F32, flags | LB_FIELD_TEXT};
  }
};

// A part of a data set that the host mixes with others.
struct MixSource {
  std::string name;   // for messages: a path
  int64_t end = 0;    // its samples begin where those of the source before end, and end here
  double weight = 0;  // >= 0: its share of every epoch, relative to the other weights
};

// Base class. The constructor takes `(const Options&, const lb_source&)`, or the source alone, and
// may read file footers. An instance is used by one worker thread at a time. [worker]
class Dataset {
 public:
  Dataset() = default;
  Dataset(const Dataset&) = delete;
  Dataset& operator=(const Dataset&) = delete;
  virtual ~Dataset() = default;

  // Samples in the whole set; -1: a stream.
  virtual int64_t length() = 0;
  // What a sample has. Asked once.
  virtual std::vector<Field> fields() = 0;
  // Fills `sample`, which is empty, with CPU tensors and texts. A stream is called with 0, 1, 2 and
  // so on, and ends by throwing Error(LB_OUT_OF_RANGE).
  virtual void read(int64_t index, Batch& sample) = 0;
  // Where runs of samples end that are cheap to read together, such as row groups: ascending, the
  // last one is length(). Not overridden: every sample is a run of its own.
  virtual std::vector<int64_t> runs() { return {}; }
  // Several samples of one run. Not overridden: read() for each.
  virtual void read_many(const std::vector<int64_t>&, std::vector<Batch>&) {}
  // How many runs it keeps in memory, so that it reads none of them twice: the host shuffles no
  // more of them together. 0: it does not matter.
  virtual int64_t kept_runs() { return 0; }
  // What the host mixes by weight; the last source ends at length(), and ends of sources are ends
  // of runs too. None: every sample once an epoch.
  virtual std::vector<MixSource> mix() { return {}; }
  // A hash of what the samples are made from, such as names and sizes of files, so that a
  // checkpoint notices another data set.
  virtual uint64_t fingerprint() { return 0; }
  // Facts for people: "files", "bytes", ...
  virtual void describe(Batch& facts) { static_cast<void>(facts); }
  // Position of a stream that cannot seek. Not overridden: read(k) seeks.
  virtual void save(Writer&) {}
  virtual void load(const Reader&) {}
};

namespace detail {

// The instance behind a data set's vtable: the object and the tables the host was shown.
template <class T>
struct OpenDataset {
  std::unique_ptr<T> set;
  std::vector<Field> fields;
  std::vector<lb_field> table;
  std::vector<int64_t> ends;
  std::vector<MixSource> sources;
  std::vector<lb_mix_source> mix;

  static OpenDataset& of(void* self) { return *static_cast<OpenDataset*>(self); }
};

}  // namespace detail

// Registers T under `name`; `doc` is Markdown whose first line is the summary.
template <class T>
const lb_component* dataset(const char* name, const char* doc) {
  using Open = detail::OpenDataset<T>;
  static const lb_dataset_vtable vtable = [] {
    lb_dataset_vtable v{};
    v.struct_size = sizeof(v);
    v.open = [](lb_state*, const lb_config* config, const lb_source* source, void** out) noexcept {
      return guard("open()", detail::component_name<T>, [&] {
        auto open = std::make_unique<Open>();
        open->set = detail::make<T>(config, *source);
        *out = open.release();
      });
    };
    v.close = [](void* self) noexcept { delete &Open::of(self); };
    v.length = [](void* self) noexcept -> int64_t {
      int64_t length = 0;
      report(guard("length()", detail::component_name<T>,
                   [&] { length = Open::of(self).set->length(); }));
      return length;
    };
    v.fields = [](void* self, lb_fields* out) noexcept {
      return guard("fields()", detail::component_name<T>, [&] {
        auto& open = Open::of(self);
        if (open.table.empty()) {
          open.fields = open.set->fields();
          for (const auto& field : open.fields) {
            open.table.push_back({field.name.c_str(), field.sizes.data(), field.dtype,
                                  static_cast<uint32_t>(field.sizes.size()), field.flags, 0});
          }
        }
        *out = {static_cast<uint32_t>(sizeof(lb_field)), static_cast<uint32_t>(open.table.size()),
                open.table.data()};
      });
    };
    v.read = [](void* self, int64_t index, lb_batch* sample) noexcept {
      return guard("read()", detail::component_name<T>, [&] {
        auto entries = Batch::view(sample);
        Open::of(self).set->read(index, entries);
      });
    };
    if constexpr (LB_OVERRIDES(T, Dataset, runs)) {
      v.runs = [](void* self, const int64_t** ends, uint64_t* count) noexcept {
        return guard("runs()", detail::component_name<T>, [&] {
          auto& open = Open::of(self);
          open.ends = open.set->runs();
          *ends = open.ends.data();
          *count = open.ends.size();
        });
      };
    }
    if constexpr (LB_OVERRIDES(T, Dataset, read_many)) {
      v.read_many = [](void* self, const int64_t* indices, uint32_t count,
                       lb_batch* const* samples) noexcept {
        return guard("read_many()", detail::component_name<T>, [&] {
          std::vector<Batch> views;
          views.reserve(count);
          for (uint32_t i = 0; i < count; ++i) {
            views.push_back(Batch::view(samples[i]));
          }
          Open::of(self).set->read_many({indices, indices + count}, views);
        });
      };
    }
    if constexpr (LB_OVERRIDES(T, Dataset, kept_runs)) {
      v.kept_runs = [](void* self) noexcept -> int64_t {
        int64_t runs = 0;
        report(guard("kept_runs()", detail::component_name<T>,
                     [&] { runs = Open::of(self).set->kept_runs(); }));
        return runs;
      };
    }
    if constexpr (LB_OVERRIDES(T, Dataset, mix)) {
      v.mix = [](void* self, lb_mix* out) noexcept {
        return guard("mix()", detail::component_name<T>, [&] {
          auto& open = Open::of(self);
          open.sources = open.set->mix();
          open.mix.clear();
          for (const auto& source : open.sources) {
            open.mix.push_back({source.name.c_str(), source.end, source.weight});
          }
          *out = {static_cast<uint32_t>(sizeof(lb_mix_source)),
                  static_cast<uint32_t>(open.mix.size()), open.mix.data()};
        });
      };
    }
    if constexpr (LB_OVERRIDES(T, Dataset, fingerprint)) {
      v.fingerprint = [](void* self) noexcept -> uint64_t {
        uint64_t hash = 0;
        report(guard("fingerprint()", detail::component_name<T>,
                     [&] { hash = Open::of(self).set->fingerprint(); }));
        return hash;
      };
    }
    if constexpr (LB_OVERRIDES(T, Dataset, describe)) {
      v.describe = [](void* self, lb_batch* facts) noexcept {
        return guard("describe()", detail::component_name<T>, [&] {
          auto entries = Batch::view(facts);
          Open::of(self).set->describe(entries);
        });
      };
    }
    if constexpr (LB_OVERRIDES(T, Dataset, save)) {
      v.save = [](void* self, lb_writer* writer) noexcept {
        return detail::save<T>(Open::of(self).set.get(), writer);
      };
    }
    if constexpr (LB_OVERRIDES(T, Dataset, load)) {
      v.load = [](void* self, const lb_reader* reader) noexcept {
        return detail::load<T>(Open::of(self).set.get(), reader);
      };
    }
    return v;
  }();
  return detail::component<T>("limbeck.dataset/1", name, doc, &vtable);
}

// Whether somebody reads the entry, so that it is worth decoding.
inline bool is_wanted(const lb_source& source, const std::string& name) {
  if (source.wanted == nullptr) {
    return true;
  }
  for (const char* const* wanted = source.wanted; *wanted != nullptr; ++wanted) {
    if (name == *wanted) {
      return true;
    }
  }
  return false;
}

}  // namespace v1
}  // namespace lb
