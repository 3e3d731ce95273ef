// SPDX-License-Identifier: Apache-2.0
#include "core/track/forward_work.hpp"

#include <variant>

#include <ATen/ATen.h>

namespace limbeck {

ForwardWork take_work(lb_batch& filled) {
  const auto take = [&](const char* name) {
    const auto found = filled.entries.find(name);
    if (found == filled.entries.end()) {
      return 0.0;
    }
    const auto* number = std::get_if<double>(&found->second);
    const double value = number != nullptr ? *number : 0.0;
    filled.entries.erase(found);
    return value;
  };
  ForwardWork work;
  work.flops = take("work.flops");
  work.tokens = take("work.tokens");
  work.frames = take("work.frames");
  work.pairs = take("work.pairs");
  work.dense_pairs = take("work.dense_pairs");
  return work;
}

bool has_history(const lb_batch& filled) {
  for (const auto& [name, entry] : filled.entries) {
    const auto* tensor = std::get_if<at::Tensor>(&entry);
    if (tensor != nullptr && tensor->requires_grad()) {
      return true;
    }
  }
  return false;
}

}  // namespace limbeck
