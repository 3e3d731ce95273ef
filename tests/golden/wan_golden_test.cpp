// SPDX-License-Identifier: Apache-2.0
// The Wan transformer against numbers that diffusers' own code gave in double precision, and
// against properties that hold exactly.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include <limbeck/network.hpp>

#include "core/base/error.hpp"
#include "core/exec/forward.hpp"
#include "core/plugin/host_table.hpp"
#include "core/role/role.hpp"
#include "core/tensor/handle.hpp"
#include "core/tensor/tensor_api.hpp"
#include "wan/transformer.hpp"

#include "../fixtures/hash_fill.hpp"

#include <doctest/doctest.h>

namespace {

using limbeck::ConfigValue;
using limbeck::Precision;
using limbeck::Recompute;

at::Tensor filled(at::IntArrayRef sizes, uint32_t k, double scale) {
  auto values = at::empty(sizes, at::kDouble);
  auto* data = values.mutable_data_ptr<double>();
  for (int64_t j = 0; j < values.numel(); ++j) {
    data[j] = scale * limbeck::testing::hash_value(static_cast<uint32_t>(j), k);
  }
  return values;
}

// The scale of a parameter's numbers, and what is added to them.
std::pair<double, double> fill_rule(const std::string& key, at::IntArrayRef shape, int64_t width) {
  const auto last = key.substr(key.rfind('.') + 1);
  if (last == "scale_shift_table") {
    return {1.0 / std::sqrt(static_cast<double>(width)), 0.0};
  }
  if (last == "bias") {
    return {0.05, 0.0};
  }
  if (shape.size() == 1) {
    return {0.1, 1.0};
  }
  const auto numel = static_cast<double>(c10::multiply_integers(shape));
  return {std::sqrt(3.0 * static_cast<double>(shape[0]) / numel), 0.0};
}

struct Network {
  int64_t heads = 2;
  int64_t head_dim = 12;
  int64_t layers = 2;
  int64_t in_channels = 4;
  int64_t out_channels = 4;
  int64_t text_dim = 16;
  int64_t freq_dim = 256;
  int64_t ffn_dim = 32;
  int64_t patch_frames = 1;
  int64_t image_dim = 0;
  double eps = 1e-6;
};

Network config_c() {
  return {.heads = 3,
          .head_dim = 16,
          .layers = 3,
          .in_channels = 6,
          .text_dim = 10,
          .freq_dim = 64,
          .ffn_dim = 40};
}

std::shared_ptr<const lb_config> options_of(const Network& network) {
  auto config = std::make_shared<lb_config>();
  const auto given = [](auto value) { return ConfigValue{std::move(value), true, {}}; };
  const auto add = [&](const char* name, auto value) {
    config->table.push_back({name, given(std::move(value))});
  };
  add("patch_size",
      ConfigValue::List{given(network.patch_frames), given(int64_t{2}), given(int64_t{2})});
  add("num_attention_heads", network.heads);
  add("attention_head_dim", network.head_dim);
  add("in_channels", network.in_channels);
  add("out_channels", network.out_channels);
  add("text_dim", network.text_dim);
  add("freq_dim", network.freq_dim);
  add("ffn_dim", network.ffn_dim);
  add("num_layers", network.layers);
  add("cross_attn_norm", true);
  add("qk_norm", std::string("rms_norm_across_heads"));
  add("eps", network.eps);
  add("rope_max_seq_len", int64_t{32});
  add("text_len", int64_t{0});
  add("image_dim", network.image_dim);
  add("added_kv_proj_dim", int64_t{0});
  add("pos_embed_seq_len", int64_t{0});
  return config;
}

const limbeck::Component& component() {
  static const limbeck::Component made = [] {
    limbeck::provide("limbeck.tensor/1", &limbeck::tensor_api());
    limbeck::provide("limbeck.dispatch/1", &limbeck::dispatch_api());
    limbeck::provide("limbeck.batch/1", &limbeck::batch_api());
    REQUIRE(lb::bind(&limbeck::host_table()) == nullptr);
    static const limbeck::Library library;
    return limbeck::Component{lb::network<wan::Transformer>("wan", "Wan."), &library};
  }();
  return made;
}

limbeck::RoleSpec spec_of(const Network& network, Precision precision, Recompute recompute) {
  limbeck::RoleSpec spec;
  spec.name = "student";
  spec.model.key = "models.student";
  spec.model.component = &component();
  spec.model.config = options_of(network);
  spec.is_trained = true;
  spec.dtype = precision;
  spec.compute_dtype = precision;
  spec.recompute = recompute;
  return spec;
}

// A role with the numbers of the filling rule, and one run of it.
class Case {
 public:
  explicit Case(const Network& network,
                Precision precision = Precision::kFloat64,
                Recompute recompute = Recompute::kKeep)
      : role_(spec_of(network, precision, recompute), limbeck::Mesh()),
        type_(precision == Precision::kFloat64 ? at::kDouble : at::kFloat) {
    role_.allocate();
    std::vector<std::string> keys;
    role_.visit(limbeck::Weights::kLive,
                [&](const std::string& key, const at::Tensor&) { keys.push_back(key); });
    std::sort(keys.begin(), keys.end());
    const int64_t width = network.heads * network.head_dim;
    role_.visit(limbeck::Weights::kLive, [&](const std::string& key, const at::Tensor& value) {
      const auto k = std::lower_bound(keys.begin(), keys.end(), key) - keys.begin();
      const auto [scale, offset] = fill_rule(key, value.sizes(), width);
      auto target = value;
      target.copy_(filled(value.sizes(), static_cast<uint32_t>(k), scale) + offset);
    });
  }

  // Changes one parameter, for tests that must then fail.
  void scale(const std::string& key, double factor) {
    role_.visit(limbeck::Weights::kLive, [&](const std::string& name, const at::Tensor& value) {
      if (name == key) {
        auto target = value;
        target.mul_(factor);
      }
    });
  }

  at::Tensor run(at::IntArrayRef latents, const at::Tensor& timestep, int64_t words) {
    x_ = filled(latents, 1000, 1.7).to(type_).requires_grad_(true);
    const int64_t text_dim =
        role_.layout().find("condition_embedder.text_embedder.linear_1.weight")->shape[1];
    text_ = filled({latents[0], words, text_dim}, 1001, 1.7).to(type_).requires_grad_(true);
    return run_on(x_, timestep, text_);
  }
  at::Tensor run_on(const at::Tensor& x, const at::Tensor& timestep, const at::Tensor& text) {
    lb_batch in;
    in.put("noisy", x);
    in.put("timestep", timestep);
    in.put("context", text);
    lb_batch out;
    limbeck::run_forward(role_, 0, in, out);
    out_ = out.tensor("velocity");
    return out_;
  }

  // Differentiates sum(out . w) and returns it.
  double backward() {
    const auto w = filled(out_.sizes(), 2000, 1.0).to(type_);
    const auto loss = (out_ * w).sum();
    loss.backward();
    return loss.item<double>();
  }
  at::Tensor grad(const std::string& key) {
    const auto* param = role_.layout().find(key);
    REQUIRE(param != nullptr);
    return role_.grad().narrow(0, param->offset, param->numel).view(param->shape);
  }
  double grad_norm(const std::string& key) { return grad(key).norm().item<double>(); }
  double grad_norm() { return role_.grad().norm().item<double>(); }
  const at::Tensor& x() const { return x_; }
  const at::Tensor& text() const { return text_; }
  limbeck::Role& role() { return role_; }

 private:
  limbeck::Role role_;
  at::ScalarType type_;
  at::Tensor x_;
  at::Tensor text_;
  at::Tensor out_;
};

struct Statistics {
  double sum = 0;
  double norm = 0;
  double dot = 0;  // with cos(flat index)
  std::vector<double> first;
};

Statistics statistics(const at::Tensor& tensor) {
  const auto flat = tensor.detach().to(at::kDouble).flatten();
  const auto index = at::arange(flat.numel(), at::kDouble);
  Statistics all;
  all.sum = flat.sum().item<double>();
  all.norm = flat.norm().item<double>();
  all.dot = (flat * index.cos()).sum().item<double>();
  for (int64_t i = 0; i < 4; ++i) {
    all.first.push_back(flat[i].item<double>());
  }
  return all;
}

bool near(double got, double expected, double tolerance) {
  return std::abs(got - expected) <= tolerance * std::max(1.0, std::abs(expected));
}

bool agree(const at::Tensor& out, const Statistics& expected, double tolerance) {
  const auto got = statistics(out);
  bool all = near(got.sum, expected.sum, tolerance) && near(got.norm, expected.norm, tolerance) &&
             near(got.dot, expected.dot, tolerance);
  for (size_t i = 0; i < expected.first.size(); ++i) {
    all = all && near(got.first[i], expected.first[i], tolerance);
  }
  return all;
}

using Norms = std::map<std::string, double>;

// Every norm within the tolerance; names the first that is not.
std::string first_difference(Case& of, const Norms& expected, double tolerance) {
  for (const auto& [key, norm] : expected) {
    if (!near(of.grad_norm(key), norm, tolerance)) {
      char text[128];
      std::snprintf(text, sizeof(text), ": %.15g instead of %.15g", of.grad_norm(key), norm);
      return key + text;
    }
  }
  return "";
}

at::Tensor times(const std::vector<double>& values) { return at::tensor(values, at::kDouble); }

constexpr double kExact = 1e-10;
constexpr double kPrinted = 2e-11;  // norms are printed with twelve digits

const Statistics kConfigA = {
    10.37673266601526,
    28.065371714349922,
    16.196551521806967,
    {1.873547100705043, 1.7347774645868654, -0.47308012699075846, 0.2120752956308108}};
const Norms kGradientsA = {{"patch_embedding.weight", 49.8117131411},
                           {"condition_embedder.time_embedder.linear_1.weight", 141.733353292},
                           {"condition_embedder.time_proj.bias", 13.0697086381},
                           {"condition_embedder.text_embedder.linear_1.weight", 20.9400702526},
                           {"blocks.0.scale_shift_table", 12.7759172625},
                           {"blocks.0.attn1.to_q.weight", 4.2447794621},
                           {"blocks.0.attn1.norm_k.weight", 0.556710242023},
                           {"blocks.1.attn2.to_v.weight", 19.3200303044},
                           {"blocks.0.norm2.weight", 2.89037807751},
                           {"blocks.1.ffn.net.0.proj.weight", 11.0220930657},
                           {"scale_shift_table", 13.5118630471},
                           {"proj_out.weight", 68.8340795124}};

const std::vector<int64_t> kLatentsA = {2, 4, 3, 4, 6};
at::Tensor times_a() { return times({17, 903.5}); }

// Timesteps of config C: per frame, repeated for the six tokens of a frame.
at::Tensor times_c() {
  return times({0, 250, 750, 999, 10, 20, 30, 40}).view({2, 4}).repeat_interleave(6, 1);
}
const std::vector<int64_t> kLatentsC = {2, 6, 4, 6, 4};

}  // namespace

TEST_CASE("the filling rule gives its published numbers") {
  CHECK(near(limbeck::testing::hash_value(0, 0), 0.2164021828211844, 1e-15));
  CHECK(near(limbeck::testing::hash_value(2, 0), -0.7345444830134511, 1e-15));
  CHECK(near(limbeck::testing::hash_value(1, 5), -0.29357299534603953, 1e-15));
}

TEST_CASE("a text-to-video forward and its gradients equal those of diffusers in f64") {
  Case a{Network{}};
  const auto out = a.run(kLatentsA, times_a(), 7);
  REQUIRE(out.sizes() == at::IntArrayRef({2, 4, 3, 4, 6}));
  CHECK(agree(out, kConfigA, kExact));
  CHECK(near(a.backward(), 18.080392819840853, kExact));
  CHECK(first_difference(a, kGradientsA, kPrinted) == "");
  CHECK(near(a.grad_norm(), 189.628882013, kPrinted));
  CHECK(near(a.x().grad().norm().item<double>(), 13.4436844891, kPrinted));
  CHECK(near(a.text().grad().norm().item<double>(), 5.03462639854, kPrinted));
}

TEST_CASE("a change of one term shows in the comparison with diffusers") {
  Case eps{Network{.eps = 1.001e-6}};
  CHECK_FALSE(agree(eps.run(kLatentsA, times_a(), 7), kConfigA, kExact));
  Case weight{Network{}};
  weight.scale("blocks.1.attn1.norm_k.weight", 1.0 + 1e-6);
  CHECK_FALSE(agree(weight.run(kLatentsA, times_a(), 7), kConfigA, kExact));
  Case time{Network{}};
  CHECK_FALSE(agree(time.run(kLatentsA, times({17, 903.50001}), 7), kConfigA, kExact));
  time.backward();
  CHECK(first_difference(time, kGradientsA, kPrinted) != "");
}

TEST_CASE("timesteps per token equal those of diffusers in f64") {
  Case c{config_c()};
  const auto out = c.run(kLatentsC, times_c(), 5);
  REQUIRE(out.sizes() == at::IntArrayRef({2, 4, 4, 6, 4}));
  CHECK(agree(out,
              {-124.5817414738711,
               36.07718482628946,
               -13.502323917059957,
               {-0.7674600535936749, 1.605133319615042, -0.5465189848132799, 0.8387274739760334}},
              kExact));
  CHECK(near(c.backward(), -5.762433088258517, kExact));
  CHECK(first_difference(c,
                         {{"patch_embedding.weight", 71.9674514336},
                          {"condition_embedder.time_embedder.linear_1.weight", 83.5017799468},
                          {"condition_embedder.time_proj.bias", 20.1013787653},
                          {"condition_embedder.text_embedder.linear_1.weight", 31.7028860914},
                          {"blocks.0.scale_shift_table", 12.3862942234},
                          {"blocks.0.attn1.to_q.weight", 7.51664530244},
                          {"blocks.0.attn1.norm_k.weight", 0.84279231869},
                          {"blocks.1.attn2.to_v.weight", 32.7604093397},
                          {"blocks.0.norm2.weight", 2.81874703431},
                          {"blocks.1.ffn.net.0.proj.weight", 17.5293087106},
                          {"scale_shift_table", 19.7801393433},
                          {"proj_out.weight", 111.736678653}},
                         kPrinted) == "");
  CHECK(near(c.grad_norm(), 225.613983219, kPrinted));
  CHECK(near(c.x().grad().norm().item<double>(), 15.4875888829, kPrinted));
  CHECK(near(c.text().grad().norm().item<double>(), 9.33356798683, kPrinted));
}

TEST_CASE("a temporal patch equals that of diffusers in f64") {
  Case p{Network{.head_dim = 24, .patch_frames = 2}};
  const auto out = p.run({1, 4, 4, 4, 4}, times({250}), 7);
  CHECK(agree(out,
              {-10.27774222197623,
               16.72225746487302,
               9.742759329893094,
               {-0.6526121511935982, -2.4505256410484155}},
              kExact));
  CHECK(near(p.backward(), 11.126247771290483, kExact));
  CHECK(near(p.grad_norm(), 182.208705306, kPrinted));
}

TEST_CASE("single precision stays within its rounding of diffusers") {
  Case a(Network{}, Precision::kFloat32);
  const auto out = a.run(kLatentsA, times_a().to(at::kFloat), 7);
  CHECK(agree(out, {10.3770730, 28.0653599, 16.19655, {1.87354720, 1.73477733}}, 2e-5));
  CHECK_FALSE(agree(out, kConfigA, kExact));
  a.backward();
  CHECK(first_difference(a, kGradientsA, 1e-4) == "");
  Case c(config_c(), Precision::kFloat32);
  CHECK(near(c.run(kLatentsC, times_c(), 5).norm().item<double>(), 36.0771910, 2e-5));
}

TEST_CASE("bf16 stays within two percent of single precision") {
  Case narrow(Network{}, Precision::kBFloat16);
  const auto out = narrow.run(kLatentsA, times_a(), 7);
  CHECK((out.scalar_type() == at::kFloat));
  Case wide(Network{}, Precision::kFloat32);
  const auto reference = wide.run(kLatentsA, times_a(), 7);
  const auto error = ((out - reference).norm() / reference.norm()).item<double>();
  CHECK(error < 2e-2);
  CHECK(error > 1e-4);
}

TEST_CASE("recomputing units in backward changes no bit") {
  Case keep(Network{}, Precision::kFloat32);
  Case full(Network{}, Precision::kFloat32, Recompute::kFull);
  const auto kept = keep.run(kLatentsA, times_a(), 7);
  const auto repeated = full.run(kLatentsA, times_a(), 7);
  CHECK(at::equal(kept, repeated));
  keep.backward();
  full.backward();
  CHECK(at::equal(keep.role().grad(), full.role().grad()));
  CHECK(at::equal(keep.x().grad(), full.x().grad()));
}

TEST_CASE("equal timesteps give the same whether per sample, per frame or per token") {
  Case a{Network{}};
  const auto per_sample = a.run(kLatentsA, times_a(), 7).detach().clone();
  const auto per_frame = a.run(kLatentsA, times_a().view({2, 1}).expand({2, 3}), 7);
  CHECK((per_frame - per_sample).abs().max().item<double>() < 1e-12);
  const auto per_token = a.run(kLatentsA, times_a().view({2, 1}).expand({2, 18}), 7);
  CHECK((per_token - per_sample).abs().max().item<double>() < 1e-12);
}

TEST_CASE("a sample does not depend on the rest of its batch, and text order does not matter") {
  Case a{Network{}};
  const auto whole = a.run(kLatentsA, times_a(), 7).detach().clone();
  const auto x = a.x().detach();
  const auto text = a.text().detach();
  const auto alone = a.run_on(x.narrow(0, 1, 1), times({903.5}), text.narrow(0, 1, 1));
  CHECK((alone - whole.narrow(0, 1, 1)).abs().max().item<double>() < 1e-12);
  const auto permuted = a.run_on(x, times_a(), text.flip({1}));
  CHECK((permuted - whole).abs().max().item<double>() < 1e-12);
  const auto padded = a.run_on(x, times_a(), at::cat({text, at::zeros_like(text)}, 1));
  CHECK((padded - whole).abs().max().item<double>() > 1e-3);
}

TEST_CASE("what is added to all channels of the residual stream has no gradient") {
  Case a{Network{}};
  a.run(kLatentsA, times_a(), 7);
  a.backward();
  CHECK(std::abs(a.grad("patch_embedding.bias").sum().item<double>()) < 1e-11);
  CHECK(a.grad("patch_embedding.weight").sum(0).abs().max().item<double>() < 1e-11);
  CHECK(std::abs(a.grad("blocks.1.attn2.to_out.0.bias").sum().item<double>()) < 1e-11);
  CHECK(std::abs(a.grad("blocks.1.attn1.to_out.0.bias").sum().item<double>()) > 1e-6);
}

TEST_CASE("a head of zeros predicts zero and only the head has a gradient") {
  Case a{Network{}};
  a.scale("proj_out.weight", 0.0);
  a.scale("proj_out.bias", 0.0);
  CHECK(a.run(kLatentsA, times_a(), 7).abs().max().item<double>() == 0.0);
  a.backward();
  CHECK(a.grad_norm("proj_out.weight") > 1.0);
  CHECK(a.grad_norm("blocks.1.ffn.net.2.weight") == 0.0);
}

TEST_CASE("a network of the published size has its tensors and parameters") {
  const limbeck::Role role(spec_of({.heads = 12,
                                    .head_dim = 128,
                                    .layers = 30,
                                    .in_channels = 16,
                                    .out_channels = 16,
                                    .text_dim = 4096,
                                    .ffn_dim = 8960},
                                   Precision::kFloat32, Recompute::kKeep),
                           limbeck::Mesh());
  CHECK(role.layout().params.size() == 825);
  CHECK(role.layout().parameter_count() == 1418996800);
}

TEST_CASE("parameters that stay in fp32 are those of diffusers") {
  const limbeck::Role role(spec_of(Network{}, Precision::kFloat32, Recompute::kKeep),
                           limbeck::Mesh());
  for (const auto& param : role.layout().params) {
    const std::string dotted = "." + param.key + ".";
    bool stays = false;
    for (const char* part : {"time_embedder", "scale_shift_table", "norm1", "norm2", "norm3"}) {
      stays = stays || dotted.find("." + std::string(part) + ".") != std::string::npos;
    }
    INFO(param.key);
    CHECK(((param.flags & LB_PARAM_KEEP_F32) != 0) == stays);
    CHECK(((param.flags & LB_PARAM_NO_DECAY) != 0) ==
          (param.shape.size() == 1 || param.name == "scale_shift_table"));
    CHECK(((param.flags & LB_PARAM_LINEAR) != 0) == (param.shape.size() == 2));
  }
}

TEST_CASE("names of the original checkpoints are known") {
  limbeck::Role role(spec_of(Network{}, Precision::kFloat32, Recompute::kKeep), limbeck::Mesh());
  const auto renamed = [&](const char* key) -> std::string {
    char out[256];
    const auto length = role.vtable().rename(role.self(), key, out, sizeof(out));
    return length < 0 ? "" : out;
  };
  CHECK(renamed("time_embedding.2.bias") == "condition_embedder.time_embedder.linear_2.bias");
  CHECK(renamed("time_projection.1.weight") == "condition_embedder.time_proj.weight");
  CHECK(renamed("head.modulation") == "scale_shift_table");
  CHECK(renamed("blocks.0.modulation") == "blocks.0.scale_shift_table");
  CHECK(renamed("blocks.11.self_attn.o.weight") == "blocks.11.attn1.to_out.0.weight");
  CHECK(renamed("blocks.1.cross_attn.norm_k.weight") == "blocks.1.attn2.norm_k.weight");
  CHECK(renamed("blocks.1.norm3.bias") == "blocks.1.norm2.bias");
  CHECK(renamed("blocks.1.ffn.0.weight") == "blocks.1.ffn.net.0.proj.weight");
  CHECK(renamed("blocks.1.attn1.to_q.weight") == "");
  CHECK(renamed("something.else") == "");
}

TEST_CASE("image conditioning and shapes that do not fit are named") {
  CHECK_THROWS_WITH_AS(
      limbeck::Role(spec_of({.image_dim = 1280}, Precision::kFloat32, Recompute::kKeep),
                    limbeck::Mesh()),
      doctest::Contains("image conditioning is not available in this version"), limbeck::Error);
  Case a{Network{}};
  CHECK_THROWS_WITH_AS(a.run({2, 4, 3, 5, 6}, times_a(), 7),
                       doctest::Contains("not divisible by the patch size 2"), limbeck::Error);
  CHECK_THROWS_WITH_AS(a.run({2, 5, 3, 4, 6}, times_a(), 7), doctest::Contains("[b, 4, T, H, W]"),
                       limbeck::Error);
  CHECK_THROWS_WITH_AS(a.run(kLatentsA, times({17, 18, 19}), 7),
                       doctest::Contains("'timestep' has shape [3]"), limbeck::Error);
  CHECK_THROWS_WITH_AS(a.run({2, 4, 33, 4, 6}, times_a(), 7), doctest::Contains("rope_max_seq_len"),
                       limbeck::Error);
}
