// SPDX-License-Identifier: Apache-2.0
#include "core/train/memory_state.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <utility>

#include "core/base/text.hpp"
#include "core/tensor/guard.hpp"
#include "core/tensor/handle.hpp"

namespace limbeck {
namespace {

MemoryState& of(const lb_writer* writer) { return *static_cast<MemoryState*>(writer->ctx); }
const MemoryState& of(const lb_reader* reader) {
  return *static_cast<const MemoryState*>(reader->ctx);
}

bool is_state_name(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
  });
}

template <class T>
const T& member(const lb_reader* reader, const char* name) {
  const T* value = of(reader).find<T>(name);
  if (value == nullptr) {
    throw Error(Fault::kData, cat("the state has no '", name == nullptr ? "" : name,
                                  "' of the kind that is read"));
  }
  return *value;
}

// As guarded(), with the code that a component may expect for a name that is not there.
template <class Work>
lb_status* read(Work&& work) {
  lb_status* status = guarded(std::forward<Work>(work));
  if (status != nullptr && status->code == LB_DATA_LOSS) {
    status->code = LB_NOT_FOUND;
  }
  return status;
}

// Bit by bit: a NaN equals itself, 0 is not -0.
bool is_equal(double a, double b) {
  return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
}

bool is_equal(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) {
    return false;
  }
  const auto x = a.detach().cpu().contiguous();
  const auto y = b.detach().cpu().contiguous();
  // A tensor of no elements has no address.
  return x.nbytes() == 0 || std::memcmp(x.data_ptr(), y.data_ptr(), x.nbytes()) == 0;
}

bool is_equal(const lb_batch& a, const lb_batch& b);

struct EqualEntry {
  const BatchEntry& other;

  bool operator()(const at::Tensor& value) const {
    return is_equal(value, std::get<at::Tensor>(other));
  }
  bool operator()(double value) const { return is_equal(value, std::get<double>(other)); }
  bool operator()(const TextRows& value) const { return value == std::get<TextRows>(other); }
  bool operator()(const std::shared_ptr<const lb_batch>& value) const {
    return is_equal(*value, *std::get<std::shared_ptr<const lb_batch>>(other));
  }
};

bool is_equal(const lb_batch& a, const lb_batch& b) {
  return a.entries.size() == b.entries.size() &&
         std::all_of(a.entries.begin(), a.entries.end(), [&](const auto& entry) {
           const auto found = b.entries.find(entry.first);
           return found != b.entries.end() && found->second.index() == entry.second.index() &&
                  std::visit(EqualEntry{found->second}, entry.second);
         });
}

struct EqualValue {
  const MemoryState::Value& other;

  bool operator()(int64_t value) const { return value == std::get<int64_t>(other); }
  bool operator()(double value) const { return is_equal(value, std::get<double>(other)); }
  bool operator()(const std::string& value) const { return value == std::get<std::string>(other); }
  bool operator()(const at::Tensor& value) const {
    return is_equal(value, std::get<at::Tensor>(other));
  }
  bool operator()(const MemoryState::Batch& value) const {
    return is_equal(value.entries, std::get<MemoryState::Batch>(other).entries);
  }
};

}  // namespace

MemoryState::MemoryState() {
  writer_.struct_size = sizeof(writer_);
  writer_.ctx = this;
  writer_.tensor = [](lb_writer* w, const char* name, const lb_tensor* lent, lb_spread) {
    return guarded([&] { of(w).put(name, tensor_of(lent).detach().clone()); });
  };
  writer_.integer = [](lb_writer* w, const char* name, int64_t value) {
    return guarded([&] { of(w).put(name, value); });
  };
  writer_.number = [](lb_writer* w, const char* name, double value) {
    return guarded([&] { of(w).put(name, value); });
  };
  writer_.bytes = [](lb_writer* w, const char* name, const void* data, uint64_t size, lb_spread) {
    return guarded([&] { of(w).put(name, std::string(static_cast<const char*>(data), size)); });
  };
  writer_.batch = [](lb_writer* w, const char* name, const lb_batch* lent, lb_spread) {
    return guarded([&] { of(w).put(name, Batch{*lent}); });
  };

  reader_.struct_size = sizeof(reader_);
  reader_.ctx = this;
  reader_.tensor = [](const lb_reader* r, const char* name, lb_tensor** out) {
    return read([&] { *out = give(member<at::Tensor>(r, name).clone()); });
  };
  reader_.integer = [](const lb_reader* r, const char* name, int64_t* out) {
    return read([&] { *out = member<int64_t>(r, name); });
  };
  reader_.number = [](const lb_reader* r, const char* name, double* out) {
    return read([&] { *out = member<double>(r, name); });
  };
  reader_.bytes = [](const lb_reader* r, const char* name, const void** data, uint64_t* size) {
    return read([&] {
      const auto& bytes = member<std::string>(r, name);
      *data = bytes.data();
      *size = bytes.size();
    });
  };
  reader_.batch = [](const lb_reader* r, const char* name, lb_batch** out) {
    return read([&] { *out = new lb_batch(member<Batch>(r, name).entries); });
  };
}

const lb_reader* MemoryState::reader(uint32_t version) {
  reader_.state_version = version;
  return &reader_;
}

std::string MemoryState::difference(const MemoryState& other) const {
  for (const auto& [name, value] : values_) {
    const auto found = other.values_.find(name);
    if (found == other.values_.end() || found->second.index() != value.index() ||
        !std::visit(EqualValue{found->second}, value)) {
      return name;
    }
  }
  for (const auto& [name, value] : other.values_) {
    if (values_.count(name) == 0) {
      return name;
    }
  }
  return "";
}

std::vector<std::string> MemoryState::unread() const {
  std::vector<std::string> names;
  for (const auto& [name, value] : values_) {
    if (read_.count(name) == 0) {
      names.push_back(name);
    }
  }
  return names;
}

void MemoryState::put(const char* name, Value value) {
  const std::string key = name == nullptr ? "" : name;
  if (!is_state_name(key) || !values_.emplace(key, std::move(value)).second) {
    bad_names_.push_back(key);
  }
}

}  // namespace limbeck
