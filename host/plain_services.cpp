// SPDX-License-Identifier: Apache-2.0
#include "host/plain_services.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/plugin/host_table.hpp"
#include "core/plugin/status.hpp"

namespace limbeck::host {
namespace {

struct Dtype {
  lb_dtype dtype;
  const char* name;
  size_t width;
};
constexpr Dtype kDtypes[] = {
    {LB_F32, "f32", 4},
    {LB_F64, "f64", 8},
    {LB_F16, "f16", 2},
    {LB_BF16, "bf16", 2},
    {LB_I64, "i64", 8},
    {LB_I32, "i32", 4},
    {LB_I16, "i16", 2},
    {LB_I8, "i8", 1},
    {LB_U8, "u8", 1},
    {LB_MASK, "mask", 1},
    {LB_F8E4M3FN, "f8e4m3fn", 1},
    {LB_F8E5M2, "f8e5m2", 1},
};

const Dtype* find(lb_dtype dtype) {
  const auto* found = std::find_if(std::begin(kDtypes), std::end(kDtypes),
                                   [&](const Dtype& one) { return one.dtype == dtype; });
  return found == std::end(kDtypes) ? nullptr : found;
}

lb_status* unavailable(const char* what) noexcept {
  return make_status(LB_UNIMPLEMENTED,
                     cat(what, " needs libtorch, which `limbeck inspect` does without"));
}

// ---- tensors: a handle is a PlainTensor of its own

const PlainTensor& tensor_of(const lb_tensor* handle) {
  return *reinterpret_cast<const PlainTensor*>(handle);
}
lb_tensor* handle_of(PlainTensor tensor) {
  return reinterpret_cast<lb_tensor*>(new PlainTensor(std::move(tensor)));
}

lb_tensor* retain(const lb_tensor* tensor) noexcept { return handle_of(tensor_of(tensor)); }

void release(lb_tensor* tensor) noexcept { delete reinterpret_cast<PlainTensor*>(tensor); }

lb_status* info(const lb_tensor* handle, lb_tensor_info* out) noexcept {
  constexpr int32_t kCpu = 1;  // DLPack's
  const auto& tensor = tensor_of(handle);
  const auto size = out->struct_size;
  *out = {};
  out->struct_size = size;
  out->dtype = tensor.dtype;
  out->device_type = kCpu;
  out->ndim = static_cast<uint32_t>(tensor.sizes.size());
  out->sizes = tensor.sizes.data();
  out->data = const_cast<std::byte*>(tensor.bytes.data());
  return nullptr;
}

lb_status* create(lb_dtype dtype,
                  const int64_t* sizes,
                  uint32_t ndim,
                  const void* data,
                  lb_place,
                  lb_tensor** out) noexcept {
  return guard([&] {
    PlainTensor tensor{dtype, {sizes, sizes + ndim}, {}};
    size_t bytes = width_of(dtype);
    for (const int64_t one : tensor.sizes) {
      if (one < 0 || bytes == 0) {
        throw Error(Fault::kPlugin, "a tensor of a negative size or an unknown type");
      }
      if (__builtin_mul_overflow(bytes, static_cast<size_t>(one), &bytes)) {
        throw Error(Fault::kMemory, "a tensor is too large");
      }
    }
    tensor.bytes.resize(bytes);
    if (data != nullptr && bytes > 0) {
      std::memcpy(tensor.bytes.data(), data, bytes);
    }
    *out = handle_of(std::move(tensor));
  });
}

lb_status* read(const lb_tensor* handle, lb_dtype dtype, void* out, uint64_t bytes) noexcept {
  const auto& tensor = tensor_of(handle);
  if (dtype != tensor.dtype || bytes != tensor.bytes.size()) {
    return unavailable("converting a tensor");
  }
  if (bytes > 0) {
    std::memcpy(out, tensor.bytes.data(), tensor.bytes.size());
  }
  return nullptr;
}

int32_t set_grad_mode(int32_t) noexcept { return 0; }

const lb_tensor_api& plain_tensor_api() {
  static const lb_tensor_api table = [] {
    lb_tensor_api api{};
    api.struct_size = sizeof(api);
    api.retain = retain;
    api.release = release;
    api.info = info;
    api.create = create;
    api.read = read;
    api.apply = [](const lb_grad_fn*, lb_tensor* const*, uint32_t, lb_tensor**, uint32_t) noexcept {
      return unavailable("a differentiable function");
    };
    api.gradient = [](lb_tensor* const*, lb_tensor* const*, uint32_t, lb_tensor* const*, uint32_t,
                      int32_t, lb_tensor**) noexcept { return unavailable("a gradient"); };
    api.set_grad_mode = set_grad_mode;
    api.to_dlpack = [](const lb_tensor*, DLManagedTensorVersioned**) noexcept {
      return unavailable("DLPack");
    };
    api.from_dlpack = [](DLManagedTensorVersioned*, lb_tensor**) noexcept {
      return unavailable("DLPack");
    };
    return api;
  }();
  return table;
}

const lb_dispatch_api& plain_dispatch_api() {
  static const lb_dispatch_api table = [] {
    lb_dispatch_api api{};
    api.struct_size = sizeof(api);
    api.find = [](const char* name, const char*, const lb_op**) noexcept {
      return unavailable(name);
    };
    return api;
  }();
  return table;
}

// ---- batches

PlainBatch& batch_of(lb_batch* handle) { return *reinterpret_cast<PlainBatch*>(handle); }
const PlainBatch& batch_of(const lb_batch* handle) {
  return *reinterpret_cast<const PlainBatch*>(handle);
}

const PlainBatch::Entry* entry_of(const lb_batch* batch, const char* name) {
  const auto& entries = batch_of(batch).entries;
  const auto found = entries.find(name);
  return found == entries.end() ? nullptr : &found->second;
}

const lb_batch_api& plain_batch_api() {
  static const lb_batch_api table = [] {
    lb_batch_api api{};
    api.struct_size = sizeof(api);
    api.create = [](const lb_batch* like) noexcept {
      return (like == nullptr ? new PlainBatch : new PlainBatch(batch_of(like)))->handle();
    };
    api.destroy = [](lb_batch* batch) noexcept { delete reinterpret_cast<PlainBatch*>(batch); };
    api.get = [](const lb_batch* batch, const char* name) noexcept -> lb_tensor* {
      const auto* entry = entry_of(batch, name);
      const auto* tensor = entry == nullptr ? nullptr : std::get_if<PlainTensor>(entry);
      return reinterpret_cast<lb_tensor*>(const_cast<PlainTensor*>(tensor));
    };
    api.put = [](lb_batch* batch, const char* name, lb_tensor* taken) noexcept {
      batch_of(batch).entries.insert_or_assign(name, tensor_of(taken));
      release(taken);
    };
    api.number = [](const lb_batch* batch, const char* name, double otherwise) noexcept {
      const auto* entry = entry_of(batch, name);
      const auto* number = entry == nullptr ? nullptr : std::get_if<double>(entry);
      return number == nullptr ? otherwise : *number;
    };
    api.put_number = [](lb_batch* batch, const char* name, double value) noexcept {
      batch_of(batch).entries.insert_or_assign(name, value);
    };
    api.text = [](const lb_batch* batch, const char* name, uint32_t row) noexcept -> const char* {
      const auto* texts = batch_of(batch).texts(name);
      return texts == nullptr || row >= texts->size() ? nullptr : (*texts)[row].c_str();
    };
    api.put_text = [](lb_batch* batch, const char* name, uint32_t row, const char* text) noexcept {
      auto& entry = batch_of(batch).entries[name];
      auto* texts = std::get_if<std::vector<std::string>>(&entry);
      if (texts == nullptr) {
        texts = &entry.emplace<std::vector<std::string>>();
      }
      texts->resize(std::max<size_t>(texts->size(), size_t{row} + 1));
      (*texts)[row] = text;
    };
    api.batch = [](const lb_batch*, const char*) noexcept -> const lb_batch* { return nullptr; };
    api.put_batch = [](lb_batch*, const char*, lb_batch* taken) noexcept {
      delete reinterpret_cast<PlainBatch*>(taken);
    };
    api.remove = [](lb_batch* batch, const char* name) noexcept {
      batch_of(batch).entries.erase(name);
    };
    api.kind = [](const lb_batch* batch, const char* name) noexcept -> lb_entry {
      constexpr lb_entry kKinds[] = {LB_ENTRY_TENSOR, LB_ENTRY_NUMBER, LB_ENTRY_TEXT};
      const auto* entry = entry_of(batch, name);
      return entry == nullptr ? lb_entry{LB_ENTRY_NONE} : kKinds[entry->index()];
    };
    api.rows = [](const lb_batch* batch, const char* name) noexcept {
      const auto* texts = batch_of(batch).texts(name);
      return texts == nullptr ? 0U : static_cast<uint32_t>(texts->size());
    };
    api.size = [](const lb_batch* batch) noexcept {
      return static_cast<uint32_t>(batch_of(batch).entries.size());
    };
    api.name_at = [](const lb_batch* batch, uint32_t index) noexcept -> const char* {
      const auto& entries = batch_of(batch).entries;
      return index < entries.size() ? std::next(entries.begin(), index)->first.c_str() : nullptr;
    };
    return api;
  }();
  return table;
}

template <class T>
std::vector<float> converted(const std::vector<std::byte>& bytes) {
  std::vector<float> floats(bytes.size() / sizeof(T));
  for (size_t i = 0; i < floats.size(); ++i) {
    T value;
    std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
    floats[i] = static_cast<float>(value);
  }
  return floats;
}

}  // namespace

std::vector<float> PlainTensor::floats() const {
  switch (dtype) {
    case LB_F32:
      return converted<float>(bytes);
    case LB_F64:
      return converted<double>(bytes);
    case LB_I64:
      return converted<int64_t>(bytes);
    case LB_I32:
      return converted<int32_t>(bytes);
    case LB_U8:
    case LB_MASK:
      return converted<uint8_t>(bytes);
    default:
      throw Error(Fault::kData, cat("values of type ", host::name_of(dtype), " cannot be shown"));
  }
}

const PlainTensor* PlainBatch::tensor(const std::string& name) const {
  const auto found = entries.find(name);
  return found == entries.end() ? nullptr : std::get_if<PlainTensor>(&found->second);
}

const std::vector<std::string>* PlainBatch::texts(const std::string& name) const {
  const auto found = entries.find(name);
  return found == entries.end() ? nullptr : std::get_if<std::vector<std::string>>(&found->second);
}

size_t width_of(lb_dtype dtype) {
  const auto* found = find(dtype);
  return found == nullptr ? 0 : found->width;
}

const char* name_of(lb_dtype dtype) {
  const auto* found = find(dtype);
  return found == nullptr ? "an unknown type" : found->name;
}

void provide_plain_services() {
  provide("limbeck.tensor/1", &plain_tensor_api());
  provide("limbeck.dispatch/1", &plain_dispatch_api());
  provide("limbeck.batch/1", &plain_batch_api());
}

}  // namespace limbeck::host
