// SPDX-License-Identifier: Apache-2.0
// One call of one unit's body.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include <limbeck/abi.h>

#include "core/manifest/manifest.hpp"
#include "core/ops/linear.hpp"

namespace limbeck {

// A plugin's body. Released when the last graph that may run it again is gone.
class Body {
 public:
  Body(const lb_body& table, std::string unit_name) : table_(table), unit_(std::move(unit_name)) {}
  ~Body() {
    if (table_.release != nullptr) {
      table_.release(table_.self);
    }
  }
  Body(const Body&) = delete;
  Body& operator=(const Body&) = delete;

  const std::string& unit() const { return unit_; }

  // Runs it in the current grad mode. `params` are the unit's in compute dtype; entries whose flag
  // says VIA_LINEAR are hidden from the body. `slots`, by parameter, or empty, are where linear()
  // accumulates weight gradients. `is_again` when backward repeats it. Throws Error
  // naming the unit, also when the body changed an input in place. [compute]
  std::vector<at::Tensor> run(at::TensorList in,
                              const std::vector<at::Tensor>& params,
                              const std::vector<bool>& is_hidden,
                              const std::vector<GradSlot*>& slots,
                              uint32_t n_out,
                              bool is_again) const;

 private:
  lb_body table_;
  std::string unit_;
};

// What a unit needs to run: shared by the forward and its repetition.
struct UnitWork {
  std::shared_ptr<const Body> body;
  std::vector<bool> is_hidden;   // by parameter
  std::vector<GradSlot*> slots;  // by parameter; used when the body runs once
  uint32_t n_out = 0;
};

// Runs the unit under a policy. `params` are inputs of the graph, like `in`.
std::vector<at::Tensor> run_unit(const std::shared_ptr<const UnitWork>& work,
                                 Recompute policy,
                                 const std::vector<at::Tensor>& in,
                                 const std::vector<at::Tensor>& params);

}  // namespace limbeck
