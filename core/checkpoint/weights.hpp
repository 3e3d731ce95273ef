// SPDX-License-Identifier: Apache-2.0
// The weights of one network in the layout that Diffusers reads and writes: a folder with
// config.json and one safetensors file, or several and an index.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "core/checkpoint/safetensors.hpp"

namespace limbeck {

// Named tensors spread over one or more files, all opened and checked. [any]
class WeightSource {
 public:
  // `path`, `part`: see find_weight_files(). Throws what that and place_tensors() throw, and
  // everything that SafetensorsFile refuses.
  explicit WeightSource(const std::filesystem::path& path, const std::string& part = "transformer");

  // Where the files are: the place of config.json.
  const std::filesystem::path& folder() const { return folder_; }
  std::vector<std::filesystem::path> files() const;
  std::vector<std::string> names() const;  // sorted
  bool has(const std::string& name) const { return places_.count(name) > 0; }
  // Both throw Error(kData) for an unknown name. See SafetensorsFile::tensor().
  const TensorInfo& info(const std::string& name) const;
  at::Tensor tensor(const std::string& name) const;

 private:
  const SafetensorsFile& file_of(const std::string& name) const;

  std::filesystem::path folder_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, size_t> places_;  // name -> index into files_
};

// Whether numbers of `from` may become numbers of `to`: floating types of any width become one
// another, rounded once; every other type stays what it is. An integer is never a weight.
bool converts(at::ScalarType from, at::ScalarType to);

// What does not fit between the weights that a network wants and those it is offered. Everything
// is collected, so that a person sees all of it at once.
class WeightReport {
 public:
  void add_missing(const std::string& name) { missing_.push_back(name); }
  void add_unexpected(const std::string& name) { unexpected_.push_back(name); }
  void add_misshapen(const std::string& name, at::IntArrayRef got, at::IntArrayRef expected);
  // `got` is what a file calls the type.
  void add_mistyped(const std::string& name, const std::string& got, at::ScalarType expected);

  bool is_clean() const {
    return missing_.empty() && unexpected_.empty() && misshapen_.empty() && mistyped_.empty();
  }
  // Throws Error(kData) with the number of each and the first ten names, unless is_clean().
  // `where` names the source: a path.
  void throw_unless_clean(const std::string& where) const;

 private:
  std::vector<std::string> missing_;
  std::vector<std::string> unexpected_;
  std::vector<std::string> misshapen_;  // "name: shape [2, 3], expected [2, 4]"
  std::vector<std::string> mistyped_;   // "name: type I64, expected Float"
};

// Decimal gigabytes, as published models use.
inline constexpr uint64_t kShardLimit = 5'000'000'000;

// Writes `folder`: config.json with `config`, and diffusion_pytorch_model.safetensors, or shards
// diffusion_pytorch_model-00001-of-0000N.safetensors with their index when the tensors need more
// than `shard_limit` bytes. Tensors go to shards in the given order; one that is larger than the
// limit gets a shard of its own. All files are written in a folder inside, then renamed into
// place, weights first; weights files and indices of such names that were there before and are
// not part of the new set are removed last, so that no reader takes old weights for new ones.
// Throws Error(kData); when writing fails, what was there is untouched.
void write_weights(const std::filesystem::path& folder,
                   const std::string& config,
                   const NamedTensors& tensors,
                   uint64_t shard_limit = kShardLimit);

// Reads `folder` again and compares names, dtypes, shapes and every bit. Throws Error(kData) that
// names the first difference.
void verify_weights(const std::filesystem::path& folder, const NamedTensors& tensors);

}  // namespace limbeck
