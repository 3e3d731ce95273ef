// SPDX-License-Identifier: Apache-2.0
#include "core/train/component_state.hpp"

#include <memory>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/text.hpp"

namespace limbeck {
namespace {

// A batch is a list of [name, kind, content]: kind "tensor" with the number n of "<name>/<n>",
// "number", "text" with its rows, or "batch" with such a list.
class BatchWriter {
 public:
  BatchWriter(SnapshotWriter& writer, std::string name) : writer_(writer), name_(std::move(name)) {}

  DcpValue list(const lb_batch& batch) {
    DcpValue::List entries;
    for (const auto& [name, entry] : batch.entries) {
      entries.push_back(
          std::visit([&, &key = name](const auto& value) { return of(key, value); }, entry));
    }
    return {std::move(entries)};
  }

 private:
  static DcpValue entry(const std::string& name, const char* kind, DcpValue content) {
    return {DcpValue::List{{name}, {std::string(kind)}, std::move(content)}};
  }

  DcpValue of(const std::string& name, const at::Tensor& value) {
    const int64_t number = count_++;
    writer_.tensor(cat(name_, "/", number), host_copy(value));
    return entry(name, "tensor", {number});
  }
  DcpValue of(const std::string& name, double value) { return entry(name, "number", {value}); }
  DcpValue of(const std::string& name, const TextRows& rows) {
    DcpValue::List list;
    for (const auto& row : rows) {
      list.push_back({row});
    }
    return entry(name, "text", {std::move(list)});
  }
  DcpValue of(const std::string& name, const std::shared_ptr<const lb_batch>& value) {
    return entry(name, "batch", list(*value));
  }

  SnapshotWriter& writer_;
  std::string name_;
  int64_t count_ = 0;
};

class BatchReader {
 public:
  BatchReader(SnapshotReader& reader, std::string name) : reader_(reader), name_(std::move(name)) {}

  lb_batch batch(const DcpValue& saved) const {
    lb_batch result;
    for (const auto& item : get<DcpValue::List>(saved)) {
      const auto& parts = get<DcpValue::List>(item);
      if (parts.size() != 3) {
        fail();
      }
      result.put(get<std::string>(parts[0]), entry(get<std::string>(parts[1]), parts[2]));
    }
    return result;
  }

 private:
  [[noreturn]] void fail() const {
    throw Error(Fault::kData, cat("'", name_, "' of the checkpoint is not a batch"));
  }

  template <class T>
  const T& get(const DcpValue& saved) const {
    const auto* value = std::get_if<T>(&saved.value);
    if (value == nullptr) {
      fail();
    }
    return *value;
  }

  BatchEntry entry(const std::string& kind, const DcpValue& content) const {
    if (kind == "tensor") {
      return reader_.tensor(cat(name_, "/", get<int64_t>(content)));
    }
    if (kind == "number") {
      return get<double>(content);
    }
    if (kind == "text") {
      TextRows rows;
      for (const auto& row : get<DcpValue::List>(content)) {
        rows.push_back(get<std::string>(row));
      }
      return rows;
    }
    if (kind == "batch") {
      return std::make_shared<const lb_batch>(batch(content));
    }
    fail();
  }

  SnapshotReader& reader_;
  std::string name_;
};

// Text as a tensor of bytes, which any reader of checkpoints understands.
at::Tensor bytes_tensor(const std::string& text) {
  auto tensor = at::empty({static_cast<int64_t>(text.size())}, at::kByte);
  std::copy(text.begin(), text.end(), tensor.data_ptr<uint8_t>());
  return tensor;
}

// Marks the tensors that are bytes.
constexpr const char* kBytes = "/bytes";

struct PutValue {
  SnapshotWriter& writer;
  const std::string& name;

  void operator()(int64_t value) const { writer.value(name, {value}); }
  void operator()(double value) const { writer.value(name, {value}); }
  void operator()(const std::string& value) const {
    writer.tensor(name + kBytes, bytes_tensor(value));
  }
  void operator()(const at::Tensor& value) const { writer.tensor(name, host_copy(value)); }
  void operator()(const MemoryState::Batch& value) const {
    writer.value(name, BatchWriter(writer, name).list(value.entries));
  }
};

MemoryState::Value value_of(SnapshotReader& reader, const std::string& name) {
  const auto saved = reader.value(name);
  if (const auto* integer = std::get_if<int64_t>(&saved.value)) {
    return *integer;
  }
  if (const auto* number = std::get_if<double>(&saved.value)) {
    return *number;
  }
  return MemoryState::Batch{BatchReader(reader, name).batch(saved)};
}

}  // namespace

void put_state(SnapshotWriter& writer, const std::string& prefix, const MemoryState& state) {
  for (const auto& [name, value] : state.values()) {
    std::visit(PutValue{writer, prefix + name}, value);
  }
}

void get_state(SnapshotReader& reader, const std::string& prefix, MemoryState& state) {
  for (const auto& name : reader.names(prefix)) {
    const std::string own = name.substr(prefix.size());
    const auto slash = own.find('/');
    if (slash == std::string::npos) {
      state.put(own.c_str(), reader.is_value(name) ? value_of(reader, name)
                                                   : MemoryState::Value(reader.tensor(name)));
    } else if (own.substr(slash) == kBytes) {
      const auto bytes = reader.tensor(name);
      state.put(own.substr(0, slash).c_str(),
                std::string(static_cast<const char*>(bytes.data_ptr()), bytes.nbytes()));
    }  // else a tensor of a batch, which reads it
  }
}

}  // namespace limbeck
