// SPDX-License-Identifier: Apache-2.0
// A network of one unit whose body does nothing but hand an input on: what is left is the boundary.
#include <memory>

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <limbeck/abi.h>
#include <limbeck/network.hpp>
#include <limbeck/plugin.hpp>

#include "bench.hpp"
#include "core/exec/forward.hpp"
#include "core/plugin/host_table.hpp"
#include "core/role/role.hpp"
#include "core/tensor/batch.hpp"
#include "core/tensor/handle.hpp"
#include "core/tensor/tensor_api.hpp"

namespace limbeck::bench {
namespace {

constexpr int64_t kCalls = 1000;
int64_t bodies_run = 0;

lb_status* hand_on(void* /*self*/, const lb_unit_call* call) {
  ++bodies_run;
  call->out[0] = give(tensor_of(call->in[0]));
  return nullptr;
}

// As a C plugin: kCalls calls of a unit with four inputs and one output.
lb_status* forward_in_c(void* /*self*/, const lb_units* units, const lb_batch* in, lb_batch* out) {
  const auto& x = in->tensor("x");
  lb_tensor* inputs[] = {lend(x), lend(x), lend(x), lend(x)};
  const lb_body body = {hand_on, nullptr, nullptr};
  for (int64_t i = 0; i < kCalls; ++i) {
    lb_tensor* y = nullptr;
    if (auto* status = units->run(units, LB_ROOT, &body, inputs, 4, &y, 1)) {
      return status;
    }
    discard(y);
  }
  out->put("y", x);
  return nullptr;
}

// With the C++ SDK.
lb_status* forward_in_cpp(void* /*self*/, const lb_units* raw, const lb_batch* in, lb_batch* out) {
  return lb::guard("forward", nullptr, [&] {
    const lb::Units units(raw);
    const auto x = lb::Tensor::share(lend(in->tensor("x")));
    for (int64_t i = 0; i < kCalls; ++i) {
      units.run(LB_ROOT, {x, x, x, x}, [](const lb::Call& call) {
        ++bodies_run;
        return call.in(0);
      });
    }
    out->put("y", in->tensor("x"));
  });
}

lb_status* create(lb_state*, const lb_config*, lb_builder* builder, void** out) {
  const int64_t shape[] = {4, 4};
  for (const char* name : {"a", "b", "c", "d", "e", "f", "g", "h"}) {
    const lb_param_spec spec = {sizeof(lb_param_spec), LB_F32, name, shape, 2, 0, "zeros"};
    lb_param param = 0;
    if (auto* status = builder->param(builder, LB_ROOT, &spec, &param)) {
      return status;
    }
  }
  *out = new int(0);
  return nullptr;
}
void destroy(void* self) { delete static_cast<int*>(self); }

template <auto forward>
Row unit_row(const char* name) {
  static const lb_model_vtable vtable = {
      sizeof(lb_model_vtable), 0, create, destroy, nullptr, forward, nullptr};
  static const lb_component table = {sizeof(lb_component),
                                     0,
                                     "limbeck.model/1",
                                     "boundary",
                                     "Hands an input on.",
                                     {sizeof(lb_option), 0, nullptr},
                                     nullptr,
                                     &vtable,
                                     nullptr};
  static const Library library = {};
  static const Component component = {&table, &library};
  RoleSpec spec;
  spec.name = "net";
  spec.model.key = "models.net";
  spec.model.component = &component;
  spec.model.config = std::make_shared<lb_config>();
  spec.is_trained = true;
  spec.optimizer.learning_rate = 0.1;
  Role role(spec, Mesh());
  role.allocate();
  lb_batch in;
  in.put("x", at::ones({2, 2}));
  const auto run = [&] {
    lb_batch out;
    run_forward(role, 0, in, out);
  };
  bodies_run = 0;
  run();
  require(bodies_run == kCalls, name);

  // The same work without the boundary: the body, called directly.
  const auto& x = in.tensor("x");
  lb_tensor* inputs[] = {lend(x)};
  lb_tensor* y = nullptr;
  lb_unit_call call{};
  call.in = inputs;
  call.n_in = 1;
  call.out = &y;
  call.n_out = 1;
  const double direct = best_seconds([&] {
    for (int64_t i = 0; i < kCalls; ++i) {
      hand_on(nullptr, &call);
      discard(y);
    }
  });
  const double seconds = best_seconds(run) - direct;
  return {name, "4 in, 8 params, 1 out", seconds / static_cast<double>(kCalls), 0, 0, ""};
}

// An operator through lb::Tensor, less the same operator called directly.
Row operator_row() {
  lb::bind(&host_table());
  const auto a = at::ones({8});
  const auto b = lb::Tensor::share(lend(a));
  const at::NoGradGuard no_grad;
  const double direct = best_seconds([&] {
    for (int64_t i = 0; i < kCalls; ++i) {
      at::add(a, a);
    }
  });
  const double through = best_seconds([&] {
    for (int64_t i = 0; i < kCalls; ++i) {
      b + b;
    }
  });
  require(at::equal(tensor_of((b + b).raw()), a + a), "add");
  return {"lb::Tensor operator, extra cost",
          "8 elements",
          (through - direct) / static_cast<double>(kCalls),
          0,
          0,
          ""};
}

}  // namespace

std::vector<Row> boundary() {
  provide("limbeck.tensor/1", &tensor_api());
  provide("limbeck.dispatch/1", &dispatch_api());
  provide("limbeck.batch/1", &batch_api());
  return {operator_row(), unit_row<forward_in_c>("unit call, C"),
          unit_row<forward_in_cpp>("unit call, C++ SDK")};
}

}  // namespace limbeck::bench
