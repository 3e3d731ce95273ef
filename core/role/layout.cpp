// SPDX-License-Identifier: Apache-2.0
#include "core/role/layout.hpp"

#include <algorithm>
#include <set>

#include "core/base/error.hpp"
#include "core/base/text.hpp"

namespace limbeck {
namespace {

// 64 bytes of fp32: matrices start on cache lines.
constexpr int64_t kAlignment = 16;

int64_t round_up(int64_t size, int64_t multiple) {
  return (size + multiple - 1) / multiple * multiple;
}
int64_t aligned(int64_t offset) { return round_up(offset, kAlignment); }

Store store_of(const ParamLayout& param, const LayoutOptions& options) {
  if ((param.flags & LB_PARAM_BUFFER) != 0) {
    return Store::kBuffer;
  }
  if (options.is_trained && (param.flags & LB_PARAM_FROZEN) == 0 &&
      (param.is_adapter || !options.trains_adapters)) {
    return Store::kTrained;
  }
  const bool stays_wide = options.is_16_bit && (param.flags & LB_PARAM_KEEP_F32) != 0;
  return stays_wide ? Store::kFrozenWide : Store::kFrozen;
}

void check_keys(const RoleLayout& layout) {
  std::set<std::pair<size_t, std::string>> seen;
  for (const auto& param : layout.params) {
    if (!seen.emplace(param.part, param.key).second) {
      throw Error(Fault::kPlugin,
                  cat("the network declares the parameter '", param.key, "' twice"));
    }
  }
}

}  // namespace

int64_t RoleLayout::parameter_count() const {
  int64_t count = 0;
  for (const auto& param : params) {
    count += param.store == Store::kBuffer ? 0 : param.numel;
  }
  return count;
}

bool RoleLayout::has_adapters() const {
  return std::any_of(units.begin(), units.end(),
                     [](const auto& unit) { return !unit.adapters.empty(); });
}

const ParamLayout* RoleLayout::find(std::string_view key) const {
  const auto found = std::find_if(params.begin(), params.end(),
                                  [&](const auto& param) { return param.key == key; });
  return found == params.end() ? nullptr : &*found;
}

void place_params(RoleLayout& layout, const LayoutOptions& options) {
  check_keys(layout);
  for (auto& param : layout.params) {
    param.store = store_of(param, options);
    param.is_decayed = param.store == Store::kTrained &&
                       (options.decays_flagged || (param.flags & LB_PARAM_NO_DECAY) == 0);
  }
  // Trained parameters part by part, in each the decayed ones first, in each unit by unit: one
  // optimizer call works on one contiguous range, and a unit's parameters of a kind are adjacent.
  for (size_t part = 0; part < layout.parts.size(); ++part) {
    for (const bool is_decayed : {true, false}) {
      TrainedRange range{part, is_decayed, layout.trained_size, 0};
      for (const auto& unit : layout.units) {
        for (const size_t index : unit.params) {
          auto& param = layout.params[index];
          if (unit.part == part && param.store == Store::kTrained &&
              param.is_decayed == is_decayed) {
            param.offset = range.offset + range.size;
            range.size = aligned(range.size + param.numel);
          }
        }
      }
      range.size = round_up(range.size, kAlignment * options.mesh.shard);
      if (range.size > 0) {
        layout.trained_size = range.offset + range.size;
        layout.trained.push_back(range);
      }
    }
  }
  for (const auto& unit : layout.units) {
    for (const size_t index : unit.params) {
      auto& param = layout.params[index];
      if (param.store != Store::kFrozen && param.store != Store::kFrozenWide) {
        continue;
      }
      auto& size = param.store == Store::kFrozen ? layout.frozen_size : layout.frozen_wide_size;
      param.offset = size;
      size = aligned(size + param.numel);
    }
  }
}

}  // namespace limbeck
