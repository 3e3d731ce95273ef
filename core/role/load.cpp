// SPDX-License-Identifier: Apache-2.0
#include "core/role/load.hpp"

#include <map>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/checkpoint/weights.hpp"

namespace limbeck {

void load_weights(const std::filesystem::path& path,
                  const std::string& part,
                  const std::vector<WeightTarget>& targets,
                  const std::function<std::string(const std::string& key)>& translate) {
  const WeightSource source(path, part);
  std::map<std::string, std::string> names;  // key of the network -> name in the file
  for (const auto& name : source.names()) {
    const auto [first, is_new] = names.emplace(translate(name), name);
    if (!is_new) {
      throw Error(Fault::kData,
                  cat(path.string(), ": '", first->second, "' and '", name, "' are both '",
                      first->first, "'"),
                  "the file holds the weights of two networks, or of one twice: split it");
    }
  }
  WeightReport report;
  std::map<std::string, std::string> unused = names;
  for (const auto& target : targets) {
    const auto found = names.find(target.key);
    if (found == names.end()) {
      if (!target.is_optional) {
        report.add_missing(target.key);
      }
      continue;
    }
    unused.erase(target.key);
    const auto& info = source.info(found->second);
    if (target.value.sizes() != at::IntArrayRef(info.sizes)) {
      report.add_misshapen(target.key, info.sizes, target.value.sizes());
    }
    if (!converts(info.dtype, target.value.scalar_type())) {
      report.add_mistyped(target.key, info.type, target.value.scalar_type());
    }
  }
  for (const auto& [key, name] : unused) {
    report.add_unexpected(name);
  }
  report.throw_unless_clean(path.string());
  const at::NoGradGuard no_grad;
  for (const auto& target : targets) {
    if (const auto found = names.find(target.key); found != names.end()) {
      auto value = target.value;
      value.copy_(source.tensor(found->second));
    }
  }
}

}  // namespace limbeck
