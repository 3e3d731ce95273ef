// SPDX-License-Identifier: Apache-2.0
// A small network for tests of core, written against limbeck/abi.h alone: y = W2 gelu(W1 x + b1),
// in two units, the second through ops->linear.
#pragma once

#include <limbeck/abi.h>

#include "core/manifest/manifest.hpp"

namespace limbeck::testing {

struct ToyOptions {
  bool writes_input = false;  // the second body changes its input in place
  bool nests = false;         // the first body starts the second unit
};

// Static for the life of the process.
const Component& toy_component(const ToyOptions& options = {});

// A role of that network, named "net".
RoleSpec toy_spec(bool is_trained, const ToyOptions& options = {});

// Bodies that exist now, and bodies that ran since the last call.
int live_bodies();
int take_body_runs();

}  // namespace limbeck::testing
