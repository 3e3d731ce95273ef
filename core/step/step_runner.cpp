// SPDX-License-Identifier: Apache-2.0
#include "core/step/step_runner.hpp"

#include <cmath>
#include <string>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>
#include <torch/csrc/autograd/autograd.h>

#include "core/base/profile.hpp"
#include "core/base/text.hpp"
#include "core/tensor/guard.hpp"
#include "core/tensor/handle.hpp"
#include "core/tensor/random.hpp"
#include "core/tensor/tensor_api.hpp"

namespace limbeck {

struct StepRunner::MicroStep {
  StepRunner* runner = nullptr;
  int64_t step = 0;
  uint32_t round_index = 0;
  const Round* round = nullptr;
  uint32_t micro = 0;
  uint32_t batches = 0;  // drawn so far in this micro-step
  const lb_batch* batch = nullptr;
  std::vector<at::Tensor> losses;  // of the round, detached, as given to backward
  std::vector<at::Tensor> rows;    // of the round: global sample indices

  std::string place() const {
    return cat("step ", step, ", round ", round_index, ", micro-step ", micro);
  }
};

namespace {

// Dropout in a body draws from libtorch's default generator, which starts at a key's seed in each
// micro-step: nothing has to be saved.
void seed_default_generator(int64_t step, uint32_t round, uint32_t micro) {
  const lb_key key = {sizeof(lb_key), LB_CONTROL, "libtorch.default", step, micro, round};
  auto generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  generator.set_current_seed(fold_key(key));
}

// The batch where networks compute.
std::shared_ptr<lb_batch> on_device(std::shared_ptr<lb_batch> batch) {
  if (run_device().is_cpu()) {
    return batch;
  }
  auto moved = std::make_shared<lb_batch>(*batch);
  for (auto& [name, entry] : moved->entries) {
    if (auto* tensor = std::get_if<at::Tensor>(&entry)) {
      *tensor = tensor->to(run_device());
    }
  }
  return moved;
}

std::string list_rows(const std::vector<at::Tensor>& rows) {
  constexpr size_t kShown = 32;
  std::vector<std::string> names;
  size_t left_out = 0;
  for (const auto& batch : rows) {
    const auto on_cpu = batch.cpu();
    for (int64_t i = 0; i < on_cpu.numel(); ++i) {
      if (names.size() < kShown) {
        names.push_back(std::to_string(on_cpu[i].item<int64_t>()));
      } else {
        ++left_out;
      }
    }
  }
  return join(names) + (left_out > 0 ? cat(" and ", left_out, " more") : "");
}

}  // namespace

StepRunner::StepRunner(StepParts parts) : parts_(std::move(parts)) {
  if (parts_.loader != nullptr) {
    data_.emplace(*parts_.loader, [this](lb_batch& batch) {
      if (current_ == nullptr) {
        throw Error(Fault::kPlugin, "training data was asked for outside a micro-step");
      }
      prepare(*current_, batch);
    });
  }
}

void StepRunner::start() {
  const auto& method = parts_.method;
  if (!LB_CAN(&method.vtable(), start)) {
    return;
  }
  MicroStep micro;
  micro.runner = this;
  Round none;
  micro.round = &none;
  auto step = make_step(micro);
  step.backward = nullptr;
  step.terms = nullptr;
  call_plugin([&] { return method.vtable().start(method.self(), &step); },
              [&] { return cat("while starting ", method.title()); });
}

void StepRunner::run(int64_t step, const std::function<void(uint32_t round)>& after_round) {
  samples_ = 0;
  const auto rounds = plan_step(parts_.method, parts_.models.roles(), parts_.accumulation, step);
  for (uint32_t index = 0; index < rounds.size(); ++index) {
    MicroStep micro;
    micro.runner = this;
    micro.step = step;
    micro.round_index = index;
    micro.round = &rounds[index];
    run_round(micro);
    after_round(index);
  }
  kept_.clear();
}

void StepRunner::rehearse(int64_t step) {
  const auto rounds = plan_step(parts_.method, parts_.models.roles(), parts_.accumulation, step);
  for (uint32_t index = 0; index < rounds.size(); ++index) {
    MicroStep micro;
    micro.runner = this;
    micro.step = step;
    micro.round_index = index;
    micro.round = &rounds[index];
    run_micro_steps(micro);
  }
  kept_.clear();
}

void StepRunner::run_round(MicroStep& micro) {
  const profile::Scope scope("round", "round");
  run_micro_steps(micro);
  update_roles(micro);
  average_shadows(*micro.round);
}

void StepRunner::run_micro_steps(MicroStep& micro) {
  if (!micro.round->repeats_data()) {
    kept_.clear();
  }
  for (micro.micro = 0; micro.micro < micro.round->micro_steps; ++micro.micro) {
    try {
      run_micro_step(micro);
    } catch (const Error& error) {
      throw error.with("at " + micro.place());
    } catch (const c10::Error& error) {
      throw Error(Fault::kInternal, error.what_without_backtrace()).with("at " + micro.place());
    }
  }
}

void StepRunner::run_micro_step(MicroStep& micro) {
  const profile::Scope scope("micro-step", "micro-step");
  seed_default_generator(micro.step, micro.round_index, micro.micro);
  micro.batches = 0;
  current_ = &micro;
  struct Ending {
    StepRunner& runner;
    ~Ending() { runner.current_ = nullptr; }
  } const ending{*this};

  std::shared_ptr<lb_batch> batch;
  if (!micro.round->owns_data()) {
    batch = raw_batch(micro);
    prepare(micro, *batch);
  }
  micro.batch = batch.get();
  const auto step = make_step(micro);
  const auto& method = parts_.method;
  lb_tensor* loss = nullptr;
  {
    const profile::Scope method_scope("method", method.spec().component->table->name);
    call_plugin([&] { return method.vtable().loss(method.self(), &step, &loss); },
                [&] { return method.title(); });
  }
  if (loss != nullptr) {
    differentiate(micro, 0, take(loss));
  }
  micro.batch = nullptr;
}

// The batch as the data set gave it. It is kept for a round that uses it again; a hook changes a
// copy, which shares the tensors.
std::shared_ptr<lb_batch> StepRunner::raw_batch(const MicroStep& micro) {
  if (!micro.round->repeats_data()) {
    if (parts_.loader == nullptr) {
      throw Error(Fault::kManifest,
                  cat("method '", parts_.method.spec().component->name(), "' needs training data"),
                  "add a [training.data] table to the manifest");
    }
    kept_.push_back(on_device(parts_.loader->next()));
  }
  return std::make_shared<lb_batch>(*kept_.at(micro.micro));
}

void StepRunner::prepare(MicroStep& micro, lb_batch& batch) {
  const at::NoGradGuard no_grad;
  const auto* before = std::exchange(micro.batch, &batch);
  for (const auto& hook : parts_.hooks.prepare) {
    const profile::Scope scope("hook", hook->instance.spec().component->table->name);
    const auto step = make_hook_step(micro, hook->models);
    const auto& instance = hook->instance;
    call_plugin([&] { return instance.vtable().prepare(instance.self(), &step, &batch); },
                [&] { return instance.title(); });
  }
  micro.batch = before;
  ++micro.batches;
  if (const auto* rows = batch.find<at::Tensor>("row")) {
    micro.rows.push_back(*rows);
    samples_ += rows->numel();
  }
}

lb_step StepRunner::make_step(MicroStep& micro) const {
  return {sizeof(lb_step),
          micro.round_index,
          micro.step,
          micro.micro,
          micro.round->micro_steps,
          micro.round->roles,
          0,
          &micro,
          &parts_.models.table(),
          data_.has_value() ? &data_->table() : nullptr,
          micro.batch,
          &parts_.facts,
          &parts_.metrics.table(),
          backward,
          terms};
}

lb_step StepRunner::make_hook_step(const MicroStep& micro, const Models& models) const {
  return {sizeof(lb_step),
          micro.round_index,
          micro.step,
          micro.micro,
          micro.round->micro_steps,
          0,
          micro.batches,
          nullptr,
          &models.table(),
          nullptr,
          micro.batch,
          &parts_.facts,
          &parts_.metrics.table(),
          nullptr,
          nullptr};
}

lb_status* StepRunner::backward(const lb_step* step, uint32_t bits, lb_tensor* loss) noexcept {
  return guarded([&] {
    auto& micro = *static_cast<MicroStep*>(step->ctx);
    micro.runner->differentiate(micro, bits, tensor_of(loss));
  });
}

void StepRunner::differentiate(MicroStep& micro, uint32_t bits, const at::Tensor& loss) {
  const uint32_t wanted = bits != 0 ? bits : micro.round->roles;
  const auto& roles = parts_.models.roles();
  std::vector<at::Tensor> leaves;
  std::vector<Role*> named;
  for (size_t i = 0; i < roles.size(); ++i) {
    if ((wanted >> i & 1U) == 0) {
      continue;
    }
    if (!micro.round->updates(i)) {
      throw Error(
          Fault::kPlugin,
          cat("backward() was asked for role '", roles[i] != nullptr ? roles[i]->name() : "?",
              "', which this round does not update"),
          "pass LB_BIT(role), not the role's index, and plan its update");
    }
    leaves.insert(leaves.end(), roles[i]->leaves().begin(), roles[i]->leaves().end());
    named.push_back(roles[i]);
  }
  if (wanted >> roles.size() != 0) {
    throw Error(Fault::kPlugin, cat("backward() got role bits ", bits, ", the method has ",
                                    roles.size(), " roles"));
  }
  if (loss.numel() != 1 || !loss.requires_grad()) {
    throw Error(Fault::kPlugin,
                cat("backward() takes a scalar loss with history, got a tensor of ", loss.numel(),
                    " elements ", loss.requires_grad() ? "with" : "without", " history"),
                "was the trained role run with grad mode on, and its output not detached?");
  }
  micro.losses.push_back(loss.detach());
  // A role that no gradient reaches is a fault of the method when it was named, so what earlier
  // calls reached is set aside and joined again.
  std::vector<bool> touched_before;
  for (auto* role : named) {
    touched_before.push_back(role->is_touched());
  }
  const profile::Timed timed(profile::Part::kBackward);
  const double micro_steps = micro.round->micro_steps;
  const auto scaled = micro.round->micro_steps == 1 ? loss : loss / micro_steps;
  torch::autograd::backward({scaled}, {}, std::nullopt, false, leaves);
  for (size_t i = 0; i < named.size(); ++i) {
    if (bits != 0 && !touched_before[i] && !named[i]->is_touched()) {
      throw Error(Fault::kPlugin, cat("the loss gives role '", named[i]->name(), "' no gradient"),
                  "was its output detached, or run with LB_RUN_NO_GRAD?");
    }
  }
}

lb_status* StepRunner::terms(const lb_step* step,
                             uint32_t role,
                             const lb_batch* values,
                             lb_tensor** out) noexcept {
  return guarded([&] {
    auto& micro = *static_cast<MicroStep*>(step->ctx);
    const auto& runner = *micro.runner;
    TORCH_CHECK(role < runner.parts_.models.roles().size(), "terms(): there is no role number ",
                role);
    auto sum = micro.runner->sum_terms(micro, *values);
    *out = sum.defined() ? give(std::move(sum)) : nullptr;
  });
}

at::Tensor StepRunner::sum_terms(const MicroStep& micro, const lb_batch& values) {
  at::Tensor sum;
  for (const auto& hook : parts_.hooks.losses) {
    const profile::Scope scope("hook", hook->instance.spec().component->table->name);
    auto step = make_hook_step(micro, hook->models);
    lb_tensor* result = nullptr;
    const auto& instance = hook->instance;
    call_plugin([&] { return instance.vtable().loss(instance.self(), &step, &values, &result); },
                [&] { return instance.title(); });
    if (result == nullptr) {
      throw Error(Fault::kPlugin, "the loss hook returned no loss").with(instance.title());
    }
    auto term = take(result);
    parts_.metrics.add("loss/" + instance.spec().component->name(), term, LB_MEAN);
    term = hook->weight == 1.0 ? term : term * hook->weight;
    sum = sum.defined() ? sum + term : term;
  }
  return sum;
}

// Everything is checked before anything moves.
void StepRunner::update_roles(MicroStep& micro) {
  const profile::Timed timed(profile::Part::kOptimizer);
  std::vector<RoleOptimizer*> updated;
  std::vector<double> norms;
  for (size_t i = 0; i < parts_.optimizers.size(); ++i) {
    if (micro.round->updates(i)) {
      updated.push_back(parts_.optimizers[i]);
      norms.push_back(parts_.optimizers[i]->grad_norm());
    }
  }
  check_finite(micro, norms);
  for (size_t i = 0; i < updated.size(); ++i) {
    auto& optimizer = *updated[i];
    const auto& name = optimizer.role().name();
    if (!optimizer.role().is_touched()) {
      throw Error(Fault::kPlugin,
                  cat("round ", micro.round_index, " of step ", micro.step, " updates role '", name,
                      "', but no loss gave it a gradient"));
    }
    parts_.metrics.add("grad_norm/" + name, norms[i], LB_LAST);
    parts_.metrics.add("lr/" + name, optimizer.learning_rate(), LB_LAST);
    const auto& max_norm = parts_.clip.max_grad_norm;
    optimizer.update(micro.step,
                     max_norm.has_value() ? RoleOptimizer::clip_scale(norms[i], *max_norm) : 1.0);
    optimizer.clear_grad();
  }
}

void StepRunner::check_finite(const MicroStep& micro, const std::vector<double>& norms) const {
  const at::NoGradGuard no_grad;
  std::vector<double> losses;
  bool is_finite = true;
  for (const auto& loss : micro.losses) {
    losses.push_back(loss.item<double>());
    is_finite = is_finite && std::isfinite(losses.back());
  }
  for (const double norm : norms) {
    is_finite = is_finite && std::isfinite(norm);
  }
  if (is_finite) {
    return;
  }
  const auto text = [](const std::vector<double>& values) {
    std::vector<std::string> items;
    for (const double value : values) {
      items.push_back(shortest(value));
    }
    return join(items);
  };
  throw Error(Fault::kNumeric,
              cat("a loss or gradient of step ", micro.step, " is not finite: losses ",
                  text(losses), ", gradient norms ", text(norms), "; samples (rows) ",
                  list_rows(micro.rows), "; the weights have not moved"),
              "look at these samples, lower training.optimizer.learning_rate, or clip gradients "
              "with [callbacks.grad_clip]");
}

void StepRunner::average_shadows(const Round& round) {
  const at::NoGradGuard no_grad;
  const auto& roles = parts_.models.roles();
  for (const auto& [index, decay] : round.averages) {
    auto& shadow = *roles[index];
    for (auto* role : roles) {
      if (role != nullptr && role->name() == shadow.spec().shadow_of) {
        shadow.master().lerp_(role->master(), 1.0 - decay);
      }
    }
  }
}

}  // namespace limbeck
