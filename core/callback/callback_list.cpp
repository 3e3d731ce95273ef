// SPDX-License-Identifier: Apache-2.0
#include "core/callback/callback_list.hpp"

#include <utility>

#include "core/base/log.hpp"
#include "core/base/profile.hpp"
#include "core/base/text.hpp"

namespace limbeck {
namespace {

void event_request(const lb_event* event, uint32_t what) noexcept {
  *static_cast<uint32_t*>(event->ctx) |= what;
}

}  // namespace

CallbackList::CallbackList(const Manifest& manifest,
                           const RoleSet& roles,
                           Loader* loader,
                           const lb_batch& facts,
                           Metrics& metrics)
    : facts_(facts), metrics_(metrics), max_steps_(manifest.loop.max_train_steps) {
  for (const auto& spec : manifest.callbacks) {
    entries_.push_back(std::make_unique<Entry>(spec, roles));
  }
  if (loader != nullptr) {
    data_ = std::make_unique<DataService>(*loader, nullptr);
  }
}

bool CallbackList::wants(const Entry& entry, lb_event_kind kind, int64_t step) const {
  if ((entry.instance.vtable().events >> kind & 1U) == 0) {
    return false;
  }
  if (kind != LB_ON_VALIDATE) {
    return true;
  }
  return validation_was_requested_ || (entry.every_steps > 0 && step % entry.every_steps == 0);
}

lb_event CallbackList::make_event(const Entry& entry,
                                  lb_event_kind kind,
                                  const EventFacts& facts,
                                  const lb_batch* values) {
  const bool is_error = kind == LB_ON_ERROR;
  return {sizeof(lb_event),
          kind,
          facts.step,
          max_steps_,
          &requests_,
          is_error ? nullptr : &entry.models.table(),
          is_error || data_ == nullptr ? nullptr : &data_->table(),
          &facts_,
          values,
          &metrics_.table(),
          facts.text.empty() ? nullptr : facts.text.c_str(),
          event_request};
}

void CallbackList::tell(lb_event_kind kind, const EventFacts& facts) {
  std::unique_ptr<lb_batch> values;
  if (facts.values != nullptr) {
    values = std::make_unique<lb_batch>();
    for (const auto& [name, value] : *facts.values) {
      values->put(name, value);
    }
  }
  const at::NoGradGuard no_grad;
  for (auto& entry : entries_) {
    if (!wants(*entry, kind, facts.step)) {
      continue;
    }
    const auto event = make_event(*entry, kind, facts, values.get());
    const profile::Scope scope("callback", entry->instance.spec().component->table->name);
    const auto& instance = entry->instance;
    try {
      call_plugin([&] { return instance.vtable().event(instance.self(), &event); },
                  [&] { return instance.title(); });
    } catch (const Error& error) {
      if (kind != LB_ON_ERROR) {
        throw;
      }
      log::warn("callback", error.what());  // the first error is the one to tell
    }
  }
  if (kind == LB_ON_VALIDATE) {
    validation_was_requested_ = false;
  }
}

bool CallbackList::may_save(int64_t step) {
  const at::NoGradGuard no_grad;
  bool may = true;
  for (auto& entry : entries_) {
    if (!wants(*entry, LB_ON_SAVE, step)) {
      continue;
    }
    const auto event = make_event(*entry, LB_ON_SAVE, {step, nullptr, ""}, nullptr);
    const auto& instance = entry->instance;
    call_plugin(
        [&] {
          lb_status* status = instance.vtable().event(instance.self(), &event);
          if (status != nullptr && status->code == LB_UNAVAILABLE) {
            drop_status(status);
            status = nullptr;
            may = false;
          }
          return status;
        },
        [&] { return instance.title(); });
  }
  return may;
}

std::vector<Stateful> CallbackList::stateful() const {
  std::vector<Stateful> all;
  for (const auto& entry : entries_) {
    all.push_back(limbeck::stateful("callbacks." + entry->name, entry->instance));
  }
  return all;
}

uint32_t CallbackList::take_requests() {
  const uint32_t requests = std::exchange(requests_, 0);
  validation_was_requested_ = validation_was_requested_ || (requests & LB_WANT_VALIDATION) != 0;
  return requests;
}

CallbackList::Extension CallbackList::find_extension(const char* id) {
  for (auto& entry : entries_) {
    const auto* component = entry->instance.spec().component->table;
    const void* table = LB_CAN(component, get_extension) ? component->get_extension(id) : nullptr;
    if (table != nullptr) {
      return {table, entry->instance.self(), make_event(*entry, LB_ON_VALIDATE, {}, nullptr)};
    }
  }
  return {};
}

}  // namespace limbeck
