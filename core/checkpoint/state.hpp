// SPDX-License-Identifier: Apache-2.0
// Between tensors of a run and the names of a checkpoint. Nothing of a checkpoint goes unread
// without a word: who reads one says for every name that it is wanted or left aside.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "core/checkpoint/weights.hpp"
#include "core/checkpoint/write.hpp"
#include "core/dcp/reader.hpp"

namespace limbeck {

// A row-major copy in host memory that shares nothing with `live`.
at::Tensor host_copy(const at::Tensor& live);

// XXH3, 64 bits, of the tensor's bytes in row-major order.
uint64_t hash_of(const at::Tensor& tensor);

class SnapshotWriter {
 public:
  // Keeps `host`, which is row-major, in host memory, and not changed any more. Throws
  // Error(kInternal) for a name that was there before, here and in value().
  void tensor(const std::string& name, const at::Tensor& host);
  void value(const std::string& name, DcpValue value);
  Snapshot take() { return std::move(snapshot_); }

 private:
  void claim(const std::string& name);

  Snapshot snapshot_;
  std::set<std::string> names_;
};

class SnapshotReader {
 public:
  // `checkpoint`: its folder, which was verified. Throws Error(kData).
  explicit SnapshotReader(const std::filesystem::path& checkpoint);

  bool has(const std::string& name) const { return reader_.index().has(name); }
  // The names that begin with `prefix`, sorted.
  std::vector<std::string> names(const std::string& prefix) const;

  // finish() will fill `live`, which is row-major: shape and dtype must be those that were saved.
  void want(const std::string& name, const at::Tensor& live);
  // Both read at once. Throw Error(kData) if there is no such thing.
  at::Tensor tensor(const std::string& name);
  DcpValue value(const std::string& name);
  int64_t integer(const std::string& name);
  bool is_value(const std::string& name) const { return reader_.index().values.count(name) > 0; }
  // Names that begin so are not needed.
  void leave(const std::string& prefix);

  // Throws one Error(kData) with everything that is missing, has another shape or dtype, or was
  // neither wanted nor left aside; then no tensor was changed. Else fills what is wanted.
  void finish();

 private:
  void read(const std::string& name, const at::Tensor& live) const;

  DcpReader reader_;
  std::map<std::string, at::Tensor> wanted_;
  std::set<std::string> seen_;
};

}  // namespace limbeck
