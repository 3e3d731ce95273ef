// SPDX-License-Identifier: Apache-2.0
#include "core/checkpoint/state.hpp"

#include <array>
#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/checkpoint/folders.hpp"

namespace limbeck {
namespace {

struct TypeName {
  at::ScalarType type;
  const char* name;
};
constexpr std::array kTypes = {TypeName{at::kFloat, "float32"},
                               TypeName{at::kDouble, "float64"},
                               TypeName{at::kHalf, "float16"},
                               TypeName{at::kBFloat16, "bfloat16"},
                               TypeName{at::kLong, "int64"},
                               TypeName{at::kInt, "int32"},
                               TypeName{at::kShort, "int16"},
                               TypeName{at::kChar, "int8"},
                               TypeName{at::kByte, "uint8"},
                               TypeName{at::kBool, "bool"},
                               TypeName{at::kFloat8_e4m3fn, "float8_e4m3fn"},
                               TypeName{at::kFloat8_e5m2, "float8_e5m2"}};

const DcpType& dcp_type_of(at::ScalarType type) {
  for (const auto& known : kTypes) {
    if (known.type == type) {
      const auto* found = find_dcp_type(known.name);
      if (found != nullptr) {
        return *found;
      }
    }
  }
  throw Error(Fault::kInternal, cat("tensors of type ", c10::toString(type), " cannot be saved"));
}

at::ScalarType scalar_type_of(const DcpType& type) {
  for (const auto& known : kTypes) {
    if (std::string_view(known.name) == type.name) {
      return known.type;
    }
  }
  return at::ScalarType::Undefined;
}

std::byte* bytes_of(const at::Tensor& tensor) { return static_cast<std::byte*>(tensor.data_ptr()); }

}  // namespace

at::Tensor host_copy(const at::Tensor& live) {
  const at::NoGradGuard no_grad;
  auto copy = at::empty(live.sizes(), live.options().device(at::kCPU).requires_grad(false));
  copy.copy_(live);
  return copy;
}

uint64_t hash_of(const at::Tensor& tensor) {
  const auto host = tensor.detach().to(at::kCPU).contiguous();
  return XXH3_64bits(host.data_ptr(), host.nbytes());
}

void SnapshotWriter::claim(const std::string& name) {
  if (!names_.insert(name).second) {
    throw Error(Fault::kInternal, cat("the state of the run has '", name, "' twice"));
  }
}

void SnapshotWriter::tensor(const std::string& name, const at::Tensor& host) {
  claim(name);
  if (!host.device().is_cpu() || !host.is_contiguous()) {
    throw Error(Fault::kInternal, cat("'", name, "' is not a row-major tensor in host memory"));
  }
  SavedTensor saved;
  saved.name = name;
  saved.type = &dcp_type_of(host.scalar_type());
  saved.sizes = host.sizes().vec();
  saved.box = {std::vector<int64_t>(saved.sizes.size(), 0), saved.sizes};
  // The data lives as long as the tensor that the pointer owns.
  saved.data = {std::make_shared<at::Tensor>(host), bytes_of(host)};
  snapshot_.tensors.push_back(std::move(saved));
}

void SnapshotWriter::value(const std::string& name, DcpValue value) {
  claim(name);
  snapshot_.values.emplace_back(name, std::move(value));
}

SnapshotReader::SnapshotReader(const std::filesystem::path& checkpoint)
    : reader_(checkpoint / kDcpFolder) {}

std::vector<std::string> SnapshotReader::names(const std::string& prefix) const {
  std::vector<std::string> found;
  const auto add = [&](const auto& map) {
    for (auto entry = map.lower_bound(prefix);
         entry != map.end() && entry->first.starts_with(prefix); ++entry) {
      found.push_back(entry->first);
    }
  };
  add(reader_.index().tensors);
  add(reader_.index().values);
  std::sort(found.begin(), found.end());
  return found;
}

void SnapshotReader::want(const std::string& name, const at::Tensor& live) {
  seen_.insert(name);
  wanted_.emplace(name, live);
}

at::Tensor SnapshotReader::tensor(const std::string& name) {
  const auto found = reader_.index().tensors.find(name);
  if (found == reader_.index().tensors.end()) {
    throw Error(Fault::kData, cat("the checkpoint has no tensor '", name, "'"));
  }
  const auto type = scalar_type_of(*found->second.type);
  if (type == at::ScalarType::Undefined) {
    throw Error(Fault::kData, cat("'", name, "' has the type ", found->second.type->name,
                                  ", which limbeck does not read"));
  }
  seen_.insert(name);
  auto tensor = at::empty(found->second.sizes, type);
  reader_.read(name, bytes_of(tensor));
  return tensor;
}

DcpValue SnapshotReader::value(const std::string& name) {
  if (!is_value(name)) {
    throw Error(Fault::kData, cat("the checkpoint has no value '", name, "'"));
  }
  seen_.insert(name);
  return reader_.value(name);
}

int64_t SnapshotReader::integer(const std::string& name) {
  const auto read = value(name);
  const auto* number = std::get_if<int64_t>(&read.value);
  if (number == nullptr) {
    throw Error(Fault::kData, cat("'", name, "' of the checkpoint is no integer"));
  }
  return *number;
}

void SnapshotReader::leave(const std::string& prefix) {
  for (auto& name : names(prefix)) {
    seen_.insert(std::move(name));
  }
}

void SnapshotReader::finish() {
  const auto& index = reader_.index();
  WeightReport report;
  for (const auto& [name, live] : wanted_) {
    const auto found = index.tensors.find(name);
    if (found == index.tensors.end()) {
      report.add_missing(name);
      continue;
    }
    if (live.sizes() != at::IntArrayRef(found->second.sizes)) {
      report.add_misshapen(name, found->second.sizes, live.sizes());
    }
    if (scalar_type_of(*found->second.type) != live.scalar_type()) {
      report.add_mistyped(name, found->second.type->name, live.scalar_type());
    }
  }
  for (const auto& name : names("")) {
    if (seen_.count(name) == 0) {
      report.add_unexpected(name);
    }
  }
  report.throw_unless_clean(reader_.folder().parent_path().string());
  for (const auto& [name, live] : wanted_) {
    read(name, live);
  }
}

void SnapshotReader::read(const std::string& name, const at::Tensor& live) const {
  const at::NoGradGuard no_grad;
  if (live.device().is_cpu() && live.is_contiguous()) {
    reader_.read(name, bytes_of(live));
    return;
  }
  auto host = at::empty(live.sizes(), live.options().device(at::kCPU));
  reader_.read(name, bytes_of(host));
  live.copy_(host);
}

}  // namespace limbeck
