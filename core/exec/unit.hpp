// SPDX-License-Identifier: Apache-2.0
// One call of one unit's body.
#pragma once

#include <span>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include <limbeck/abi.h>

#include "core/manifest/manifest.hpp"
#include "core/ops/linear.hpp"
#include "core/role/layout.hpp"

namespace limbeck {

// A unit of a role, for its calls: which of its parameters are hidden from the body because it
// reaches them through linear() only, where gradients of linear layers go, by parameter (null:
// nowhere but autograd), and whether its layers have their adapters on. What it points to outlives
// every graph of the role.
struct UnitPlace {
  const UnitLayout* layout = nullptr;
  const std::vector<bool>* is_hidden = nullptr;
  const std::vector<GradSlot*>* slots = nullptr;
  bool uses_adapters = false;
};

// A plugin's body. Released when the last graph that may run it again is gone.
class Body {
 public:
  explicit Body(const lb_body& table) : table_(table) {}
  ~Body() {
    if (table_.release != nullptr) {
      table_.release(table_.self);
    }
  }
  Body(const Body&) = delete;
  Body& operator=(const Body&) = delete;

  // Runs it in the current grad mode on lent inputs and fills `out` with handles that the caller
  // owns. `params` are the unit's, in compute dtype. `is_again` when backward repeats it. Throws
  // Error naming the unit, also when the body changed an input in place. [compute]
  void run(const UnitPlace& place,
           at::ArrayRef<lb_tensor*> in,
           at::TensorList params,
           std::span<lb_tensor*> out,
           bool is_again) const;

 private:
  lb_body table_;
};

// Runs a unit under a policy; `body` is taken over. `params` are inputs of the graph, like `in`.
// Inputs are lent, outputs are the caller's. [compute]
void run_unit(const UnitPlace& place,
              const lb_body& body,
              Recompute policy,
              at::ArrayRef<lb_tensor*> in,
              at::TensorList params,
              std::span<lb_tensor*> out);

}  // namespace limbeck
