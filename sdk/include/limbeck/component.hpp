// SPDX-License-Identifier: Apache-2.0
// How a class becomes an lb_component. Every kind has its own header with a base class and a
// registration function (lb::method, lb::prepare, ...); this one holds what they share.
//
// What a class may say about itself, as static constexpr members:
//   const char* provides[]   capabilities
//   uint32_t state_version   raised when save() writes something new
//   lb_role roles[]          of a method;  lb_role needs[]  of a hook or callback
//   const char* reads[]      entries it reads;  const char* writes[]  entries it adds
// It may have a nested `struct Options` (see options.hpp) that its constructor takes.
#pragma once

#include <iterator>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include <limbeck/error.hpp>
#include <limbeck/options.hpp>
#include <limbeck/step.hpp>

namespace lb {
inline namespace v1 LB_HIDDEN {

// For tables of roles.
inline constexpr uint32_t kFrozen = 0;
inline constexpr uint32_t kTrained = LB_ROLE_TRAINED;
inline constexpr uint32_t kOptional = LB_ROLE_OPTIONAL;
inline constexpr uint32_t kShadow = LB_ROLE_SHADOW;

namespace detail {

// The name under which a class was registered, for messages. One class, one name.
template <class T>
inline const char* component_name = "";

template <class T>
lb_options options_table() {
  if constexpr (requires { typename T::Options; }) {
    static const OptionTable* const table = [] {
      auto* made = new OptionTable;  // lives as long as the process, as descriptors must
      typename T::Options defaults;
      defaults.visit(*made);
      return made;
    }();
    return table->table();
  } else {
    return {static_cast<uint32_t>(sizeof(lb_option)), 0, nullptr};
  }
}

// Makes an instance from its options and whatever else its kind passes.
template <class T, class... More>
std::unique_ptr<T> make(const lb_config* config, More&&... more) {
  if constexpr (requires { typename T::Options; }) {
    typename T::Options options;
    OptionValues values(config);
    options.visit(values);
    return std::make_unique<T>(std::as_const(options), std::forward<More>(more)...);
  } else {
    return std::make_unique<T>(std::forward<More>(more)...);
  }
}

template <size_t n>
lb_roles role_table(const lb_role (&roles)[n]) {
  return {static_cast<uint32_t>(sizeof(lb_role)), static_cast<uint32_t>(n), roles};
}
inline lb_roles no_roles() { return {static_cast<uint32_t>(sizeof(lb_role)), 0, nullptr}; }
template <class T>
lb_roles needs_table() {
  if constexpr (requires { T::needs; }) {
    return role_table(T::needs);
  } else {
    return no_roles();
  }
}

// A NULL-terminated list of names that lives as long as the process; `names` may but need not be
// terminated itself.
template <class Names>
const char* const* name_list(const Names& names) {
  auto* list = new std::vector<const char*>;
  for (const char* name : names) {
    if (name != nullptr) {
      list->push_back(name);
    }
  }
  list->push_back(nullptr);
  return list->data();
}
template <class T>
const char* const* reads_list() {
  if constexpr (requires { T::reads; }) {
    static const char* const* const list = name_list(T::reads);
    return list;
  } else {
    return nullptr;
  }
}
template <class T>
const char* const* writes_list() {
  if constexpr (requires { T::writes; }) {
    static const char* const* const list = name_list(T::writes);
    return list;
  } else {
    return nullptr;
  }
}
template <class T>
const char* const* provides_list() {
  if constexpr (requires { T::provides; }) {
    static const char* const* const list = name_list(T::provides);
    return list;
  } else {
    return nullptr;
  }
}

template <class T>
void destroy(void* self) noexcept {
  delete static_cast<T*>(self);
}
template <class T>
lb_status* save(void* self, lb_writer* writer) noexcept {
  return guard("save()", component_name<T>, [&] {
    Writer state(writer);
    static_cast<T*>(self)->save(state);
  });
}
template <class T>
lb_status* load(void* self, const lb_reader* reader) noexcept {
  return guard("load()", component_name<T>, [&] {
    const Reader state(reader);
    static_cast<T*>(self)->load(state);
  });
}

// Whether T overrides a virtual member of its base: the pointer then has T's (or a class between
// them as) scope.
#define LB_OVERRIDES(T, Base, member) \
  (!std::is_same_v<decltype(&T::member), decltype(&Base::member)>)

template <class T>
const lb_component* component(const char* kind,
                              const char* name,
                              const char* doc,
                              const void* vtable,
                              const void* (*get_extension)(const char*)LB_NOEXCEPT = nullptr) {
  component_name<T> = name;
  auto* made = new lb_component{};  // lives as long as the process
  made->struct_size = sizeof(lb_component);
  if constexpr (requires { T::state_version; }) {
    made->state_version = T::state_version;
  }
  made->kind = kind;
  made->name = name;
  made->doc = doc;
  made->options = options_table<T>();
  made->provides = provides_list<T>();
  made->vtable = vtable;
  made->get_extension = get_extension;
  if constexpr (requires { T::extension(name); }) {
    if (get_extension == nullptr) {
      made->get_extension = [](const char* id) noexcept -> const void* { return T::extension(id); };
    }
  }
  return made;
}

}  // namespace detail
}  // namespace v1
}  // namespace lb
