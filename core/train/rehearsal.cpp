// SPDX-License-Identifier: Apache-2.0
#include "core/train/rehearsal.hpp"

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <vector>

#include <ATen/ExpandUtils.h>
#include <ATen/WrapDimUtils.h>
#include <c10/core/Allocator.h>
#include <torch/library.h>

#include <nlohmann/json.hpp>

#include "core/base/log.hpp"
#include "core/base/text.hpp"
#include "core/tensor/tensor_api.hpp"
#include "core/train/run.hpp"

namespace limbeck {
namespace {

using Message = nlohmann::json;

constexpr std::chrono::seconds kLongest{120};

// ---- Shapes of operators that libtorch has in Python alone, or not for what a CPU runs

std::tuple<at::Tensor, at::Tensor, at::Tensor> layer_norm_shapes(
    const at::Tensor& x,
    at::IntArrayRef normalized,
    const std::optional<at::Tensor>& /*weight*/,
    const std::optional<at::Tensor>& /*bias*/,
    double /*eps*/) {
  auto sizes = x.sizes().vec();
  TORCH_CHECK(sizes.size() >= normalized.size() &&
                  std::equal(normalized.rbegin(), normalized.rend(), sizes.rbegin()),
              "layer_norm over ", normalized, " got ", x.sizes());
  std::fill(sizes.end() - static_cast<int64_t>(normalized.size()), sizes.end(), 1);
  return {at::empty(x.sizes(), x.options()), at::empty(sizes, x.options()),
          at::empty(sizes, x.options())};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> layer_norm_grad_shapes(
    const at::Tensor& /*grad_out*/,
    const at::Tensor& x,
    at::IntArrayRef /*normalized*/,
    const at::Tensor& /*mean*/,
    const at::Tensor& /*rstd*/,
    const std::optional<at::Tensor>& weight,
    const std::optional<at::Tensor>& bias,
    std::array<bool, 3> wanted) {
  const auto like = [](const std::optional<at::Tensor>& of, bool is_wanted) {
    return is_wanted && of.has_value() && of->defined() ? at::empty(of->sizes(), of->options())
                                                        : at::Tensor();
  };
  return {like(x, wanted[0]), like(weight, wanted[1]), like(bias, wanted[2])};
}

at::Tensor mse_loss_grad_shape(const at::Tensor& /*grad_out*/,
                               const at::Tensor& x,
                               const at::Tensor& /*target*/,
                               int64_t /*reduction*/) {
  return at::empty(x.sizes(), x.options());
}

at::Tensor where_shape(const at::Tensor& condition, const at::Tensor& a, const at::Tensor& b) {
  const auto sizes = at::infer_size(condition.sizes(), at::infer_size(a.sizes(), b.sizes()));
  return at::empty(sizes, condition.options().dtype(at::result_type(a, b)));
}

at::Tensor same_shape(const at::Tensor& x) { return at::empty(x.sizes(), x.options()); }

at::Tensor index_select_shape(const at::Tensor& x, int64_t dim, const at::Tensor& index) {
  auto sizes = x.sizes().vec();
  if (!sizes.empty()) {
    sizes[static_cast<size_t>(at::maybe_wrap_dim(dim, x.dim()))] = index.numel();
  }
  return at::empty(sizes, x.options());
}

at::Tensor embedding_grad_shape(const at::Tensor& grad_out,
                                const at::Tensor& /*indices*/,
                                int64_t count,
                                int64_t /*padding*/,
                                bool /*scales*/) {
  return at::empty({count, grad_out.size(-1)}, grad_out.options());
}

at::Tensor convolution_shape(const at::Tensor& x,
                             const at::Tensor& weight,
                             const std::optional<at::Tensor>& /*bias*/,
                             at::IntArrayRef stride,
                             at::IntArrayRef padding,
                             at::IntArrayRef dilation,
                             bool is_transposed,
                             at::IntArrayRef output_padding,
                             int64_t groups) {
  auto sizes = x.sizes().vec();
  sizes[1] = is_transposed ? weight.size(1) * groups : weight.size(0);
  for (size_t i = 2; i < sizes.size(); ++i) {
    const auto [s, p, d, more] =
        std::tuple(stride[i - 2], padding[i - 2], dilation[i - 2], output_padding[i - 2]);
    const int64_t reach = d * (weight.sizes()[i] - 1);
    sizes[i] = is_transposed ? (sizes[i] - 1) * s - 2 * p + reach + more + 1
                             : (sizes[i] + 2 * p - reach - 1) / s + 1;
  }
  return at::empty(sizes, x.options());
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_grad_shapes(
    const at::Tensor& grad_out,
    const at::Tensor& x,
    const at::Tensor& weight,
    at::IntArrayRef /*stride*/,
    at::IntArrayRef /*padding*/,
    at::IntArrayRef /*dilation*/,
    bool /*is_transposed*/,
    at::IntArrayRef /*output_padding*/,
    int64_t /*groups*/,
    std::array<bool, 3> wanted) {
  const auto empty = [&](at::IntArrayRef sizes, bool is_wanted) {
    return is_wanted ? at::empty(sizes, x.options()) : at::Tensor();
  };
  return {empty(x.sizes(), wanted[0]), empty(weight.sizes(), wanted[1]),
          empty({grad_out.size(1)}, wanted[2])};
}

// Of attention libtorch knows the general formula, which keeps all scores; a CPU runs the tiled
// one, which keeps one number for each query and head.

std::tuple<at::Tensor, at::Tensor> attention_shapes(const at::Tensor& q,
                                                    const at::Tensor& /*k*/,
                                                    const at::Tensor& /*v*/,
                                                    double /*dropout*/,
                                                    bool /*is_causal*/,
                                                    const std::optional<at::Tensor>& /*mask*/,
                                                    std::optional<double> /*scale*/) {
  const auto type = q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  auto out = at::empty({q.size(0), q.size(2), q.size(1), q.size(3)}, q.options());
  auto sums = at::empty({q.size(0), q.size(2), q.size(1)}, q.options().dtype(type));
  return {out.transpose(1, 2), sums.transpose(1, 2)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> attention_grad_shapes(
    const at::Tensor& /*grad_out*/,
    const at::Tensor& q,
    const at::Tensor& k,
    const at::Tensor& v,
    const at::Tensor& /*out*/,
    const at::Tensor& /*sums*/,
    double /*dropout*/,
    bool /*is_causal*/,
    const std::optional<at::Tensor>& /*mask*/,
    std::optional<double> /*scale*/) {
  const auto like = [](const at::Tensor& x) {
    return at::empty({x.size(0), x.size(2), x.size(1), x.size(3)}, x.options()).transpose(1, 2);
  };
  return {like(q), like(k), like(v)};
}

at::Tensor attention(const at::Tensor& q,
                     const at::Tensor& k,
                     const at::Tensor& v,
                     const std::optional<at::Tensor>& mask,
                     double dropout,
                     bool is_causal,
                     std::optional<double> scale,
                     bool /*has_groups*/) {
  std::optional<at::Tensor> bias;
  if (mask.has_value() && mask->defined()) {
    bias = mask->to(q.scalar_type());
  }
  return std::get<0>(
      at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, dropout, is_causal, bias, scale));
}

TORCH_LIBRARY_IMPL(aten, Meta, library) {
  library.impl("mse_loss_backward", mse_loss_grad_shape);
  library.impl("relu", same_shape);
  library.impl("where.self", where_shape);
  library.impl("index_select", index_select_shape);
  library.impl("embedding_dense_backward", embedding_grad_shape);
  library.impl("convolution_overrideable", convolution_shape);
  library.impl("convolution_backward_overrideable", convolution_grad_shapes);
  library.impl("native_layer_norm", layer_norm_shapes);
  library.impl("native_layer_norm_backward", layer_norm_grad_shapes);
  library.impl("_scaled_dot_product_flash_attention_for_cpu", attention_shapes);
  library.impl("_scaled_dot_product_flash_attention_for_cpu_backward", attention_grad_shapes);
  library.impl("scaled_dot_product_attention", attention);
}
TORCH_LIBRARY_IMPL(aten, AutogradMeta, library) {
  library.impl("scaled_dot_product_attention", attention);
}

// ---- Counting

// Of the meta device. A tensor without contents gets the block of the C library's heap that it
// would get with contents. Nothing is written to it, so it takes addresses and no memory; and the
// heap grows as it would, with what it keeps of freed tensors of other sizes. Blocks outside the
// heap, and those that are refused because they are larger than the machine, are counted one by
// one.
class Counter final : public c10::Allocator {
 public:
  struct Count {
    int64_t tensors = 0;  // bytes of live tensors
    int64_t memory = 0;   // how far the heap reaches, and the live blocks that are not in it
  };

  c10::DataPtr allocate(size_t bytes) override {
    const std::lock_guard lock(mutex_);
    auto* block = new Block{bytes, nullptr, false};
    if (bytes > 0 && posix_memalign(&block->memory, c10::gAlignment, bytes) != 0) {
      block->memory = nullptr;
    }
    block->is_in_heap = block->memory != nullptr && block->memory < sbrk(0);
    live_.tensors += static_cast<int64_t>(bytes);
    outside_ += block->is_in_heap ? 0 : static_cast<int64_t>(bytes);
    live_.memory = outside_ + heap_end();
    peak_.tensors = std::max(peak_.tensors, live_.tensors);
    peak_.memory = std::max(peak_.memory, live_.memory);
    return {nullptr, block, release, c10::Device(c10::DeviceType::Meta)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return release; }
  void copy_data(void* /*to*/, const void* /*from*/, size_t /*bytes*/) const override {}

  Count live() {
    const std::lock_guard lock(mutex_);
    live_.memory = outside_ + heap_end();
    return live_;
  }
  // The most there was of each since the last call.
  Count take_peak() {
    const std::lock_guard lock(mutex_);
    return std::exchange(peak_, live_);
  }

  static Counter& get() {
    static auto& counter = *new Counter;  // tensors may outlive everything
    return counter;
  }

 private:
  struct Block {
    size_t bytes;
    void* memory;
    bool is_in_heap;
  };

  static int64_t heap_end() { return reinterpret_cast<int64_t>(sbrk(0)); }

  static void release(void* context) {
    auto& counter = get();
    const std::lock_guard lock(counter.mutex_);
    auto* block = static_cast<Block*>(context);
    counter.live_.tensors -= static_cast<int64_t>(block->bytes);
    counter.outside_ -= block->is_in_heap ? 0 : static_cast<int64_t>(block->bytes);
    std::free(block->memory);
    delete block;
  }

  std::mutex mutex_;  // backward may run on libtorch's own threads
  Count live_;
  Count peak_;
  int64_t outside_ = 0;
};

// ---- The child

Message measure_step(const Manifest& manifest) {
  auto& counter = Counter::get();
  c10::SetAllocator(c10::DeviceType::Meta, &counter, 255);
  set_run_device(at::kMeta);
  Run run(manifest);
  const auto created = counter.live();
  run.load_shapes();
  run.runner->start();
  const auto loaded = counter.live();
  counter.take_peak();
  run.runner->rehearse(1);
  const auto peak = counter.take_peak();
  const int64_t activations = peak.tensors - loaded.tensors;
  const int64_t heap = (peak.memory - created.memory) - (peak.tensors - created.tensors);
  return {{"activations", activations}, {"heap", std::max<int64_t>(0, heap)}};
}

Message rehearse(const Manifest& manifest) {
  const auto fault = [](const Error& error) {
    return Message{{"fault", static_cast<int>(error.fault())},
                   {"message", error.message()},
                   {"hint", error.hint()},
                   {"frames", error.frames()}};
  };
  try {
    return measure_step(manifest);
  } catch (const Error& error) {
    return needs_contents(error.message()) ? Message{{"unknown", error.message()}} : fault(error);
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    return needs_contents(text) ? Message{{"unknown", text}} : fault({Fault::kInternal, text});
  }
}

std::string run_child(const Manifest& manifest) {
  log::setup(log::Level::kError);  // the parent says the same things
  return rehearse(manifest).dump(-1, ' ', false, Message::error_handler_t::replace);
}

// libtorch's texts are long; the first sentence names the operator.
std::string first_sentence(const std::string& text) {
  const auto line = text.substr(0, text.find('\n'));
  return line.substr(0, line.find(". "));
}

Rehearsal::Result to_result(const ChildOutcome& outcome) {
  Rehearsal::Result result;
  if (outcome.end != ChildOutcome::End::kDone) {
    result.unknown = "a component needs contents, or the rehearsal failed: " + outcome.fault();
    return result;
  }
  const Message json = Message::parse(outcome.text);
  if (json.contains("activations")) {
    result.bytes = json["activations"].get<int64_t>();
    result.heap = json["heap"].get<int64_t>();
  } else if (json.contains("unknown")) {
    result.unknown = first_sentence(json["unknown"].get<std::string>());
  } else {
    Error error(static_cast<Fault>(json["fault"].get<int>()), json["message"].get<std::string>(),
                json["hint"].get<std::string>());
    for (const auto& frame : json["frames"]) {
      error = error.with(frame.get<std::string>());
    }
    result.fault = error.with("while rehearsing a step with shapes alone");
  }
  return result;
}

}  // namespace

bool needs_contents(const std::string& text) {
  static constexpr const char* kTexts[] = {
      "attempted to run this operator with Meta tensors",  // it has no shapes alone
      "with arguments from the 'Meta' backend",            // the same, said by the dispatcher
      "Cannot copy out of meta tensor; no data!",          // a copy to the host
      "cannot be called on meta tensors",                  // a number of a tensor
      "The register_meta function for torch.nonzero()",    // a shape that depends on contents
      "but its data is not allocated yet",                 // its address
  };
  return std::any_of(std::begin(kTexts), std::end(kTexts),
                     [&](const char* part) { return text.find(part) != std::string::npos; });
}

Rehearsal::Rehearsal(const Manifest& manifest)
    : child_([&manifest](const ChildReport&) { return run_child(manifest); }) {}

Rehearsal::Result Rehearsal::finish() { return to_result(child_.wait(kLongest)); }

}  // namespace limbeck
