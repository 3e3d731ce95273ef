// SPDX-License-Identifier: Apache-2.0
// The CUDA kernels of the fused operators against the formulas in double precision on the CPU.
// Where there is no GPU every case says so and passes; ctest then reports the test as skipped.
#include <dlfcn.h>

#include <string>
#include <tuple>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>

#include "core/ops/adamw.hpp"
#include "core/ops/fused.hpp"
#include "tests/unit/fused_formulas.hpp"

#include <doctest/doctest.h>

using namespace limbeck;
using namespace limbeck::testing;

namespace {

int count_gpus() {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == nullptr) {
    return 0;
  }
  const auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"));
  const auto count = reinterpret_cast<int (*)(int*)>(dlsym(driver, "cuDeviceGetCount"));
  int found = 0;
  return init != nullptr && count != nullptr && init(0) == 0 && count(&found) == 0 ? found : 0;
}

// Opens liblimbeck_cuda.so, once. False: there is no GPU.
bool has_cuda() {
  static const bool has = [] {
    if (count_gpus() == 0) {
      return false;
    }
    const char* path = LIMBECK_BINARY_DIR "/lib/liblimbeck_cuda.so";
    const bool is_open = dlopen(path, RTLD_NOW | RTLD_GLOBAL) != nullptr;
    REQUIRE_MESSAGE(is_open, std::string(dlerror()));
    REQUIRE(at::globalContext().hasCUDA());
    return true;
  }();
  if (!has) {
    MESSAGE("skipped: no GPU");
  }
  return has;
}

// Inputs of the shape of the first have the type of values; the others are rows, fp32.
Tensors placed(const Tensors& values, at::ScalarType type, c10::Device device) {
  Tensors copies;
  for (const auto& value : values) {
    const bool is_row = value.defined() && value.sizes() != values[0].sizes();
    copies.push_back(value.defined() ? value.detach()
                                           .to(is_row ? at::kFloat : type)
                                           .to(device)
                                           .clone()
                                           .set_requires_grad(true)
                                     : at::Tensor());
  }
  return copies;
}

struct Results {
  Tensors out;
  Tensors grads;
};

Tensors on_cpu(const Tensors& tensors) {
  Tensors moved;
  for (const auto& tensor : tensors) {
    moved.push_back(tensor.defined() ? tensor.detach().cpu() : tensor);
  }
  return moved;
}

// Outputs, and the gradients for seeds that are exact in `type`.
Results run(const Formula& f, const Tensors& in, at::ScalarType type) {
  const auto out = f(in);
  Tensors seeds;
  for (size_t i = 0; i < out.size(); ++i) {
    const auto seed = wave(out[i].sizes(), 0.37 + 0.1 * static_cast<double>(i)).to(type);
    seeds.push_back(seed.to(out[i].options()));
  }
  const auto grads = torch::autograd::grad(out, defined(in), seeds, std::nullopt, false, true);
  return {on_cpu(out), on_cpu(grads)};
}

// 16-bit z and its gradient are rounded before they are used again, and errors add up in sums.
double tolerance(at::ScalarType type) {
  return type == at::kFloat ? 2e-5 : type == at::kHalf ? 1e-2 : 6e-2;
}

double difference(const Results& a, const Results& b) {
  return std::max(worst(a.out, b.out), worst(a.grads, b.grads));
}

// `wrong` differs from `formula` by a term.
void check_on_gpu(const Formula& fused,
                  const Formula& formula,
                  const Formula& wrong,
                  const Tensors& values) {
  const c10::Device gpu(c10::kCUDA, 0);
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    CAPTURE(type);
    const auto in = placed(values, type, gpu);
    const auto exact = leaves(on_cpu(in), at::kDouble);
    CHECK(fused(in)[0].grad_fn()->name().starts_with("Limbeck"));
    const auto got = run(fused, in, type);
    CHECK(difference(got, run(formula, exact, type)) < tolerance(type));
    CHECK(difference(got, run(wrong, exact, type)) > 1.5 * tolerance(type));
    // Sums have an order of their own.
    const auto again = run(fused, in, type);
    for (size_t i = 0; i < got.grads.size(); ++i) {
      CHECK((!got.grads[i].defined() || at::equal(got.grads[i], again.grads[i])));
    }
  }
}

// 16-bit results are those of single precision, rounded once.
void check_rounding(const Formula& fused, const Tensors& values) {
  const c10::Device gpu(c10::kCUDA, 0);
  const at::NoGradGuard no_grad;
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    const auto narrow = placed(values, type, gpu);
    Tensors wide;
    for (const auto& tensor : narrow) {
      wide.push_back(tensor.to(at::kFloat));
    }
    CHECK(at::equal(fused(narrow)[0], fused(wide)[0].to(type)));
  }
}

constexpr int64_t kTokens = 300;  // several parts of the sums down columns
const std::vector<int64_t> kWidths = {13, 64, 1536};

// The shapes that rows may have.
std::vector<std::vector<int64_t>> row_shapes(int64_t width) {
  return {{width}, {kB, width}, {kB, 3, width}};
}

}  // namespace

TEST_CASE("cuda: modulated_norm") {
  if (!has_cuda()) {
    return;
  }
  for (const auto width : kWidths) {
    for (const auto& shape : row_shapes(width)) {
      CAPTURE(width);
      CAPTURE(shape.size());
      const Tensors in = {wave({kB, kTokens, width}, 0.7) * 3 + 1, wave(shape, 1.3),
                          wave(shape, 0.9)};
      check_on_gpu(modulated(), modulated_formula(), modulated_formula(1.5), in);
      check_rounding(modulated(), in);
    }
  }
}

TEST_CASE("cuda: gated_residual") {
  if (!has_cuda()) {
    return;
  }
  const Formula fused = [](const Tensors& in) -> Tensors {
    return {gated_residual(in[0], in[1], in[2])};
  };
  const auto formula = [](double factor) -> Formula {
    return [factor](const Tensors& in) -> Tensors {
      return {in[0] + factor * in[1] * per_token(in[2], kTokens)};
    };
  };
  for (const auto width : kWidths) {
    for (const auto& shape : row_shapes(width)) {
      const Tensors in = {wave({kB, kTokens, width}, 0.7), wave({kB, kTokens, width}, 1.9),
                          wave(shape, 0.4)};
      check_on_gpu(fused, formula(1), formula(1.5), in);
      check_rounding(fused, in);
    }
  }
}

TEST_CASE("cuda: residual_norm") {
  if (!has_cuda()) {
    return;
  }
  for (const auto width : kWidths) {
    for (const auto& shape : row_shapes(width)) {
      for (const bool plus_one : {true, false}) {
        for (const bool has_gate : {true, false}) {
          CAPTURE(width);
          CAPTURE(shape.size());
          const Tensors in = {wave({kB, kTokens, width}, 0.7), wave(shape, 1.3),
                              wave(shape, 0.9) + 2, wave({kB, kTokens, width}, 1.9),
                              has_gate ? wave({kB, width}, 0.4) : at::Tensor()};
          check_on_gpu(residual_normed(plus_one), residual_normed_formula(plus_one),
                       residual_normed_formula(!plus_one), in);
        }
      }
    }
  }
}

TEST_CASE("cuda: residual_norm when only one of its results is used") {
  if (!has_cuda()) {
    return;
  }
  const Tensors in = {wave({kB, kTokens, 64}, 0.7), wave({kB, 64}, 1.3), wave({kB, 64}, 0.9),
                      wave({kB, kTokens, 64}, 1.9), wave({kB, 64}, 0.4)};
  for (const size_t which : {size_t{0}, size_t{1}}) {
    const auto one = [which](const Formula& f) -> Formula {
      return [=](const Tensors& t) -> Tensors { return {f(t)[which]}; };
    };
    const auto got = run(one(residual_normed(true)),
                         placed(in, at::kFloat, c10::Device(c10::kCUDA, 0)), at::kFloat);
    const auto expected =
        run(one(residual_normed_formula(true)), leaves(in, at::kDouble), at::kFloat);
    CHECK(worst(got.out, expected.out) < 2e-5);
    for (size_t i = 0; i < got.grads.size(); ++i) {
      const auto zero = at::zeros({1});
      CHECK(worst({got.grads[i].defined() ? got.grads[i] : zero},
                  {expected.grads[i].defined() ? expected.grads[i] : zero}) < 2e-5);
    }
  }
}

TEST_CASE("cuda: rows may be slices of a wider tensor") {
  if (!has_cuda()) {
    return;
  }
  const auto formula = [](const Formula& norm) -> Formula {
    return [=](const Tensors& in) -> Tensors {
      const auto rows = in[1].unbind(1);
      return norm({in[0], rows[0], rows[1]});
    };
  };
  check_on_gpu(formula(modulated()), formula(modulated_formula()), formula(modulated_formula(1.5)),
               {wave({kB, kTokens, 64}, 0.7), wave({kB, 6, 64}, 1.1)});
}

TEST_CASE("cuda: rms_norm_rope") {
  if (!has_cuda()) {
    return;
  }
  // Heads of 6 and of 8: pairs two at a time or one. The input lies within a wider product.
  constexpr int64_t kHeads = 3;
  for (const int64_t width : {18, 24, 1536}) {
    for (const bool turns : {true, false}) {
      CAPTURE(width);
      CAPTURE(turns);
      const auto table = turns ? angles(kTokens, width / kHeads).to(at::kFloat) : at::Tensor();
      const Formula fused = [=](const Tensors& in) -> Tensors {
        const auto angle = turns ? std::optional(table.to(in[0].device())) : std::nullopt;
        return {rms_norm_rope(in[0].narrow(2, width, width), in[1], angle, kHeads, kEps)};
      };
      const auto formula = [=](double factor, double direction) -> Formula {
        return [=](const Tensors& in) -> Tensors {
          return rotated_formula(table, kHeads,
                                 direction)({in[0].narrow(2, width, width), in[1] * factor});
        };
      };
      const Tensors in = {wave({kB, kTokens, 3 * width}, 0.7), wave({width}, 1.3) + 1.5};
      check_on_gpu(fused, formula(1, 1), turns ? formula(1, -1) : formula(1.5, 1), in);
      check_rounding(fused, in);
    }
  }
}

TEST_CASE("cuda: gelu_tanh") {
  if (!has_cuda()) {
    return;
  }
  const Formula fused = [](const Tensors& in) -> Tensors { return {gelu_tanh(in[0])}; };
  const Formula formula = [](const Tensors& in) -> Tensors { return {at::gelu(in[0], "tanh")}; };
  const Formula wrong = [=](const Tensors& in) -> Tensors { return {formula(in)[0] * 1.5}; };
  for (const int64_t count : {int64_t{3}, int64_t{1001}, int64_t{100000}}) {
    const Tensors in = {at::linspace(-8, 8, count, at::kDouble)};
    check_on_gpu(fused, formula, wrong, in);
    check_rounding(fused, in);
  }
}

TEST_CASE("cuda: second derivatives come from the formula") {
  if (!has_cuda()) {
    return;
  }
  const auto second = [](const Formula& f, const Tensors& in) {
    const auto out = f(in);
    const auto seed = wave(out[0].sizes(), 0.37).to(out[0].options());
    const auto first = torch::autograd::grad({(out[0] * seed).sum()}, in, {}, true, true);
    return on_cpu(torch::autograd::grad({first[0].square().sum()}, in, {}, false, false, true));
  };
  const Tensors in = {wave({kB, kS, kD}, 0.7) * 3, wave({kB, kD}, 1.3), wave({kB, kD}, 0.9)};
  const auto got = second(modulated(), placed(in, at::kFloat, c10::Device(c10::kCUDA, 0)));
  CHECK(worst({got[0], got[2]}, [&] {
          const auto all = second(modulated_formula(), leaves(in, at::kDouble));
          return Tensors{all[0], all[2]};
        }()) < 1e-4);
}

TEST_CASE("cuda: adamw_ema") {
  if (!has_cuda()) {
    return;
  }
  const auto updated = [](at::ScalarType type, c10::Device device, int64_t size, double beta2,
                          bool is_averaged) {
    const auto make = [&](double frequency) {
      return wave({size}, frequency).to(at::kFloat).to(type).to(device);
    };
    const Tensors state = {make(0.7), make(0.2) * 0.1, make(0.3).square(),
                           is_averaged ? make(0.5) : at::Tensor()};
    for (int64_t count = 1; count <= 3; ++count) {
      const AdamWConstants constants{0.5, 0.01, 0.9, beta2, 0.1, 1e-8, count, 0.25};
      adamw_ema(state[0], make(0.9), state[1], state[2], state[3], constants);
    }
    return on_cpu(state);
  };
  for (const int64_t size : {1, 1003, 4096}) {
    for (const bool is_averaged : {true, false}) {
      const auto got = updated(at::kFloat, c10::Device(c10::kCUDA, 0), size, 0.99, is_averaged);
      CHECK(worst(got, updated(at::kDouble, at::kCPU, size, 0.99, is_averaged)) < 1e-5);
      CHECK(worst(got, updated(at::kDouble, at::kCPU, size, 0.9, is_averaged)) > 1e-3);
    }
  }
}
