// SPDX-License-Identifier: Apache-2.0
// Tensors and batches without libtorch: enough for a data set to hand over a sample, so that
// `limbeck inspect` can show one in milliseconds. They hold bytes and compute nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include <limbeck/abi.h>

namespace limbeck::host {

// A CPU tensor, contiguous.
struct PlainTensor {
  lb_dtype dtype = LB_F32;
  std::vector<int64_t> sizes;
  std::vector<std::byte> bytes;

  // The values as floats, rounded where they must be. Throws Error(kData) for a type that holds no
  // numbers of this kind.
  std::vector<float> floats() const;
};

// The entries of one sample, or of the facts of a data set.
class PlainBatch {
 public:
  using Entry = std::variant<PlainTensor, double, std::vector<std::string>>;

  std::map<std::string, Entry> entries;

  // The same object as the ABI sees it.
  lb_batch* handle() { return reinterpret_cast<lb_batch*>(this); }

  const PlainTensor* tensor(const std::string& name) const;
  const std::vector<std::string>* texts(const std::string& name) const;
};

// Bytes of one number; 0 for an unknown type.
size_t width_of(lb_dtype dtype);
const char* name_of(lb_dtype dtype);  // "f32"

// Makes "limbeck.tensor/1", "limbeck.batch/1" and "limbeck.dispatch/1" available to plugins, the
// last one without a single operator. Once per process, before libtorch's are. [control]
void provide_plain_services();

}  // namespace limbeck::host
