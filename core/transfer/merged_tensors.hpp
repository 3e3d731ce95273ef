// SPDX-License-Identifier: Apache-2.0
// Weights with their low-rank adapters in them, made while they are read.
#pragma once

#include <memory>
#include <string>

#include "core/base/export.hpp"
#include "core/transfer/tensor_files.hpp"
#include "core/weights/adapters.hpp"

namespace limbeck {

// The tensors of `base`, by its names and in its types; of a layer that has an adapter
// W + scale B A, in double precision and rounded once.
class LIMBECK_API MergedTensors : public TensorFiles {
 public:
  // `adapters` has "<prefix><layer>.lora_A.weight" and ".lora_B.weight"; it must outlive this
  // object. Throws Error(kData) if an adapted layer has no weight in the base, or one of another
  // shape.
  MergedTensors(std::unique_ptr<TensorFiles> base,
                const TensorFiles& adapters,
                std::string prefix,
                AdapterConfig config);

  // A and B of the tensor in hand stay in memory.
  void read(const std::string& name, uint64_t first, uint64_t bytes, std::byte* out) const override;

 private:
  struct Factors {
    std::string name;  // of the weight
    uint64_t width = 0;
    uint64_t rank = 0;
    std::vector<double> a;  // scaled
    std::vector<double> b;
  };
  void load(const std::string& name, const std::string& layer) const;

  std::unique_ptr<TensorFiles> base_;
  const TensorFiles& adapters_;
  std::string prefix_;
  AdapterConfig config_;
  std::map<std::string, std::string> layers_;  // name of a weight -> its layer
  mutable Factors factors_;
};

}  // namespace limbeck
