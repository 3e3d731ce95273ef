// SPDX-License-Identifier: Apache-2.0
// Networks: models, text encoders, VAEs and rewards. All four are parameters in units, and a
// function from batch to batch whose names a capability fixes.
//
// The host owns the parameters. A network declares them with a Builder and reaches them inside the
// bodies of its units, where they are gathered and in the compute dtype.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <limbeck/component.hpp>

namespace lb {
inline namespace v1 LB_HIDDEN {

using Unit = lb_unit;    // what the host shards, gathers, recomputes and offloads as one
using Param = lb_param;  // index of a parameter in its unit

// Lent to a network's constructor. Declares units and parameters in checkpoint order. [control]
class Builder {
 public:
  explicit Builder(lb_builder* builder) : builder_(builder) {}

  // A unit; its name is the prefix of its parameters' keys ("blocks.3"). LB_ROOT exists already.
  Unit unit(const std::string& name) const {
    lb_unit out = 0;
    check(builder_->unit(builder_, name.c_str(), &out));
    return out;
  }
  // A parameter. `init` is "zeros", "ones", "normal(0, 0.02)", "xavier_uniform" or
  // "kaiming_uniform"; `flags` are LB_PARAM_*.
  Param param(Unit unit,
              const std::string& name,
              Ints sizes,
              const std::string& init,
              uint32_t flags = 0,
              lb_dtype dtype = LB_F32) const {
    lb_param_spec spec{};
    spec.struct_size = sizeof(spec);
    spec.dtype = dtype;
    spec.name = name.c_str();
    spec.sizes = sizes.data();
    spec.ndim = static_cast<uint32_t>(sizes.size());
    spec.flags = flags;
    spec.init = init.c_str();
    lb_param out = LB_NO_PARAM;
    check(builder_->param(builder_, unit, &spec, &out));
    return out;
  }
  // Begins a further network of the same role with its own root, directory and weights.
  Unit part(const std::string& name) const {
    lb_unit root = 0;
    check(builder_->part(builder_, name.c_str(), &root));
    return root;
  }
  // The path of a file beside the weights ("tokenizer/spiece.model"); empty when there is none.
  std::string file(const std::string& name) const {
    const char* path = builder_->file(builder_, name.c_str());
    return path == nullptr ? "" : path;
  }

 private:
  lb_builder* builder_;
};

// One run of a unit's body. References live for the run; copy a Tensor to keep it. [compute]
class Call {
 public:
  explicit Call(const lb_unit_call* call) : call_(call) {}

  const Tensor& in(uint32_t index) const {
    if (index >= call_->n_in) {
      throw Error(LB_INTERNAL, "a unit has no input " + std::to_string(index));
    }
    return Tensor::view(call_->in)[index];
  }
  uint32_t size() const { return call_->n_in; }
  // A parameter of this unit; undefined if it is LB_PARAM_VIA_LINEAR, or LB_NO_PARAM.
  const Tensor& param(Param param) const {
    static const Tensor none;
    return param < call_->n_params ? Tensor::view(call_->params)[param] : none;
  }
  // Whether the host repeats the body during backward.
  bool again() const { return call_->again != 0; }

  // x . weight^T + bias through the host, which knows about adapters and quantised weights. `bias`
  // may be LB_NO_PARAM.
  Tensor linear(Param weight, Param bias, const Tensor& x) const {
    lb_tensor* out = nullptr;
    check(call_->ops->linear(call_, weight, bias, x.raw(), &out));
    return Tensor::take(out);
  }
  // Attention through the host: q, k, v [b, tokens, heads, head size] -> the same shape as q.
  Tensor attend(lb_attend spec, Tensors operands) const {
    spec.struct_size = sizeof(spec);
    lb_tensor* out = nullptr;
    check(call_->ops->attend(call_, &spec, reinterpret_cast<lb_tensor* const*>(operands.data()),
                             static_cast<uint32_t>(operands.size()), &out));
    return Tensor::take(out);
  }

 private:
  const lb_unit_call* call_;
};

// Lent to forward(). [control]
class Units {
 public:
  explicit Units(const lb_units* units) : units_(units) {}

  // Compute dtype of this run: cast what enters a unit.
  lb_dtype dtype() const { return units_->dtype; }
  // LB_RUN_* of this run.
  uint32_t flags() const { return units_->flags; }

  // Runs `body`, a function of `const Call&` that returns a Tensor or a vector of them, on `in`.
  // The body is kept until backward has repeated it: it captures by value, and no tensor that needs
  // a gradient. It is a pure function of its inputs and its unit's parameters.
  template <class Body>
  std::vector<Tensor> run(Unit unit, Tensors in, size_t n_out, Body body) const {
    std::vector<Tensor> out(n_out);
    lb_body boxed{};
    boxed.self = new Body(std::move(body));
    boxed.run = [](void* self, const lb_unit_call* call) noexcept {
      return guard("the body", nullptr,
                   [&] { fill(call, (*static_cast<Body*>(self))(Call(call))); });
    };
    boxed.release = [](void* self) noexcept { delete static_cast<Body*>(self); };
    check(units_->run(units_, unit, &boxed, reinterpret_cast<lb_tensor* const*>(in.data()),
                      static_cast<uint32_t>(in.size()), reinterpret_cast<lb_tensor**>(out.data()),
                      static_cast<uint32_t>(n_out)));
    return out;
  }
  // The same for a body with one result.
  template <class Body>
  Tensor run(Unit unit, Tensors in, Body body) const {
    return std::move(run(unit, in, 1, std::move(body))[0]);
  }
  // Sequence parallelism: this rank's share of dimension `dim`, and back; `size` is the length of
  // the whole. Split tokens and everything that has a value per token, such as rotary tables.
  Tensor split(const Tensor& whole, uint32_t dim) const {
    lb_tensor* out = nullptr;
    check(units_->split(units_, whole.raw(), dim, &out));
    return Tensor::take(out);
  }
  Tensor join(const Tensor& part, uint32_t dim, int64_t size) const {
    lb_tensor* out = nullptr;
    check(units_->join(units_, part.raw(), dim, size, &out));
    return Tensor::take(out);
  }

 private:
  static void fill(const lb_unit_call* call, Tensor result) {
    if (call->n_out != 1) {
      throw Error(LB_INTERNAL,
                  "a unit returned 1 tensor instead of " + std::to_string(call->n_out));
    }
    call->out[0] = result.release();
  }
  static void fill(const lb_unit_call* call, std::vector<Tensor> results) {
    if (call->n_out != results.size()) {
      throw Error(LB_INTERNAL, "a unit returned " + std::to_string(results.size()) +
                                   " tensors instead of " + std::to_string(call->n_out));
    }
    for (size_t i = 0; i < results.size(); ++i) {
      call->out[i] = results[i].release();
    }
  }
  const lb_units* units_;
};

// Base class. A subclass declares `static constexpr const char* kind` ("limbeck.model/1",
// "limbeck.text-encoder/1", "limbeck.vae/1" or "limbeck.reward/1") and `provides`; its constructor
// takes `(const Options&, const Builder&)`, or the builder alone.
class Network {
 public:
  Network() = default;
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;
  virtual ~Network() = default;

  // Adds what others need to know, by the names of the capability. Before weights are loaded.
  // [control]
  virtual void describe(Batch& facts) { static_cast<void>(facts); }
  // Reads the inputs its capability names, fills `out`. [control]
  virtual void forward(const Units& units, const Batch& in, Batch& out) = 0;
  // This network's key for one of a foreign checkpoint; empty: not one of ours. [any]
  virtual std::string rename(const std::string& foreign_key) { return {foreign_key, 0, 0}; }
};

// Registers T under `name`; `doc` is Markdown whose first line is the summary.
template <class T>
const lb_component* network(const char* name, const char* doc) {
  static const lb_model_vtable vtable = [] {
    lb_model_vtable v{};
    v.struct_size = sizeof(v);
    v.create = [](lb_state*, const lb_config* config, lb_builder* builder, void** out) noexcept {
      return guard("create()", detail::component_name<T>, [&] {
        Builder declare(builder);
        *out = detail::make<T>(config, declare).release();
      });
    };
    v.destroy = detail::destroy<T>;
    v.describe = [](void* self, lb_batch* facts) noexcept {
      return guard("describe()", detail::component_name<T>, [&] {
        auto entries = Batch::view(facts);
        static_cast<T*>(self)->describe(entries);
      });
    };
    v.forward = [](void* self, const lb_units* units, const lb_batch* in, lb_batch* out) noexcept {
      return guard("forward()", detail::component_name<T>, [&] {
        const auto inputs = Batch::view(in);
        auto outputs = Batch::view(out);
        static_cast<T*>(self)->forward(Units(units), inputs, outputs);
      });
    };
    if constexpr (LB_OVERRIDES(T, Network, rename)) {
      v.rename = [](void* self, const char* foreign_key, char* out, uint32_t capacity) noexcept {
        int32_t length = -1;
        report(guard("rename()", detail::component_name<T>, [&] {
          const auto key = static_cast<T*>(self)->rename(foreign_key);
          if (key.empty()) {
            return;
          }
          length = static_cast<int32_t>(key.size());
          if (capacity > 0) {
            const auto kept = key.copy(out, capacity - 1);
            out[kept] = '\0';
          }
        }));
        return length;
      };
    }
    return v;
  }();
  return detail::component<T>(T::kind, name, doc, &vtable);
}

}  // namespace v1
}  // namespace lb
