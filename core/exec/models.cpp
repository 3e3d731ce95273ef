// SPDX-License-Identifier: Apache-2.0
#include "core/exec/models.hpp"

#include "core/base/text.hpp"
#include "core/exec/forward.hpp"
#include "core/tensor/guard.hpp"

namespace limbeck {
namespace {

Role* role_at(const lb_models* models, uint32_t index) {
  const auto& roles = static_cast<const Models*>(models->ctx)->roles();
  return index < roles.size() ? roles[index] : nullptr;
}

lb_status* models_run(const lb_models* models,
                      uint32_t role,
                      uint32_t flags,
                      const lb_batch* in,
                      lb_batch* out) noexcept {
  return guarded([&] {
    auto* filled = role_at(models, role);
    if (filled == nullptr) {
      throw Error(Fault::kPlugin,
                  cat("role number ", role, " is not filled; the component declares ",
                      models->n_roles, " roles"),
                  "ask models->has() before running an optional role");
    }
    run_forward(*filled, flags, *in, *out);
  });
}

int32_t models_has(const lb_models* models, uint32_t role, const char* capability) noexcept {
  const auto* filled = role_at(models, role);
  return filled != nullptr && (capability == nullptr || filled->provides(capability)) ? 1 : 0;
}

const lb_batch* models_facts(const lb_models* models, uint32_t role) noexcept {
  const auto* filled = role_at(models, role);
  return filled != nullptr ? &filled->facts() : nullptr;
}

}  // namespace

Models::Models(std::vector<Role*> roles)
    : roles_(std::move(roles)), table_{sizeof(lb_models),
                                       static_cast<uint32_t>(roles_.size()),
                                       this,
                                       models_run,
                                       models_has,
                                       models_facts} {}

}  // namespace limbeck
