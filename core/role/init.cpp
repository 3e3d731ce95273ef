// SPDX-License-Identifier: Apache-2.0
#include "core/role/init.hpp"

#include <charconv>
#include <cmath>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/tensor/random.hpp"

namespace limbeck {
namespace {

struct Expression {
  std::string name;
  std::vector<double> arguments;
};

[[noreturn]] void refuse(const std::string& text) {
  throw Error(Fault::kPlugin, cat("'", text, "' is no init expression"),
              "known: zeros, ones, constant(a), normal(mean, deviation), uniform(low, high), "
              "xavier_uniform, kaiming_uniform");
}

Expression parse(const std::string& text) {
  const auto open = text.find('(');
  if (open == std::string::npos) {
    return {text, {}};
  }
  if (text.back() != ')') {
    refuse(text);
  }
  Expression result{text.substr(0, open), {}};
  std::istringstream list(text.substr(open + 1, text.size() - open - 2));
  for (std::string item; std::getline(list, item, ',');) {
    const auto first = item.find_first_not_of(' ');
    double value = 0;
    const char* end = item.data() + item.size();
    if (first == std::string::npos ||
        std::from_chars(item.data() + first, end, value).ec != std::errc()) {
      refuse(text);
    }
    result.arguments.push_back(value);
  }
  return result;
}

double fan_in(const at::Tensor& tensor) {
  return static_cast<double>(tensor.numel()) / static_cast<double>(tensor.size(0));
}

void fill_uniform(at::Tensor& out, double low, double high, uint64_t seed) {
  out.copy_(uniform_values(seed, 0, out.sizes()).mul_(high - low).add_(low));
}

}  // namespace

void init_param(at::Tensor& out, const std::string& text, uint64_t seed) {
  const at::NoGradGuard no_grad;
  const auto [name, arguments] = parse(text);
  if (out.is_meta()) {
    return;  // a rehearsal: no contents
  }
  if (name == "zeros" && arguments.empty()) {
    out.zero_();
  } else if (name == "ones" && arguments.empty()) {
    out.fill_(1);
  } else if (name == "constant" && arguments.size() == 1) {
    out.fill_(arguments[0]);
  } else if (name == "normal" && arguments.size() == 2) {
    out.copy_(normal_values(seed, 0, out.sizes()).mul_(arguments[1]).add_(arguments[0]));
  } else if (name == "uniform" && arguments.size() == 2) {
    fill_uniform(out, arguments[0], arguments[1], seed);
  } else if (name == "xavier_uniform" && arguments.empty() && out.dim() >= 2) {
    const double bound = std::sqrt(6.0 / (fan_in(out) + static_cast<double>(out.size(0))));
    fill_uniform(out, -bound, bound, seed);
  } else if (name == "kaiming_uniform" && arguments.empty() && out.dim() >= 2) {
    const double bound = std::sqrt(1.0 / fan_in(out));
    fill_uniform(out, -bound, bound, seed);
  } else {
    refuse(text);
  }
}

}  // namespace limbeck
