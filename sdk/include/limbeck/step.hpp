// SPDX-License-Identifier: Apache-2.0
// What methods, hooks and callbacks see of a run: networks, the step, random draws, metrics, state.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <limbeck/batch.hpp>
#include <limbeck/error.hpp>
#include <limbeck/tensor.hpp>

namespace lb {
inline namespace v1 LB_HIDDEN {

// The networks of the run. A role is an index into the table of the component that is called:
// a method's `roles`, the `needs` of a hook or callback. Lent for the call. [control]
class Models {
 public:
  explicit Models(const lb_models* models) : models_(models) {}

  // Runs a role's network on `in` and returns what its capability names. `flags` are LB_RUN_*.
  Batch run(uint32_t role, const Batch& in, uint32_t flags = 0) const {
    Batch out;
    check(get()->run(models_, role, flags, in.raw(), out.raw()));
    return out;
  }
  // Whether the role is filled and, unless nullptr, its network provides `capability`.
  bool has(uint32_t role, const char* capability = nullptr) const {
    return models_ != nullptr && models_->has(models_, role, capability) != 0;
  }
  // What the network says about itself, lent for the run; empty for an empty role.
  Batch facts(uint32_t role) const {
    return Batch::view(models_ == nullptr ? nullptr : models_->facts(models_, role));
  }

 private:
  const lb_models* get() const {
    if (models_ == nullptr) {
      throw Error(LB_FAILED_PRECONDITION, "there are no networks in this call");
    }
    return models_;
  }
  const lb_models* models_;
};

// Random draws, addressed by step, micro-step, purpose and index: the same address gives the same
// numbers, nothing is consumed. Give each draw its own purpose, or its own index in a loop. The
// round of a step and the turn of a prepare hook are part of the address already. [any]
class Draws {
 public:
  // `turn` tells repeated calls within one micro-step apart, `round` those of one step.
  Draws(int64_t step, uint32_t micro, uint32_t round = 0, uint32_t turn = 0)
      : step_(step), micro_(micro), offset_((round << 24U) + (turn << 16U)) {}

  // Standard normal, f32 on the run's device. Row i of dimension 0 belongs to sample i: its numbers
  // do not depend on how ranks and micro-steps share the batch.
  Tensor normal(const char* purpose, Ints sizes, uint32_t index = 0) const {
    const auto key = address(LB_NOISE, purpose, index);
    lb_tensor* out = nullptr;
    check(api().normal(&key, sizes.data(), static_cast<uint32_t>(sizes.size()), &out));
    return Tensor::take(out);
  }
  // Uniform in [0, 1), else as normal().
  Tensor uniform(const char* purpose, Ints sizes, uint32_t index = 0) const {
    const auto key = address(LB_NOISE, purpose, index);
    lb_tensor* out = nullptr;
    check(api().uniform(&key, sizes.data(), static_cast<uint32_t>(sizes.size()), &out));
    return Tensor::take(out);
  }
  // `count` integers of [low, high). LB_CONTROL: equal on every rank; LB_NOISE: one per sample.
  std::vector<int64_t> integers(lb_stream stream,
                                const char* purpose,
                                int64_t low,
                                int64_t high,
                                size_t count,
                                uint32_t index = 0) const {
    const auto key = address(stream, purpose, index);
    std::vector<int64_t> values(count);
    check(api().integers(&key, low, high, values.data(), static_cast<uint32_t>(count)));
    return values;
  }
  // One of 0 ... n - 1, equal on every rank.
  int64_t choose(const char* purpose, int64_t n, uint32_t index = 0) const {
    return integers(LB_CONTROL, purpose, 0, n, 1, index)[0];
  }
  // A permutation of 0 ... count - 1.
  std::vector<int64_t> permutation(lb_stream stream,
                                   const char* purpose,
                                   size_t count,
                                   uint32_t index = 0) const {
    const auto key = address(stream, purpose, index);
    std::vector<int64_t> values(count);
    check(api().permutation(&key, values.data(), static_cast<uint32_t>(count)));
    return values;
  }

 private:
  static const lb_random_api& api() {
    if (services.random == nullptr) {
      throw Error(LB_UNIMPLEMENTED, "this host does not have the service limbeck.random/1");
    }
    return *services.random;
  }
  lb_key address(lb_stream stream, const char* purpose, uint32_t index) const {
    lb_key key{};
    key.struct_size = sizeof(key);
    key.stream = stream;
    key.purpose = purpose;
    key.step = step_;
    key.micro = micro_;
    key.index = offset_ + index;
    return key;
  }
  int64_t step_;
  uint32_t micro_;
  uint32_t offset_;
};

// One micro-step, lent to start(), loss() and the hooks. [control]
class Step : public Draws {
 public:
  explicit Step(const lb_step* step)
      : Draws(step->step, step->micro, step->round, step->nth),
        step_(step),
        batch_(Batch::view(step->batch)),
        facts_(Batch::view(step->facts)) {}

  int64_t step() const { return step_->step; }       // from 1
  uint32_t micro() const { return step_->micro; }    // index of the micro-step in its round
  uint32_t micros() const { return step_->micros; }  // micro-steps of this round
  uint32_t round() const { return step_->round; }    // index into what plan() made
  uint32_t nth() const { return step_->nth; }        // in prepare(): which batch of the micro-step
  // Whether this round updates the method's role.
  bool updates(uint32_t role) const { return (step_->roles >> role & 1U) != 0; }

  Models models() const { return Models(step_->models); }
  // The micro-batch. Empty in start() and in a round with LB_ROUND_OWN_DATA.
  const Batch& batch() const { return batch_; }
  // Numbers of the manifest, such as "pipeline.flow_shift" and "data.train_batch_size", and
  // "run.seed", "run.name", "run.output_dir".
  const Batch& facts() const { return facts_; }

  // Differentiates `loss`, a scalar, with respect to the roles of `bits` (LB_BIT(role); 0: all that
  // this round updates) and adds to their gradients. For methods that need several losses; others
  // return theirs.
  void backward(uint32_t bits, const Tensor& loss) const {
    if (step_->backward == nullptr) {
      throw Error(LB_FAILED_PRECONDITION, "backward() belongs to methods");
    }
    check(step_->backward(step_, bits, loss.raw()));
  }
  // The weighted sum of the manifest's [[losses]] for `role`, each given `values`; undefined when
  // the manifest has none.
  Tensor terms(uint32_t role, const Batch& values) const {
    if (step_->terms == nullptr) {
      throw Error(LB_FAILED_PRECONDITION, "terms() belongs to methods");
    }
    lb_tensor* out = nullptr;
    check(step_->terms(step_, role, values.raw(), &out));
    return Tensor::take(out);
  }

  // Reports a metric of this step; `how` combines micro-steps and ranks. A tensor (a scalar one) is
  // not waited for.
  void log(const char* name, const Tensor& value, lb_reduce how = LB_MEAN) const {
    step_->metrics->tensor(step_->metrics, name, value.raw(), how);
  }
  template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>>
  void log(const char* name, T value, lb_reduce how = LB_MEAN) const {
    step_->metrics->scalar(step_->metrics, name, static_cast<double>(value), how);
  }

  // Rows of the training set, -1 for a stream; only methods have data.
  int64_t length() const { return data()->length(data()); }
  // The next micro-batch of this rank, through the prepare hooks. Collective.
  Batch next() const {
    lb_batch* out = nullptr;
    check(data()->next(data(), &out));
    return Batch::take(out);
  }
  // The rows a method chose itself. Collective; not for streams.
  Batch rows(const std::vector<int64_t>& indices) const {
    lb_batch* out = nullptr;
    check(data()->rows(data(), indices.data(), static_cast<uint32_t>(indices.size()), &out));
    return Batch::take(out);
  }

 private:
  const lb_data* data() const {
    if (step_->data == nullptr) {
      throw Error(LB_FAILED_PRECONDITION, "hooks have no access to the training data");
    }
    return step_->data;
  }
  const lb_step* step_;
  Batch batch_;
  Batch facts_;
};

// Where a component writes its state. Names are [a-z0-9_.]+ and unique within the component.
// Collective; between steps. [control]
class Writer {
 public:
  explicit Writer(lb_writer* writer) : writer_(writer) {}

  void tensor(const char* name, const Tensor& value, lb_spread spread = LB_SAME) const {
    check(writer_->tensor(writer_, name, value.raw(), spread));
  }
  void integer(const char* name, int64_t value) const {
    check(writer_->integer(writer_, name, value));
  }
  void number(const char* name, double value) const {
    check(writer_->number(writer_, name, value));
  }
  void bytes(const char* name, const std::string& value, lb_spread spread = LB_SAME) const {
    check(writer_->bytes(writer_, name, value.data(), value.size(), spread));
  }
  void batch(const char* name, const Batch& value, lb_spread spread = LB_SAME) const {
    check(writer_->batch(writer_, name, value.raw(), spread));
  }

 private:
  lb_writer* writer_;
};

// Where it reads it back. A name that was not written throws StatusError(LB_NOT_FOUND). [control]
class Reader {
 public:
  explicit Reader(const lb_reader* reader) : reader_(reader) {}

  // The component's state_version when the state was written.
  uint32_t version() const { return reader_->state_version; }
  Tensor tensor(const char* name) const {
    lb_tensor* out = nullptr;
    check(reader_->tensor(reader_, name, &out));
    return Tensor::take(out);
  }
  int64_t integer(const char* name) const {
    int64_t out = 0;
    check(reader_->integer(reader_, name, &out));
    return out;
  }
  double number(const char* name) const {
    double out = 0;
    check(reader_->number(reader_, name, &out));
    return out;
  }
  std::string bytes(const char* name) const {
    const void* data = nullptr;
    uint64_t size = 0;
    check(reader_->bytes(reader_, name, &data, &size));
    return {static_cast<const char*>(data), static_cast<size_t>(size)};
  }
  Batch batch(const char* name) const {
    lb_batch* out = nullptr;
    check(reader_->batch(reader_, name, &out));
    return Batch::take(out);
  }

 private:
  const lb_reader* reader_;
};

}  // namespace v1
}  // namespace lb
