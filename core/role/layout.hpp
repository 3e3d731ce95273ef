// SPDX-License-Identifier: Apache-2.0
// What a network declared: its parts, units and parameters, and where each parameter lies in the
// role's flat buffers. Pure bookkeeping: nothing is allocated here.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/ATen.h>

#include <limbeck/abi.h>

#include "core/dist/mesh.hpp"

namespace limbeck {

// Which flat buffer a parameter lies in.
enum class Store {
  kTrained,     // master weights: fp32, or fp64; also of a role that averages a trained one
  kFrozen,      // in the role's dtype
  kFrozenWide,  // fp32 in a 16-bit role, because the network asks for it
  kBuffer,      // state that is no weight: a tensor of its own, whole on every rank
};

struct ParamLayout {
  std::string name;  // within the unit: "attn.to_q.weight"
  std::string key;   // in checkpoints: unit name, dot, name; without part
  std::vector<int64_t> shape;
  int64_t numel = 0;
  uint32_t flags = 0;  // LB_PARAM_*
  lb_dtype dtype = LB_F32;
  std::string init;
  Store store = Store::kFrozen;
  bool is_decayed = false;  // kTrained: weight decay applies
  bool is_adapter = false;  // the host's own: the network knows nothing of it
  size_t part = 0;
  lb_unit unit = 0;
  int64_t offset = 0;  // in elements, in the gathered buffer of its store
};

// A low-rank adapter of a linear layer; parameters by their number in the unit.
struct AdapterLayout {
  std::string layer;  // key of the weight, less ".weight"
  size_t weight = 0;
  size_t a = 0;  // [rank, in]
  size_t b = 0;  // [out, rank]
  double scale = 1;
};

struct UnitLayout {
  std::string name;  // "" for the root of a part
  size_t part = 0;
  // Indices into RoleLayout::params: those that the network declared, in its order, then adapters.
  std::vector<size_t> params;
  size_t declared = 0;  // how many of params the network declared
  std::vector<AdapterLayout> adapters;
};

struct PartLayout {
  std::string name;  // "" for the first part; else its directory
  lb_unit root = 0;
};

// A stretch of the trained buffer that belongs to one part and is decayed or not as a whole:
// what one optimizer call works on.
struct TrainedRange {
  size_t part = 0;
  bool is_decayed = false;
  int64_t offset = 0;  // in elements
  int64_t size = 0;
};

struct RoleLayout {
  std::vector<PartLayout> parts;
  std::vector<UnitLayout> units;
  std::vector<ParamLayout> params;    // in declaration order
  std::vector<TrainedRange> trained;  // in order of offset, without gaps
  int64_t trained_size = 0;           // elements, padding included
  int64_t frozen_size = 0;
  int64_t frozen_wide_size = 0;

  int64_t parameter_count() const;  // without buffers and padding
  bool has_adapters() const;
  const ParamLayout* find(std::string_view key) const;
};

struct LayoutOptions {
  bool is_trained = false;       // or moves with a trained role
  bool decays_flagged = true;    // LB_PARAM_NO_DECAY is ignored
  bool is_16_bit = false;        // the role's dtype
  bool trains_adapters = false;  // and nothing else
  Mesh mesh;
};

// Places every declared parameter. Offsets are multiples of 64 bytes at fp32, and each range is a
// multiple of that for every shard, so that all ranks hold equal, aligned parts. Throws
// Error(kPlugin) for duplicate keys.
void place_params(RoleLayout& layout, const LayoutOptions& options);

}  // namespace limbeck
