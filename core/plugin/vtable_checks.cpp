// SPDX-License-Identifier: Apache-2.0
// The vtable of each kind of component. The rows below are the v1.0 header's functions that may
// not be NULL: those whose comment in abi.h gives NULL no meaning.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <set>
#include <sstream>
#include <string_view>

#include "core/base/text.hpp"
#include "core/manifest/strided.hpp"
#include "core/plugin/checks.hpp"
#include "core/plugin/plugin_text.hpp"

namespace limbeck {
namespace {

constexpr uint32_t kMaxRoles = 32;
constexpr uint32_t kMaxNames = 1024;
constexpr uint32_t kMaxSaved = 16;

// What of a vtable has the same form in several kinds.
enum class Content { kFunction, kRoles, kReads, kWrites };

struct Slot {
  const char* name;
  size_t offset;
  Content content = Content::kFunction;
};

struct KindRule {
  const char* kind;
  size_t size;  // of the v1.0 vtable
  std::vector<Slot> slots;
  // Two functions of which a plugin has both or none: save() and load().
  std::vector<Slot> pair = {};
};

#define LB_SLOT(type, member) \
  Slot { #member, offsetof(type, member) }
#define LB_CONTENT(type, member, content) \
  Slot { #member, offsetof(type, member), Content::content }

std::vector<Slot> network_slots() {
  return {LB_SLOT(lb_model_vtable, create), LB_SLOT(lb_model_vtable, destroy),
          LB_SLOT(lb_model_vtable, describe), LB_SLOT(lb_model_vtable, forward)};
}

const std::vector<KindRule>& rules() {
  static const std::vector<KindRule> all = {
      {"limbeck.model/1", sizeof(lb_model_vtable), network_slots()},
      {"limbeck.text-encoder/1", sizeof(lb_model_vtable), network_slots()},
      {"limbeck.vae/1", sizeof(lb_model_vtable), network_slots()},
      {"limbeck.reward/1", sizeof(lb_model_vtable), network_slots()},
      {"limbeck.attention/1",
       sizeof(lb_attention_vtable),
       {LB_SLOT(lb_attention_vtable, create), LB_SLOT(lb_attention_vtable, destroy),
        LB_SLOT(lb_attention_vtable, supports), LB_SLOT(lb_attention_vtable, forward)}},
      {"limbeck.method/1",
       sizeof(lb_method_vtable),
       {LB_CONTENT(lb_method_vtable, roles, kRoles), LB_CONTENT(lb_method_vtable, reads, kReads),
        LB_SLOT(lb_method_vtable, create), LB_SLOT(lb_method_vtable, destroy),
        LB_SLOT(lb_method_vtable, loss)},
       {LB_SLOT(lb_method_vtable, save), LB_SLOT(lb_method_vtable, load)}},
      {"limbeck.prepare/1",
       sizeof(lb_prepare_vtable),
       {LB_CONTENT(lb_prepare_vtable, needs, kRoles), LB_CONTENT(lb_prepare_vtable, reads, kReads),
        LB_CONTENT(lb_prepare_vtable, writes, kWrites), LB_SLOT(lb_prepare_vtable, create),
        LB_SLOT(lb_prepare_vtable, destroy), LB_SLOT(lb_prepare_vtable, prepare)},
       {LB_SLOT(lb_prepare_vtable, save), LB_SLOT(lb_prepare_vtable, load)}},
      {"limbeck.loss/1",
       sizeof(lb_loss_vtable),
       {LB_CONTENT(lb_loss_vtable, needs, kRoles), LB_CONTENT(lb_loss_vtable, reads, kReads),
        LB_SLOT(lb_loss_vtable, create), LB_SLOT(lb_loss_vtable, destroy),
        LB_SLOT(lb_loss_vtable, loss)},
       {LB_SLOT(lb_loss_vtable, save), LB_SLOT(lb_loss_vtable, load)}},
      {"limbeck.callback/1",
       sizeof(lb_callback_vtable),
       {LB_CONTENT(lb_callback_vtable, needs, kRoles),
        LB_CONTENT(lb_callback_vtable, reads, kReads), LB_SLOT(lb_callback_vtable, create),
        LB_SLOT(lb_callback_vtable, destroy), LB_SLOT(lb_callback_vtable, event)},
       {LB_SLOT(lb_callback_vtable, save), LB_SLOT(lb_callback_vtable, load)}},
      {"limbeck.dataset/1",
       sizeof(lb_dataset_vtable),
       {LB_SLOT(lb_dataset_vtable, open), LB_SLOT(lb_dataset_vtable, close),
        LB_SLOT(lb_dataset_vtable, length), LB_SLOT(lb_dataset_vtable, fields),
        LB_SLOT(lb_dataset_vtable, read)},
       {LB_SLOT(lb_dataset_vtable, save), LB_SLOT(lb_dataset_vtable, load)}},
      {"limbeck.tracker/1",
       sizeof(lb_tracker_vtable),
       {LB_SLOT(lb_tracker_vtable, open), LB_SLOT(lb_tracker_vtable, scalars),
        LB_SLOT(lb_tracker_vtable, close)}},
  };
  return all;
}

#undef LB_SLOT
#undef LB_CONTENT

// [a-z0-9_.]+
bool is_entry_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxName &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
         });
}

Faults check_role_capabilities(const char* text) {
  if (text == nullptr) {
    return {};
  }
  std::istringstream words{std::string(bounded(text, kMaxText))};
  for (std::string word; words >> word;) {
    if (!is_capability(word)) {
      return {cat("it needs ", in_quotes(word.c_str()),
                  ", expected a capability like 'limbeck.video-dit/1'")};
    }
  }
  return {};
}

Faults check_role(const std::vector<lb_role>& roles, const char* table, uint32_t index) {
  const lb_role& role = roles[index];
  const std::string where = cat("role ", index, " of `", table, "`: ");
  Faults faults;
  if (role.name == nullptr || !is_component_name(bounded(role.name, kMaxName))) {
    faults.push_back(cat(where, "its name is ", shown(role.name), ", expected [a-z0-9_]+"));
  }
  for (const auto& fault : check_role_capabilities(role.capabilities)) {
    faults.push_back(where + fault);
  }
  constexpr uint32_t kKnown = LB_ROLE_OPTIONAL | LB_ROLE_TRAINED | LB_ROLE_SHADOW;
  if ((role.flags & ~kKnown) != 0) {
    faults.push_back(cat(where, "flags ", role.flags & ~kKnown, " are unknown to this limbeck"));
  }
  if ((role.flags & LB_ROLE_SHADOW) != 0) {
    if ((role.flags & LB_ROLE_TRAINED) != 0) {
      faults.push_back(cat(where,
                           "it is both trained and a shadow; a shadow moves by averages "
                           "only"));
    }
    if (role.of >= roles.size() || role.of == index ||
        (roles[role.of].flags & LB_ROLE_SHADOW) != 0) {
      faults.push_back(cat(where, "it is a shadow of role ", role.of,
                           ", expected the index of a role that is not a shadow"));
    }
  }
  return faults;
}

Faults check_roles(const lb_roles& roles, const char* table, Header header) {
  if (roles.count == 0) {
    return {};
  }
  if (roles.count > kMaxRoles) {
    return {cat("`", table, "` has ", roles.count, " roles, at most ", kMaxRoles, " are possible")};
  }
  if (Faults faults =
          check_size(cat("`", table, "` has stride"), roles.stride, sizeof(lb_role), header);
      !faults.empty()) {
    return faults;
  }
  if (roles.stride % alignof(lb_role) != 0) {
    return {cat("`", table, "` has stride ", roles.stride, ", expected a multiple of ",
                alignof(lb_role))};
  }
  if (roles.items == nullptr) {
    return {cat("`", table, "` has ", roles.count, " roles, but its list is NULL")};
  }
  Faults faults;
  std::set<std::string> names;
  const auto items = read_roles(roles);
  for (uint32_t i = 0; i < roles.count; ++i) {
    const Faults own = check_role(items, table, i);
    faults.insert(faults.end(), own.begin(), own.end());
    if (items[i].name != nullptr &&
        !names.insert(std::string(bounded(items[i].name, kMaxName))).second) {
      faults.push_back(cat("role ", in_quotes(items[i].name), " is twice in `", table, "`"));
    }
  }
  return faults;
}

Faults check_names(const char* const* names, const Slot& slot) {
  if (names == nullptr) {
    return {};
  }
  for (uint32_t i = 0; names[i] != nullptr; ++i) {
    if (i == kMaxNames) {
      return {cat("`", slot.name, "` has no NULL after ", i, " entries")};
    }
    std::string_view name = bounded(names[i], kMaxName);
    if (slot.content == Content::kReads && name.ends_with('?')) {
      name.remove_suffix(1);
    }
    if (!is_entry_name(name)) {
      return {
          cat("`", slot.name, "` has the entry ", in_quotes(names[i]), ", expected [a-z0-9_.]+",
              slot.content == Content::kReads ? ", with '?' after it if it may be missing" : "")};
    }
  }
  return {};
}

// Members are read bytewise: the vtable's type is known by its kind only.
template <class T>
T member(const void* vtable, const Slot& slot) {
  T value{};
  std::memcpy(&value, static_cast<const char*>(vtable) + slot.offset, sizeof(value));
  return value;
}

Faults check_slot(const void* vtable, const Slot& slot, Header header) {
  switch (slot.content) {
    case Content::kFunction:
      if (member<const void*>(vtable, slot) == nullptr) {
        return {cat("its function `", slot.name, "` is NULL, but required")};
      }
      return {};
    case Content::kRoles:
      return check_roles(member<lb_roles>(vtable, slot), slot.name, header);
    case Content::kReads:
    case Content::kWrites:
      return check_names(member<const char* const*>(vtable, slot), slot);
  }
  return {};
}

bool is_null(const void* vtable, const Slot& slot) {
  return member<const void*>(vtable, slot) == nullptr;
}

Faults check_pair(const void* vtable, const std::vector<Slot>& pair) {
  if (pair.empty() || is_null(vtable, pair[0]) == is_null(vtable, pair[1])) {
    return {};
  }
  return {cat("it has only one of `", pair[0].name, "` and `", pair[1].name,
              "`; expected both or none")};
}

Faults check_saved(const lb_component& component) {
  const auto& vtable = *static_cast<const lb_attention_vtable*>(component.vtable);
  if (vtable.n_saved > kMaxSaved) {
    return {cat("its n_saved is ", vtable.n_saved, ", at most ", kMaxSaved, " are possible")};
  }
  if (vtable.n_saved > 0 && vtable.backward == nullptr) {
    return {cat("it saves ", vtable.n_saved, " tensors for a `backward` that is NULL")};
  }
  return {};
}

}  // namespace

std::vector<std::string> known_kinds() {
  std::vector<std::string> kinds;
  for (const auto& rule : rules()) {
    kinds.emplace_back(rule.kind);
  }
  return kinds;
}

Faults check_vtable(const lb_component& component, Header header) {
  const auto rule = std::find_if(rules().begin(), rules().end(), [&](const KindRule& candidate) {
    return std::strcmp(candidate.kind, component.kind) == 0;
  });
  if (component.vtable == nullptr) {
    return {"its vtable is NULL"};
  }
  const auto size = member<uint32_t>(component.vtable, {"struct_size", 0});
  Faults faults = check_size("its vtable has struct_size", size, rule->size, header);
  if (!faults.empty()) {
    return faults;
  }
  const auto append = [&faults](const Faults& more) {
    faults.insert(faults.end(), more.begin(), more.end());
  };
  for (const auto& slot : rule->slots) {
    append(check_slot(component.vtable, slot, header));
  }
  append(check_pair(component.vtable, rule->pair));
  if (rule->kind == std::string_view("limbeck.attention/1")) {
    append(check_saved(component));
  }
  return faults;
}

}  // namespace limbeck
