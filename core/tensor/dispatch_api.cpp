// SPDX-License-Identifier: Apache-2.0
// "limbeck.dispatch/1": operators by name. Arguments are checked against the operator's schema
// before the call, so that a plugin's mistake is a message and not undefined behaviour.
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>

#include "core/tensor/guard.hpp"
#include "core/tensor/handle.hpp"
#include "core/tensor/tensor_api.hpp"

struct lb_op {
  c10::OperatorHandle handle;
};

namespace limbeck {
namespace {

using c10::IValue;
using c10::TypeKind;

const char* const kKindNames[] = {"none",
                                  "a tensor",
                                  "a list of tensors",
                                  "an integer",
                                  "a list of integers",
                                  "a float",
                                  "a list of floats",
                                  "a bool",
                                  "a string",
                                  "a dtype",
                                  "a place"};

// One argument on its way to an operator.
struct Slot {
  const c10::OperatorHandle& op;
  const c10::Argument& argument;
  size_t index;

  [[noreturn]] void refuse(const lb_arg& given) const {
    const bool known = given.kind >= 0 && given.kind <= LB_ARG_PLACE;
    TORCH_CHECK(false, "argument ", index, " '", argument.name(), "' of ",
                toString(op.operator_name()), " takes ", argument.type()->str(), ", got ",
                known ? kKindNames[given.kind] : "an unknown kind of argument");
    throw;  // not reached
  }
};

// The type of an argument less its "optional".
c10::TypePtr required_type(const c10::Argument& argument) {
  auto type = argument.type();
  if (const auto optional = type->cast<c10::OptionalType>()) {
    return optional->getElementType();
  }
  return type;
}

IValue tensor_list(const Slot& slot, const lb_arg& given, const c10::TypePtr& type) {
  const auto list = type->cast<c10::ListType>();
  if (list == nullptr) {
    slot.refuse(given);
  }
  const bool takes_optional = list->getElementType()->kind() == TypeKind::OptionalType;
  if (takes_optional) {
    c10::List<std::optional<at::Tensor>> items;
    for (uint32_t i = 0; i < given.count; ++i) {
      auto* handle = given.u.tensors[i];
      items.push_back(handle != nullptr ? std::optional(tensor_of(handle)) : std::nullopt);
    }
    return items;
  }
  if (list->getElementType()->kind() != TypeKind::TensorType) {
    slot.refuse(given);
  }
  c10::List<at::Tensor> items;
  for (uint32_t i = 0; i < given.count; ++i) {
    if (given.u.tensors[i] == nullptr) {
      slot.refuse(given);
    }
    items.push_back(tensor_of(given.u.tensors[i]));
  }
  return items;
}

bool is_list_of(const c10::TypePtr& type, TypeKind kind) {
  const auto list = type->cast<c10::ListType>();
  return list != nullptr && list->getElementType()->kind() == kind;
}

IValue to_ivalue(const Slot& slot, const lb_arg& given) {
  const auto type = required_type(slot.argument);
  const auto kind = type->kind();
  switch (given.kind) {
    case LB_ARG_NONE:
      if (slot.argument.type()->kind() == TypeKind::OptionalType) {
        return IValue();
      }
      if (slot.argument.default_value().has_value()) {
        return *slot.argument.default_value();
      }
      slot.refuse(given);
    case LB_ARG_TENSOR:
      if (kind != TypeKind::TensorType || given.u.tensor == nullptr) {
        slot.refuse(given);
      }
      return tensor_of(given.u.tensor);
    case LB_ARG_TENSORS:
      return tensor_list(slot, given, type);
    case LB_ARG_INT:
      if (kind == TypeKind::FloatType) {
        return static_cast<double>(given.u.i);
      }
      if (is_list_of(type, TypeKind::IntType)) {
        return c10::List<int64_t>({given.u.i});
      }
      if (kind != TypeKind::IntType && kind != TypeKind::NumberType) {
        slot.refuse(given);
      }
      return given.u.i;
    case LB_ARG_INTS:
      if (!is_list_of(type, TypeKind::IntType)) {
        slot.refuse(given);
      }
      return at::IntArrayRef(given.u.ints, given.count).vec();
    case LB_ARG_FLOAT:
      if (kind != TypeKind::FloatType && kind != TypeKind::NumberType) {
        slot.refuse(given);
      }
      return given.u.f;
    case LB_ARG_FLOATS:
      if (!is_list_of(type, TypeKind::FloatType)) {
        slot.refuse(given);
      }
      return at::ArrayRef<double>(given.u.floats, given.count).vec();
    case LB_ARG_BOOL:
      if (kind != TypeKind::BoolType && kind != TypeKind::NumberType) {
        slot.refuse(given);
      }
      return given.u.i != 0;
    case LB_ARG_STRING:
      if (kind != TypeKind::StringType || given.u.string == nullptr) {
        slot.refuse(given);
      }
      return std::string(given.u.string);
    case LB_ARG_DTYPE:
      if (kind != TypeKind::IntType) {
        slot.refuse(given);
      }
      return static_cast<int64_t>(scalar_type(static_cast<lb_dtype>(given.u.i)));
    case LB_ARG_PLACE:
      if (kind != TypeKind::DeviceObjType) {
        slot.refuse(given);
      }
      return given.u.i == LB_DEVICE ? run_device() : at::Device(at::kCPU);
    default:
      slot.refuse(given);
  }
}

void put_result(const c10::OperatorHandle& op, const IValue& value, lb_arg& out) {
  out.count = 0;
  if (value.isTensor()) {
    out.kind = LB_ARG_TENSOR;
    out.u.tensor = value.toTensor().defined() ? give(value.toTensor()) : nullptr;
  } else if (value.isBool()) {
    out.kind = LB_ARG_BOOL;
    out.u.i = value.toBool() ? 1 : 0;
  } else if (value.isInt()) {
    out.kind = LB_ARG_INT;
    out.u.i = value.toInt();
  } else if (value.isDouble()) {
    out.kind = LB_ARG_FLOAT;
    out.u.f = value.toDouble();
  } else {
    TORCH_CHECK(false, toString(op.operator_name()), " returns a ", value.tagKind(),
                ", which cannot cross the plugin boundary");
  }
}

lb_status* op_find(const char* name, const char* overload, const lb_op** out) noexcept {
  return guarded([&] {
    static std::mutex mutex;
    static std::map<std::pair<std::string, std::string>, lb_op> found;  // nodes never move
    const std::lock_guard lock(mutex);
    const auto key = std::make_pair(std::string(name), std::string(overload));
    auto entry = found.find(key);
    if (entry == found.end()) {
      const auto handle = c10::Dispatcher::singleton().findSchema({key.first, key.second});
      TORCH_CHECK(handle.has_value(), "there is no operator '", name, *overload != '\0' ? "." : "",
                  overload, "' in this libtorch");
      entry = found.emplace(key, lb_op{*handle}).first;
    }
    *out = &entry->second;
  });
}

lb_status* op_call(
    const lb_op* op, const lb_arg* in, uint32_t n_in, lb_arg* out, uint32_t n_out) noexcept {
  return guarded([&] {
    const auto& arguments = op->handle.schema().arguments();
    TORCH_CHECK(n_in <= arguments.size(), toString(op->handle.operator_name()), " takes ",
                arguments.size(), " arguments, got ", n_in);
    torch::jit::Stack stack;
    stack.reserve(arguments.size());
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (i < n_in) {
        stack.push_back(to_ivalue(Slot{op->handle, arguments[i], i}, in[i]));
        continue;
      }
      TORCH_CHECK(arguments[i].default_value().has_value(), "argument ", i, " '",
                  arguments[i].name(), "' of ", toString(op->handle.operator_name()),
                  " is missing and has no default");
      stack.push_back(*arguments[i].default_value());
    }
    op->handle.callBoxed(&stack);
    // An only result that is a list of tensors is spread over `out`.
    if (stack.size() == 1 && stack[0].isTensorList()) {
      auto items = stack[0].toTensorVector();
      stack.assign(items.begin(), items.end());
    }
    TORCH_CHECK(stack.size() == n_out, toString(op->handle.operator_name()), " returns ",
                stack.size(), " values, the call expects ", n_out);
    for (uint32_t i = 0; i < n_out; ++i) {
      put_result(op->handle, stack[i], out[i]);
    }
  });
}

}  // namespace

const lb_dispatch_api& dispatch_api() {
  static const lb_dispatch_api api = {sizeof(lb_dispatch_api), 0, op_find, op_call};
  return api;
}

}  // namespace limbeck
