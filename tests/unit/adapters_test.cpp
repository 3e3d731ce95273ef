// SPDX-License-Identifier: Apache-2.0
// Low-rank adapters: what they compute is what merged weights compute, they alone move, and they go
// to disk and back with their bits.
#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>

#include <unistd.h>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "core/base/error.hpp"
#include "core/base/files.hpp"
#include "core/checkpoint/safetensors.hpp"
#include "core/exec/forward.hpp"
#include "core/optim/optimizer.hpp"
#include "core/role/adapters.hpp"
#include "core/role/role.hpp"
#include "toy_network.hpp"

#include <doctest/doctest.h>

using namespace limbeck;
using limbeck::testing::toy_spec;

namespace {

class Folder {
 public:
  Folder() {
    std::string name =
        (std::filesystem::temp_directory_path() / "limbeck_adapters_XXXXXX").string();
    path = mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::filesystem::path path;
};

RoleSpec adapted_spec(Precision precision = Precision::kFloat64, double alpha = 3) {
  auto spec = toy_spec(true);
  spec.dtype = precision;
  AdapterSpec adapter;
  adapter.config.rank = 2;
  adapter.config.alpha = alpha;
  spec.adapters = {adapter};
  return spec;
}

std::unique_ptr<Role> adapted_role(const RoleSpec& spec) {
  auto role = std::make_unique<Role>(spec, Mesh());
  role->allocate();
  return role;
}

// Adapters as after some training: B is no longer zero.
void fill(Role& role) {
  const at::NoGradGuard no_grad;
  role.master().copy_(at::sin(at::arange(role.master().numel(), role.master().options())) * 0.3);
}

at::Tensor run_adapted(Role& role, uint32_t flags = 0) {
  lb_batch in;
  in.put("x", at::cos(at::arange(12, at::kDouble)).view({3, 4}).to(role.compute_type()));
  lb_batch out;
  run_forward(role, flags, in, out);
  return out.tensor("y");
}

at::Tensor value(Role& role, const std::string& key) {
  return role.value_of(*role.layout().find(key), Weights::kConstant);
}

// The same network without adapters, with these matrices.
std::unique_ptr<Role> plain_role(Role& of, double scale) {
  auto spec = of.spec();
  spec.adapters.clear();
  auto role = adapted_role(spec);
  const at::NoGradGuard no_grad;
  for (const char* key : {"w1", "b1", "second.w2"}) {
    value(*role, key).copy_(value(of, key));
  }
  for (const std::string layer : {"w1", "second.w2"}) {
    value(*role, layer)
        .add_(at::matmul(value(of, layer + ".lora_B.weight"), value(of, layer + ".lora_A.weight")),
              scale);
  }
  return role;
}

double distance(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>() / b.abs().max().item<double>();
}

}  // namespace

TEST_CASE("adapters: they begin as nothing") {
  const auto role = adapted_role(adapted_spec());
  CHECK(at::equal(run_adapted(*role), run_adapted(*plain_role(*role, 1.5))));
  CHECK(value(*role, "w1.lora_A.weight").abs().max().item<double>() <= 0.5);  // 1/sqrt(4)
  CHECK(value(*role, "w1.lora_A.weight").abs().max().item<double>() > 0.05);
  auto gaussian = adapted_spec();
  gaussian.adapter_init = AdapterInit::kGaussian;
  CHECK_FALSE(at::equal(value(*adapted_role(gaussian), "w1.lora_A.weight"),
                        value(*role, "w1.lora_A.weight")));
}

TEST_CASE("adapters: the factored form is the merged one") {
  const auto role = adapted_role(adapted_spec());
  fill(*role);
  CHECK(distance(run_adapted(*role), run_adapted(*plain_role(*role, 1.5))) < 1e-14);
  CHECK(distance(run_adapted(*role), run_adapted(*plain_role(*role, 1.4))) >
        1e-3);  // another scale
  const auto single = adapted_role(adapted_spec(Precision::kFloat32));
  fill(*single);
  CHECK(distance(run_adapted(*single), run_adapted(*plain_role(*single, 1.5))) < 1e-5);

  auto rank_stable = adapted_spec();
  rank_stable.adapters[0].config.uses_rslora = true;
  const auto stable = adapted_role(rank_stable);
  fill(*stable);
  CHECK(distance(run_adapted(*stable), run_adapted(*plain_role(*stable, 3 / std::sqrt(2.0)))) <
        1e-14);
}

TEST_CASE("adapters: their gradients are those of the merged weights") {
  for (const auto policy : {Recompute::kKeep, Recompute::kFull}) {
    auto spec = adapted_spec();
    spec.recompute = policy;
    const auto role = adapted_role(spec);
    fill(*role);
    torch::autograd::backward({run_adapted(*role).square().sum()}, {}, std::nullopt, false,
                              role->leaves());
    role->settle_grad();

    const auto merged = plain_role(*role, 1.5);
    torch::autograd::backward({run_adapted(*merged).square().sum()}, {}, std::nullopt, false,
                              merged->leaves());
    merged->settle_grad();
    const auto gradient = [](Role& of, const std::string& key) {
      const auto& param = *of.layout().find(key);
      return of.grad().narrow(0, param.offset, param.numel).view(param.shape);
    };
    for (const std::string layer : {"w1", "second.w2"}) {
      CAPTURE(layer);
      const auto whole = gradient(*merged, layer);
      const auto a = value(*role, layer + ".lora_A.weight");
      const auto b = value(*role, layer + ".lora_B.weight");
      CHECK(distance(gradient(*role, layer + ".lora_A.weight"), at::matmul(b.t(), whole) * 1.5) <
            1e-13);
      CHECK(distance(gradient(*role, layer + ".lora_B.weight"), at::matmul(whole, a.t()) * 1.5) <
            1e-13);
    }
  }
}

TEST_CASE("adapters: nothing else has a gradient, moves, or is averaged") {
  auto spec = adapted_spec(Precision::kFloat32);
  spec.ema = EmaSpec{0.5, EmaWarmup::kConstant, 0};
  const auto role = adapted_role(spec);
  CHECK(role->layout().frozen_size > 0);
  for (const auto& param : role->layout().params) {
    CHECK((param.store == Store::kTrained) == param.is_adapter);
  }
  CHECK(role->grad().numel() == role->layout().trained_size);
  CHECK(role->leaves().size() == 4);
  const auto before = role->frozen_hash();
  const auto base = run_adapted(*role, LB_RUN_BASE);
  RoleOptimizer optimizer(*role, 10);
  for (int64_t step = 1; step <= 3; ++step) {
    torch::autograd::backward({run_adapted(*role).square().sum()}, {}, std::nullopt, false,
                              role->leaves());
    optimizer.grad_norm();
    optimizer.update(step, 1.0);
    optimizer.clear_grad();
  }
  CHECK(role->frozen_hash() == before);
  CHECK(at::equal(run_adapted(*role, LB_RUN_BASE), base));
  CHECK_FALSE(at::equal(run_adapted(*role, LB_RUN_NO_GRAD), base));
  CHECK_FALSE(at::equal(run_adapted(*role, LB_RUN_AVERAGED), run_adapted(*role, LB_RUN_NO_GRAD)));
  CHECK_FALSE(run_adapted(*role, LB_RUN_BASE).requires_grad());
  CHECK(role->provides("limbeck.adapters/1"));

  // The run with adapters off changes nothing of the run with them.
  CHECK(run_adapted(*role).requires_grad());
  const auto plain = adapted_role(toy_spec(true));
  CHECK_FALSE(plain->provides("limbeck.adapters/1"));
  CHECK_THROWS_WITH(run_adapted(*plain, LB_RUN_BASE), doctest::Contains("has no adapters"));
}

TEST_CASE("adapters: all gradients may go past autograd") {
  auto spec = adapted_spec(Precision::kFloat32);
  spec.adapters[0].config.targets = {"w2"};
  const auto role = adapted_role(spec);
  fill(*role);
  RoleOptimizer optimizer(*role, 2);
  const auto before = role->master().clone();
  for (int64_t step = 1; step <= 2; ++step) {
    torch::autograd::backward({run_adapted(*role).square().sum()}, {}, std::nullopt, false,
                              role->leaves());
    CHECK(optimizer.grad_norm() > 0);
    optimizer.update(step, 1.0);
    optimizer.clear_grad();
    CHECK(role->leaves()[0].grad().numel() == 8);
  }
  CHECK_FALSE(at::allclose(role->master(), before));
}

TEST_CASE("adapters: a folder brings them back with their bits, also for a frozen role") {
  const Folder folder;
  auto spec = adapted_spec(Precision::kFloat32, 8);
  spec.adapters[0].config.targets = {"w2"};
  const auto role = adapted_role(spec);
  fill(*role);
  CHECK(role->layout().find("w1.lora_A.weight") == nullptr);
  CHECK(write_adapters(*role, Weights::kLive, folder.path) ==
        std::vector<std::filesystem::path>{folder.path});
  const SafetensorsFile file(folder.path / kAdapterWeightsFile);
  CHECK(file.tensors().size() == 2);
  CHECK(file.tensors().count("base_model.model.second.w2.lora_A.weight") == 1);

  const auto config = read_adapter_config(folder.path);
  CHECK(config.rank == 2);
  CHECK(config.alpha == 8);
  CHECK(config.targets == std::vector<std::string>{"w2"});
  for (const bool is_trained : {true, false}) {
    auto loaded = toy_spec(is_trained);
    loaded.adapters = {{config, folder.path}};
    const auto again = adapted_role(loaded);
    again->load_adapters();
    CHECK(at::equal(value(*again, "second.w2.lora_A.weight"),
                    value(*role, "second.w2.lora_A.weight")));
    CHECK(at::equal(run_adapted(*again, LB_RUN_NO_GRAD), run_adapted(*role, LB_RUN_NO_GRAD)));
    CHECK((again->grad().numel() > 0) == is_trained);
  }
}

TEST_CASE("adapters: what does not fit is named") {
  const auto said = [](RoleSpec spec) -> std::string {
    try {
      const auto role = adapted_role(spec);
      role->load_adapters();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const auto has = [](const std::string& text, const char* part) {
    CHECK_MESSAGE(text.find(part) != std::string::npos, text);
  };
  auto spec = adapted_spec();
  spec.adapters[0].config.targets = {"w3"};
  const auto none = said(spec);
  has(none, "no linear layer of the network is a target of its adapters");
  has(none, "w1, second.w2");

  const Folder folder;
  write_adapters(*adapted_role(adapted_spec(Precision::kFloat32)), Weights::kLive, folder.path);
  spec = toy_spec(true);
  spec.adapters = {{read_adapter_config(folder.path), folder.path},
                   {read_adapter_config(folder.path), folder.path}};
  has(said(spec), "the network has 1 parts, and 2 folders of adapters are given");

  spec.adapters.pop_back();
  spec.adapters[0].config.targets = {"w1"};
  has(said(spec), "base_model.model.second.w2.lora_A.weight");  // nobody wants it
  spec.adapters[0].config.targets = {"w1", "w2"};
  spec.adapters[0].config.rank = 1;
  has(said(spec), "shape [2, 4], expected [1, 4]");
}

// ---- adapter_config.json

namespace {

AdapterConfig parsed(const std::string& json) {
  const Folder folder;
  std::ofstream(folder.path / kAdapterConfigFile) << json;
  std::ofstream(folder.path / kAdapterWeightsFile) << "not looked at";
  return read_adapter_config(folder.path);
}

std::string refused(const std::string& members) {
  try {
    parsed("{\"peft_type\": \"LORA\", \"r\": 4, \"lora_alpha\": 8, \"target_modules\": [\"q\"]" +
           members + "}");
  } catch (const Error& error) {
    CHECK((error.fault() == Fault::kData));
    return error.message();
  }
  return "";
}

}  // namespace

TEST_CASE("adapter config: which layers, of which rank and scale") {
  const auto config = parsed(R"({"peft_type": "LORA", "r": 4, "lora_alpha": 8,
    "target_modules": ["to_q", "ffn.net.2"], "exclude_modules": ["blocks.1.to_q"],
    "rank_pattern": {"ffn.net.2": 2, "net.2": 3}, "alpha_pattern": {"blocks\\.0\\.to_q": 2}})");
  CHECK(config.selects("blocks.0.attn1.to_q"));
  CHECK(config.selects("to_q"));
  CHECK_FALSE(config.selects("blocks.0.attn1.into_q"));
  CHECK_FALSE(config.selects("blocks.0.attn1.to_q.0"));
  CHECK_FALSE(config.selects("blocks.1.to_q"));
  CHECK(config.selects("blocks.0.ffn.net.2"));
  CHECK(config.rank_of("blocks.0.ffn.net.2") == 2);  // the first pattern that fits
  CHECK(config.rank_of("net.2") == 3);
  CHECK(config.rank_of("blocks.0.to_q") == 4);
  CHECK(config.scale_of("blocks.0.to_q") == 0.5);
  CHECK(config.scale_of("blocks.2.to_q") == 2);
  CHECK(config.scale_of("blocks.0.ffn.net.2") == 4);

  const auto pattern = parsed(R"({"peft_type": "LORA", "r": 4, "lora_alpha": 8, "use_rslora": true,
    "target_modules": ".*attn1\\.to_[qk]"})");
  CHECK(pattern.selects("blocks.0.attn1.to_k"));
  CHECK_FALSE(pattern.selects("blocks.0.attn1.to_v"));
  CHECK(pattern.scale_of("x") == 4);
  CHECK(parsed(R"({"peft_type": "LORA", "r": 1, "lora_alpha": 1,
    "target_modules": "all-linear"})")
            .selects("anything"));
  for (const auto& one : {config, pattern}) {
    CHECK(parsed(one.to_json("base")).to_json("base") == one.to_json("base"));
  }
}

TEST_CASE("adapter config: what limbeck does not compute is an error that names it") {
  CHECK(refused("").empty());
  CHECK(refused(R"(, "bias": "none", "use_dora": false, "modules_to_save": null, "x": 1)").empty());
  for (const std::string member :
       {R"("use_dora": true)", R"("bias": "all")", R"("modules_to_save": ["head"])",
        R"("fan_in_fan_out": true)", R"("layers_to_transform": [1])", R"("lora_bias": true)",
        R"("rank_pattern": {"(": 1})", R"("rank_pattern": {"a": 0})", R"("alpha_pattern": [1])",
        R"("exclude_modules": "a")"}) {
    const auto message = refused(", " + member);
    const auto name = member.substr(1, member.find('"', 1) - 1);
    CHECK_MESSAGE(message.find(name) != std::string::npos, member << ": " << message);
    CHECK(message.find(kAdapterConfigFile) != std::string::npos);
  }
  const auto message = [](const std::string& json) -> std::string {
    try {
      parsed(json);
    } catch (const Error& error) {
      return error.message();
    }
    return "";
  };
  CHECK(message(R"({"peft_type": "LOHA"})").find("LOHA") != std::string::npos);
  CHECK(message(R"({"peft_type": "LORA", "lora_alpha": 1})").find("it has no \"r\"") !=
        std::string::npos);
  CHECK(message("[]").find("no JSON object") != std::string::npos);

  const Folder other;
  std::ofstream(other.path / "pytorch_lora_weights.safetensors") << "x";
  CHECK_THROWS_WITH(read_adapter_config(other.path), doctest::Contains("another format"));
  const Folder pickled;
  std::ofstream(pickled.path / kAdapterConfigFile) << "{}";
  std::ofstream(pickled.path / "adapter_model.bin") << "x";
  CHECK_THROWS_WITH(read_adapter_config(pickled.path), doctest::Contains("is a pickle"));
}
