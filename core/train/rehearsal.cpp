// SPDX-License-Identifier: Apache-2.0
#include "core/train/rehearsal.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
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

constexpr int kLongestSeconds = 120;

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

std::atomic<int64_t> live_bytes{0};
std::atomic<int64_t> peak_bytes{0};

// Of the meta device: gives no memory and counts what it would have given.
class Counter final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const auto size = static_cast<int64_t>(bytes);
    const int64_t now = live_bytes += size;
    int64_t peak = peak_bytes;
    while (now > peak && !peak_bytes.compare_exchange_weak(peak, now)) {
    }
    return {nullptr, new int64_t(size), release, c10::Device(c10::DeviceType::Meta)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return release; }
  void copy_data(void* /*to*/, const void* /*from*/, size_t /*bytes*/) const override {}

 private:
  static void release(void* record) {
    auto* size = static_cast<int64_t*>(record);
    live_bytes -= *size;
    delete size;
  }
};

// ---- The child

int64_t bytes_of_step(const Manifest& manifest) {
  static Counter counter;
  c10::SetAllocator(c10::DeviceType::Meta, &counter, 255);
  set_run_device(at::kMeta);
  Run run(manifest);
  run.load_shapes();
  run.runner->start();
  const int64_t before = live_bytes;
  peak_bytes = before;
  run.runner->rehearse(1);
  return peak_bytes - before;
}

// Texts of libtorch for operators that have no shapes alone, and for reads of contents.
bool is_about_contents(const std::string& text) {
  return text.find("meta") != std::string::npos || text.find("Meta") != std::string::npos;
}

Message rehearse(const Manifest& manifest) {
  try {
    return {{"bytes", bytes_of_step(manifest)}};
  } catch (const Error& error) {
    if (is_about_contents(error.message())) {
      return {{"unknown", error.message()}};
    }
    return {{"fault", static_cast<int>(error.fault())},
            {"message", error.message()},
            {"hint", error.hint()},
            {"frames", error.frames()}};
  } catch (const c10::Error& error) {
    return {{"unknown", error.what_without_backtrace()}};
  } catch (const std::exception& error) {
    return {{"unknown", error.what()}};
  }
}

[[noreturn]] void run_child(const Manifest& manifest, int output) {
  log::setup(log::Level::kError);  // the parent says the same things
  const std::string text =
      rehearse(manifest).dump(-1, ' ', false, Message::error_handler_t::replace);
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t count = ::write(output, text.data() + done, text.size() - done);
    if (count <= 0) {
      break;
    }
    done += static_cast<size_t>(count);
  }
  _exit(0);
}

// Everything until the other end closes. False: it took too long.
bool read_all(int input, std::string& text) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::seconds(kLongestSeconds);
  std::array<char, 4096> buffer{};
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
    pollfd ready{input, POLLIN, 0};
    const int found = ::poll(&ready, 1, static_cast<int>(std::max<int64_t>(0, left.count())));
    if (found == 0) {
      return false;
    }
    const ssize_t count = found < 0 ? -1 : ::read(input, buffer.data(), buffer.size());
    if (count == 0) {
      return true;
    }
    if (count < 0 && errno != EINTR) {
      return true;
    }
    text.append(buffer.data(), count < 0 ? 0 : static_cast<size_t>(count));
  }
}

// libtorch's texts are long; the first sentence names the operator.
std::string first_sentence(const std::string& text) {
  const auto line = text.substr(0, text.find('\n'));
  return line.substr(0, line.find(". "));
}

Rehearsal::Result to_result(const std::string& text, int status) {
  Rehearsal::Result result;
  const Message json = Message::parse(text, nullptr, false);
  if (!json.is_object()) {
    result.unknown = WIFSIGNALED(status)
                         ? cat("a component needs contents: it ended the rehearsal with ",
                               strsignal(WTERMSIG(status)))
                         : "the rehearsal ended without a result";
  } else if (json.contains("bytes")) {
    result.bytes = json["bytes"].get<int64_t>();
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

Rehearsal::Rehearsal(const Manifest& manifest) {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) {
    return;
  }
  pid_ = ::fork();
  if (pid_ == 0) {
    ::close(ends[0]);
    run_child(manifest, ends[1]);
  }
  ::close(ends[1]);
  output_ = ends[0];
}

Rehearsal::~Rehearsal() {
  if (output_ >= 0) {
    ::close(output_);
  }
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
}

Rehearsal::Result Rehearsal::finish() {
  Result result;
  if (pid_ <= 0) {
    result.unknown = "no process could be started for a rehearsal";
    return result;
  }
  std::string text;
  if (!read_all(output_, text)) {
    result.unknown = cat("the rehearsal took longer than ", kLongestSeconds, " s");
    return result;
  }
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  return to_result(text, status);
}

}  // namespace limbeck
