// SPDX-License-Identifier: Apache-2.0
// The losses of the basics plugin that see other networks, against closed forms, with networks that
// are functions.
#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "core/plugin/host_table.hpp"
#include "core/tensor/batch.hpp"
#include "core/tensor/handle.hpp"
#include "core/tensor/random.hpp"
#include "core/tensor/tensor_api.hpp"
#include "tests/fixtures/gaussian.hpp"

#include "basics/kl_reference.hpp"
#include "basics/teacher_regression.hpp"
#include "basics/teacher_score.hpp"

#include <doctest/doctest.h>

namespace {

using basics::KlReference;
using basics::TeacherRegression;
using basics::TeacherScore;
using limbeck::testing::Gaussian;

const std::vector<int64_t> kSizes = {2, 1, 2, 1, 2};
constexpr int64_t kPerSample = 4;
const std::vector<double> kSigma = {0.5, 0.75};
// What the score term draws: u, so that levels are 0.25 and 0.6 without shift, and noise.
const std::vector<float> kPlaces = {0.25F, 0.6001F};
const std::vector<double> kLevels = {0.25, 0.6};

lb::Tensor wrap(const at::Tensor& tensor) { return lb::Tensor::take(limbeck::give(tensor)); }
at::Tensor video(double phase) {
  return at::sin(at::arange(8, at::kDouble) * 1.7 + phase).view({2, 1, 2, 1, 2});
}

struct Call {
  uint32_t role;
  uint32_t flags;
  std::vector<double> timestep;
};

// A step with networks: v = function(noisy, sigma of sample, mean of the text's first element).
class Bench {
 public:
  using Velocity = std::function<double(double noisy, double sigma, double text)>;

  Bench() {
    limbeck::provide("limbeck.tensor/1", &limbeck::tensor_api());
    limbeck::provide("limbeck.dispatch/1", &limbeck::dispatch_api());
    limbeck::provide("limbeck.batch/1", &limbeck::batch_api());
    limbeck::provide("limbeck.random/1", &limbeck::random_api());
    REQUIRE(lb::bind(&limbeck::host_table()) == nullptr);
    limbeck::set_recorded_draws({{"teacher_score.level/3/0/0", at::tensor(kPlaces)},
                                 {"teacher_score.noise/3/0/0", (video(4.0)).to(at::kFloat)}});
    models_.struct_size = sizeof(models_);
    models_.ctx = this;
    models_.has = [](const lb_models* of, uint32_t role, const char* capability) -> int32_t {
      const auto& bench = *static_cast<const Bench*>(of->ctx);
      const bool is_there = bench.networks.count(role) > 0 || role == bench.encoder;
      return is_there && (capability == nullptr || bench.has_adapters);
    };
    models_.facts = [](const lb_models* of, uint32_t) -> const lb_batch* {
      return &static_cast<const Bench*>(of->ctx)->facts;
    };
    models_.run = [](const lb_models* of, uint32_t role, uint32_t flags, const lb_batch* in,
                     lb_batch* out) -> lb_status* {
      static_cast<Bench*>(of->ctx)->run(role, flags, *in, *out);
      return nullptr;
    };
    metrics_.struct_size = sizeof(metrics_);
    metrics_.ctx = this;
    metrics_.tensor = [](lb_metrics* of, const char* name, lb_tensor* value, lb_reduce) {
      static_cast<Bench*>(of->ctx)->logged[name] = limbeck::tensor_of(value).item<double>();
    };
    table_.struct_size = sizeof(table_);
    table_.step = 3;
    table_.models = &models_;
    table_.metrics = &metrics_;
    table_.facts = &run_facts;
  }
  ~Bench() { limbeck::set_recorded_draws({}); }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  std::map<uint32_t, Velocity> networks;
  uint32_t encoder = 99;  // the role that encodes texts
  bool has_adapters = false;
  lb_batch facts;      // of the networks
  lb_batch run_facts;  // of the run
  std::vector<Call> calls;
  std::map<std::string, double> logged;
  at::Tensor noisy = video(0.4);
  at::Tensor velocity = video(2.5).requires_grad_(true);
  lb_batch extra;  // further entries of the values

  struct Result {
    double loss;
    std::vector<double> gradient;  // with respect to the velocity
  };
  template <class Loss>
  Result run(const typename Loss::Options& options) {
    lb::Batch values;
    for (const auto& [name, entry] : extra.entries) {
      values.set(name, wrap(extra.tensor(name)));
    }
    values.set("velocity", wrap(velocity))
        .set("noisy", wrap(noisy))
        .set("context", wrap(at::full({2, 3, 4}, 2.0, at::kDouble)))
        .set("timestep", wrap(at::tensor(kSigma) * 1000.0));
    const lb::Tensor loss = Loss(options).loss(lb::Step(&table_), values);
    const lb::Tensor slope = lb::gradient({loss}, {lb::Tensor()}, {wrap(velocity)})[0];
    return {loss.item(), slope.to(LB_F64).to_vector<double>()};
  }

 private:
  void run(uint32_t role, uint32_t flags, const lb_batch& in, lb_batch& out) {
    if (role == encoder) {
      out.put("context", at::full({1, 5, 4}, 1.0, at::kDouble));
      return;
    }
    const at::Tensor x = in.tensor("noisy").detach().to(at::kDouble).contiguous();
    const at::Tensor t = in.tensor("timestep").to(at::kDouble).contiguous();
    const double text = in.tensor("context").to(at::kDouble).mean().item<double>();
    const auto* scale = facts.find<double>("time_scale");
    at::Tensor v = at::empty_like(x);
    for (int64_t i = 0; i < x.numel(); ++i) {
      const double sigma = t.data_ptr<double>()[i / kPerSample] / (scale ? *scale : 1000.0);
      v.data_ptr<double>()[i] = networks.at(role)(x.data_ptr<double>()[i], sigma, text);
    }
    out.put("velocity", v);
    calls.push_back({role, flags, {t.data_ptr<double>(), t.data_ptr<double>() + t.numel()}});
  }

  lb_models models_{};
  lb_metrics metrics_{};
  lb_step table_{};
};

std::vector<double> numbers(const at::Tensor& tensor) {
  const at::Tensor all = tensor.detach().to(at::kDouble).contiguous();
  return {all.data_ptr<double>(), all.data_ptr<double>() + all.numel()};
}

bool near(double got, double expected) { return std::abs(got - expected) < 1e-7; }
bool near(const std::vector<double>& got, const std::vector<double>& expected) {
  bool all = got.size() == expected.size();
  for (size_t i = 0; all && i < got.size(); ++i) {
    all = near(got[i], expected[i]);
  }
  return all;
}

template <class Loss>
std::string fault_of(Bench& bench, const typename Loss::Options& options) {
  try {
    bench.run<Loss>(options);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// mean (v - network)^2 and its gradient.
Bench::Result mean_square(const Bench& bench, const Bench::Velocity& network, double text) {
  const auto v = numbers(bench.velocity);
  const auto x = numbers(bench.noisy);
  Bench::Result expected{0, {}};
  for (size_t i = 0; i < v.size(); ++i) {
    const double error = v[i] - network(x[i], kSigma[i / kPerSample], text);
    expected.loss += error * error / 8;
    expected.gradient.push_back(2 * error / 8);
  }
  return expected;
}

// A network that depends on all that it is given.
double teacher_of(double noisy, double sigma, double text) { return text + noisy * (0.3 + sigma); }

}  // namespace

TEST_CASE("kl_reference is the squared distance to a frozen network on the same mixture") {
  Bench bench;
  bench.networks = {{KlReference::kReference, teacher_of}};
  const auto expected = mean_square(bench, teacher_of, 2);
  const auto got = bench.run<KlReference>({});
  CHECK(near(got.loss, expected.loss));
  CHECK(near(got.gradient, expected.gradient));
  REQUIRE(bench.calls.size() == 1);
  CHECK(bench.calls[0].flags == LB_RUN_NO_GRAD);
  // A reference that is told the wrong level.
  bench.networks = {{KlReference::kReference, [](double x, double sigma, double text) {
                       return teacher_of(x, sigma * 1.01, text);
                     }}};
  CHECK_FALSE(near(bench.run<KlReference>({}).loss, expected.loss));

  bench.networks = {{KlReference::kReference, teacher_of}};
  bench.facts.put("time_scale", 1.0);
  CHECK(near(bench.run<KlReference>({}).loss, expected.loss));
  CHECK(bench.calls.back().timestep == kSigma);
}

TEST_CASE("kl_reference of a network that has not moved is 0, also to its weights below adapters") {
  Bench bench;
  KlReference::Options options;
  options.reference = "base";
  bench.has_adapters = true;
  bench.networks = {{KlReference::kStudent, teacher_of}};
  CHECK(near(bench.run<KlReference>(options).loss, mean_square(bench, teacher_of, 2).loss));
  REQUIRE(bench.calls.size() == 1);
  CHECK(bench.calls[0].role == KlReference::kStudent);
  CHECK(bench.calls[0].flags == LB_RUN_BASE);

  const auto v = numbers(bench.velocity);
  size_t next = 0;
  bench.networks = {{KlReference::kStudent, [&](double, double, double) { return v[next++]; }}};
  const auto still = bench.run<KlReference>(options);
  CHECK(still.loss == 0);
  CHECK(still.gradient == std::vector<double>(8, 0.0));
}

TEST_CASE("kl_reference says which network it misses, and which one it leaves idle") {
  Bench bench;
  KlReference::Options base;
  base.reference = "base";
  CHECK(says(fault_of<KlReference>(bench, {}),
             "add [models.reference], or set reference = \"base\""));
  CHECK(says(fault_of<KlReference>(bench, base), "roles = { student = \"...\" }"));
  bench.networks = {{KlReference::kStudent, teacher_of}};
  CHECK(says(fault_of<KlReference>(bench, base), "models.student.lora.enable = true"));
  bench.has_adapters = true;
  CHECK(fault_of<KlReference>(bench, base).empty());
  bench.networks[KlReference::kReference] = teacher_of;
  CHECK(says(fault_of<KlReference>(bench, base), "does not read [models.reference]"));
}

TEST_CASE("teacher_regression follows the teacher with guidance in the standard convention") {
  Bench bench;
  bench.networks = {
      {basics::GuidedTeacher::kTeacher, [](double, double, double text) { return text; }}};
  TeacherRegression::Options options;
  options.teacher.cfg_uncond_text = "zero";
  // c = 2, u = 0.
  for (const double g : {0.0, 1.0, 3.5}) {
    CAPTURE(g);
    bench.calls.clear();
    options.teacher.guidance_scale = g;
    const auto target = [&](double, double, double) { return 2 * g; };
    const auto got = bench.run<TeacherRegression>(options);
    CHECK(near(got.loss, mean_square(bench, target, 0).loss));
    CHECK(near(got.gradient, mean_square(bench, target, 0).gradient));
    const auto extra = [&](double, double, double) { return 2 + g * 2; };  // c + w (c - u)
    CHECK_FALSE(near(got.loss, mean_square(bench, extra, 0).loss));
    CHECK(bench.calls.size() == (g == 1 ? 1 : 2));
  }
  // c = 2, and u = 1 from the negative prompt, which has another number of tokens.
  options.teacher.cfg_uncond_text = "negative_prompt";
  CHECK(says(fault_of<TeacherRegression>(bench, options), "add [models.text_encoder]"));
  bench.encoder = basics::GuidedTeacher::kTextEncoder;
  const auto target = [](double, double, double) { return 4.5; };
  CHECK(near(bench.run<TeacherRegression>(options).loss, mean_square(bench, target, 0).loss));
}

TEST_CASE("losses of a velocity honour mask, weight and weighting") {
  Bench bench;
  bench.networks = {{basics::GuidedTeacher::kTeacher, teacher_of}};
  bench.extra.put("mask", at::tensor({0.0, 1.0, 1.0, 1.0}, at::kDouble).view({2, 2}));
  bench.extra.put("weight", at::tensor({3.0, 0.5}, at::kDouble));
  TeacherRegression::Options options;
  options.level.weighting = "sigma_sqrt";
  const auto slopes = mean_square(bench, teacher_of, 2).gradient;
  std::vector<double> expected;
  for (size_t i = 0; i < slopes.size(); ++i) {
    const double level = i < kPerSample ? 3.0 / 0.25 : 0.5 / 0.5625;
    expected.push_back(i < 2 ? 0 : slopes[i] * 8 / 6 * level);
  }
  CHECK(near(bench.run<TeacherRegression>(options).gradient, expected));
  expected[3] *= 1.001;
  CHECK_FALSE(near(bench.run<TeacherRegression>(options).gradient, expected));
}

// ---- teacher_score

namespace {

const Gaussian kData{1.5, 0.5};
const Gaussian kSamples{-0.5, 0.8};

Bench::Velocity network_of(const Gaussian& law) {
  return [law](double x, double sigma, double) { return law.velocity(x, sigma); };
}

// dL/dv in closed form: -sigma g / numel with g = (fake - real) / n; and L.
struct Score {
  double guidance_shift = 0;  // added to x0 of the teacher
  bool has_norm = true;
  double sign = 1;
  Bench::Result expected(const Bench& bench) const {
    const auto v = numbers(bench.velocity);
    const auto mixed = numbers(bench.noisy);
    const auto noise = numbers(video(4.0).to(at::kFloat));
    Bench::Result result{0, {}};
    for (size_t sample = 0; sample < 2; ++sample) {
      const double level = kLevels[sample];
      std::vector<double> difference;
      double norm = 0;
      for (size_t i = sample * kPerSample; i < (sample + 1) * kPerSample; ++i) {
        const double x = mixed[i] - kSigma[sample] * v[i];
        const double y = (1 - level) * x + level * noise[i];
        const double real = kData.x0(y, level) + guidance_shift * level;
        difference.push_back(sign * (kSamples.x0(y, level) - real));
        norm += std::abs(x - real) / kPerSample;
      }
      for (const double d : difference) {
        const double g = has_norm ? d / norm : d;
        result.loss += 0.5 * g * g / 8;
        result.gradient.push_back(-kSigma[sample] * g / 8);
      }
    }
    return result;
  }
};

}  // namespace

TEST_CASE("teacher_score has the closed form of two Gaussians") {
  Bench bench;
  bench.networks = {{basics::GuidedTeacher::kTeacher, network_of(kData)},
                    {TeacherScore::kCritic, network_of(kSamples)},
                    {TeacherScore::kStudent, teacher_of}};
  // Levels are f32 draws.
  const auto close = [](const Bench::Result& a, const Bench::Result& b) {
    double worst = std::abs(a.loss - b.loss);
    for (size_t i = 0; i < 8; ++i) {
      worst = std::max(worst, std::abs(a.gradient[i] - b.gradient[i]));
    }
    return worst < 1e-6;
  };
  const auto got = bench.run<TeacherScore>({});
  CHECK(close(got, Score().expected(bench)));
  CHECK_FALSE(close(got, Score{0, false, 1}.expected(bench)));
  CHECK_FALSE(close(got, Score{0, true, -1}.expected(bench)));
  CHECK_FALSE(close(got, Score{0.01, true, 1}.expected(bench)));
  CHECK(bench.calls.size() == 2);
  CHECK(bench.logged.at("teacher_score/nonfinite") == 0);
  CHECK(bench.logged.at("teacher_score/grad_abs_mean") > 0);
  CHECK(bench.logged.at("teacher_score/norm") > 0);

  // The critic's role left out: the student itself is asked, without history.
  bench.calls.clear();
  bench.networks = {{basics::GuidedTeacher::kTeacher, network_of(kData)},
                    {TeacherScore::kStudent, network_of(kSamples)}};
  CHECK(close(bench.run<TeacherScore>({}), Score().expected(bench)));
  CHECK(bench.calls[0].role == TeacherScore::kStudent);
  CHECK(bench.calls[0].flags == LB_RUN_NO_GRAD);
}

TEST_CASE("teacher_score stands still where student and teacher agree, and follows guidance else") {
  Bench bench;
  // v = text moves x0 by -sigma text.
  const auto network = [](double x, double sigma, double text) {
    return kData.velocity(x, sigma) - text;
  };
  bench.networks = {{basics::GuidedTeacher::kTeacher, network}, {TeacherScore::kStudent, network}};
  TeacherScore::Options options;
  const auto still = bench.run<TeacherScore>(options);
  CHECK(still.loss == 0);
  CHECK(still.gradient == std::vector<double>(8, 0.0));

  options.teacher.cfg_uncond_text = "zero";
  options.teacher.guidance_scale = 3;
  const auto moved = bench.run<TeacherScore>(options);
  for (const double slope : moved.gradient) {
    CHECK(slope > 0);  // x0 is to grow with the text, so the velocity is to fall
  }
}

TEST_CASE("teacher_score moves a sample towards the teacher's data") {
  // Teacher N(1, 1), critic N(0, 1), sample 0.
  Bench bench;
  bench.noisy = at::zeros({2, 1, 2, 1, 2}, at::kDouble);
  bench.velocity = at::zeros({2, 1, 2, 1, 2}, at::kDouble).requires_grad_(true);
  bench.networks = {{basics::GuidedTeacher::kTeacher, network_of({1, 1})},
                    {TeacherScore::kCritic, network_of({0, 1})}};
  // x = -sigma v: a step downhill lowers v, so x grows.
  for (const double slope : bench.run<TeacherScore>({}).gradient) {
    CHECK(slope > 0);
  }
}

TEST_CASE("teacher_score honours mask and weight") {
  Bench bench;
  bench.networks = {{basics::GuidedTeacher::kTeacher, network_of(kData)},
                    {TeacherScore::kCritic, network_of(kSamples)}};
  const auto plain = bench.run<TeacherScore>({});
  bench.extra.put("weight", at::tensor({3.0, 0.5}, at::kDouble));
  const auto weighted = bench.run<TeacherScore>({}).gradient;
  bench.extra.put("mask", at::tensor({0.0, 1.0, 1.0, 1.0}, at::kDouble).view({2, 2}));
  const auto masked = bench.run<TeacherScore>({}).gradient;
  std::vector<double> expected_weighted;
  std::vector<double> expected_masked;
  for (size_t i = 0; i < 8; ++i) {
    expected_weighted.push_back(plain.gradient[i] * (i < 4 ? 3.0 : 0.5));
    expected_masked.push_back(i < 2 ? 0 : expected_weighted.back() * 8 / 6);
  }
  CHECK(near(weighted, expected_weighted));
  CHECK(near(masked, expected_masked));
  CHECK_FALSE(near(weighted, plain.gradient));
}

TEST_CASE("teacher_score shifts its levels by its own shift, else by that of the pipeline") {
  Bench bench;
  bench.networks = {{basics::GuidedTeacher::kTeacher, network_of(kData)},
                    {TeacherScore::kCritic, network_of(kSamples)}};
  bench.run_facts.put("pipeline.flow_shift", 3.0);
  bench.run<TeacherScore>({});
  CHECK(std::abs(bench.calls.back().timestep[0] - 500) < 1e-3);  // 3/4 / (1 + 2/4)
  TeacherScore::Options options;
  options.flow_shift = 1;
  bench.run<TeacherScore>(options);
  CHECK(std::abs(bench.calls.back().timestep[0] - 250) < 1e-3);
  options.min_timestep_ratio = 0.4;
  options.max_timestep_ratio = 0.5;
  bench.run<TeacherScore>(options);
  CHECK(std::abs(bench.calls.back().timestep[0] - 400) < 1e-3);
  CHECK(std::abs(bench.calls.back().timestep[1] - 500) < 1e-3);
  options.max_timestep_ratio = 0.3;
  CHECK_THROWS_WITH(TeacherScore{options}, "min_timestep_ratio is larger than max_timestep_ratio");
}
