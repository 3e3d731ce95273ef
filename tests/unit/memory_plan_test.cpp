// SPDX-License-Identifier: Apache-2.0
// What a plan says of a role's buffers, and how it is shown.
#include <string>

#include <ATen/ATen.h>

#include "core/optim/optimizer.hpp"
#include "core/role/role.hpp"
#include "core/train/memory_plan.hpp"
#include "core/train/rehearsal.hpp"
#include "toy_network.hpp"

#include <doctest/doctest.h>

using namespace limbeck;

namespace {

int64_t bytes(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<int64_t>(tensor.nbytes()) : 0;
}

RoleSpec averaged_spec() {
  auto spec = testing::toy_spec(true);
  spec.ema = EmaSpec{};
  return spec;
}

}  // namespace

TEST_CASE("memory plan: a trained role's buffers have the bytes that they are planned with") {
  Role role(averaged_spec(), Mesh{});
  const auto planned = memory_of(role);
  role.allocate();

  CHECK(planned.name == "net");
  CHECK(planned.parameters == role.layout().parameter_count());
  CHECK(planned.weights == bytes(role.master()));
  CHECK(planned.gradients == bytes(role.grad()));
  CHECK(planned.average == bytes(role.average()));
  CHECK(planned.optimizer == 2 * bytes(role.master()));
  CHECK(planned.bytes() == 5 * bytes(role.master()));
  CHECK(planned.weights > 0);
}

TEST_CASE("memory plan: a frozen role has weights alone, half as large in 16 bits") {
  Role wide(testing::toy_spec(false), Mesh{});
  auto spec = testing::toy_spec(false);
  spec.dtype = Precision::kBFloat16;
  Role narrow(spec, Mesh{});

  const auto planned = memory_of(wide);
  CHECK(planned.weights > 0);
  CHECK(planned.bytes() == planned.weights);
  CHECK(memory_of(narrow).weights * 2 == planned.weights);
}

TEST_CASE("memory plan: the total is the sum of all rows, and says when one is missing") {
  MemoryPlan plan;
  plan.roles = {{"a", 10, 100, 20, 30, 40}, {"b", 5, 50, 0, 0, 0}};
  plan.heap = 3;
  plan.batches = 7;
  plan.libraries = int64_t{200} << 20;
  plan.kernels = 1000;
  const int64_t known = 100 + 20 + 30 + 40 + 50 + 3 + 7 + (int64_t{200} << 20) + 1000;
  CHECK(plan.total() == known);

  plan.unknown = "an operator has no shapes";
  const auto without = to_table(plan, 0);
  CHECK(without.find("not known") != std::string::npos);
  CHECK(without.find("more than 200.0 MiB") != std::string::npos);
  CHECK(without.find("an operator has no shapes") != std::string::npos);

  plan.activations = int64_t{20} << 20;
  CHECK(plan.total() == known + (int64_t{20} << 20));
  const auto table = to_table(plan, int64_t{200} << 20);
  CHECK(table.find("measured peak (plan +10.0 %)") != std::string::npos);
  CHECK(table.find("more than") == std::string::npos);
}

// The texts are libtorch's own: another version of it may have others.
TEST_CASE("rehearsal: what cannot be done without contents is told from what is wrong") {
  const auto x = at::empty({2, 3}, at::device(at::kMeta));
  const auto text_of = [](const auto& work) -> std::string {
    try {
      work();
    } catch (const c10::Error& error) {
      return error.what_without_backtrace();
    }
    return "no error";
  };
  const std::string without_contents[] = {
      text_of([&] { (void)x.sum().item(); }),
      text_of([&] { (void)x.cpu(); }),
      text_of([&] { (void)at::nonzero(x); }),
      text_of([&] { (void)at::equal(x, x); }),
      text_of([&] { (void)std::get<0>(at::_unique(x)); }),
      text_of([&] { (void)x.const_data_ptr<float>(); }),
  };
  for (const auto& text : without_contents) {
    CHECK_MESSAGE(needs_contents(text), text);
  }
  const std::string wrong[] = {
      text_of([&] { (void)at::mm(x, x); }),
      text_of([&] { (void)x.view({7}); }),
      "no error",
      "the file's metadata has no key 'schema'",
      "role 'Meta' has no weights on the meta device",
  };
  for (const auto& text : wrong) {
    CHECK_MESSAGE(!needs_contents(text), text);
  }
}

TEST_CASE("memory plan: this process has memory, and had no less") {
  CHECK(resident_bytes() > 1 << 20);
  CHECK(peak_resident_bytes() >= resident_bytes());
}
