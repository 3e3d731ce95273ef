// SPDX-License-Identifier: Apache-2.0
#include "core/role/adapters.hpp"

#include <utility>

#include "core/base/error.hpp"
#include "core/base/files.hpp"
#include "core/base/text.hpp"
#include "core/checkpoint/safetensors.hpp"
#include "core/checkpoint/weights.hpp"
#include "core/role/role.hpp"
#include "core/weights/weight_files.hpp"

namespace limbeck {
namespace {

constexpr std::string_view kWeight = ".weight";

bool is_linear(const ParamLayout& param) {
  return (param.flags & LB_PARAM_LINEAR) != 0 && param.shape.size() == 2;
}

std::string without_suffix(const std::string& name) {
  return name.ends_with(kWeight) ? name.substr(0, name.size() - kWeight.size()) : name;
}

std::string layer_of(const ParamLayout& param) { return without_suffix(param.key); }

// A or B of the layer of `weight`.
ParamLayout matrix(const ParamLayout& weight,
                   const char* suffix,
                   std::vector<int64_t> shape,
                   std::string init) {
  ParamLayout param;
  param.name = without_suffix(weight.name) + suffix;
  param.key = layer_of(weight) + suffix;
  param.shape = std::move(shape);
  param.numel = param.shape[0] * param.shape[1];
  // A layer that is reached through the host only has its adapter to itself.
  param.flags = weight.flags & (LB_PARAM_LINEAR | LB_PARAM_VIA_LINEAR);
  param.init = std::move(init);
  param.part = weight.part;
  param.unit = weight.unit;
  param.is_adapter = true;
  return param;
}

// Kaiming-uniform with a = sqrt(5) is U(-1/sqrt(in), 1/sqrt(in)); gaussian is N(0, 1/r^2).
std::string init_of(AdapterInit init, int64_t rank) {
  return init == AdapterInit::kGaussian
             ? cat("normal(0, ", shortest(1.0 / static_cast<double>(rank)), ")")
             : "kaiming_uniform";
}

void adapt(RoleLayout& layout,
           size_t weight_place,
           UnitLayout& unit,
           const RoleSpec& spec,
           const AdapterConfig& config) {
  // A copy: the list of parameters grows.
  const ParamLayout weight = layout.params[unit.params[weight_place]];
  const auto layer = layer_of(weight);
  const int64_t rank = config.rank_of(layer);
  AdapterLayout adapter{layer, weight_place, unit.params.size(), unit.params.size() + 1,
                        config.scale_of(layer)};
  for (auto& param :
       {matrix(weight, kAdapterA, {rank, weight.shape[1]}, init_of(spec.adapter_init, rank)),
        matrix(weight, kAdapterB, {weight.shape[0], rank}, "zeros")}) {
    unit.params.push_back(layout.params.size());
    layout.params.push_back(param);
  }
  unit.adapters.push_back(std::move(adapter));
}

std::vector<std::string> linear_layers(const RoleLayout& layout) {
  std::vector<std::string> layers;
  for (const auto& param : layout.params) {
    if (is_linear(param)) {
      layers.push_back(layer_of(param));
    }
  }
  return layers;
}

const AdapterConfig& config_of(const RoleSpec& spec, size_t part) {
  return spec.adapters[spec.adapters.size() == 1 ? 0 : part].config;
}

template <class F>
void visit_adapters(const RoleLayout& layout, size_t part, const F& visitor) {
  for (const auto& unit : layout.units) {
    for (const auto& adapter : unit.adapters) {
      if (unit.part == part) {
        visitor(layout.params[unit.params[adapter.a]]);
        visitor(layout.params[unit.params[adapter.b]]);
      }
    }
  }
}

}  // namespace

void add_adapters(RoleLayout& layout, RoleSpec& spec, const std::vector<std::string>& targets) {
  for (auto& unit : layout.units) {
    unit.declared = unit.params.size();
  }
  if (spec.adapters.empty()) {
    return;
  }
  const bool is_loaded = !spec.adapters[0].folder.empty();
  if (is_loaded && spec.adapters.size() != layout.parts.size()) {
    throw Error(Fault::kData,
                cat("the network has ", layout.parts.size(), " parts, and ", spec.adapters.size(),
                    " folders of adapters are given"),
                "give one folder for each part, in their order");
  }
  if (!is_loaded && spec.adapters[0].config.targets.empty()) {
    spec.adapters[0].config.targets =
        targets.empty() ? std::vector<std::string>{"all-linear"} : targets;
  }
  const auto layers = linear_layers(layout);
  for (auto& unit : layout.units) {
    const auto& config = config_of(spec, unit.part);
    for (size_t place = 0; place < unit.declared; ++place) {
      const auto& param = layout.params[unit.params[place]];
      if (is_linear(param) && config.selects(layer_of(param))) {
        adapt(layout, place, unit, spec, config);
      }
    }
  }
  if (!layout.has_adapters()) {
    throw Error(Fault::kData, "no linear layer of the network is a target of its adapters",
                cat("layers: ", first_ten(layers, ", ")));
  }
}

std::vector<std::filesystem::path> write_adapters(const Role& role,
                                                  Weights weights,
                                                  const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> written;
  const auto& layout = role.layout();
  for (size_t part = 0; part < layout.parts.size(); ++part) {
    NamedTensors tensors;
    visit_adapters(layout, part, [&](const ParamLayout& param) {
      tensors.emplace_back(kAdapterPrefix + param.key, role.value_of(param, weights));
    });
    const auto target = layout.parts.size() == 1 ? folder : folder / role.part_name(part);
    std::filesystem::create_directories(target);
    write_safetensors(target / kAdapterWeightsFile, tensors);
    write_file(target / kAdapterConfigFile,
               config_of(role.spec(), part).to_json(role.spec().init_from.string()));
    const SafetensorsFile back(target / kAdapterWeightsFile);
    for (const auto& [name, value] : tensors) {
      if (!at::equal(back.tensor(name), value.cpu())) {
        throw Error(Fault::kData,
                    cat(back.path().string(), ": '", name, "' is not on disk as it was written"));
      }
    }
    written.push_back(target);
  }
  return written;
}

void read_adapters(Role& role, size_t part, const std::filesystem::path& folder) {
  const at::NoGradGuard no_grad;
  const auto path = folder / kAdapterWeightsFile;
  const SafetensorsFile file(path);
  WeightReport report;
  std::vector<std::pair<at::Tensor, std::string>> found;
  std::vector<std::string> unused;
  for (const auto& [name, info] : file.tensors()) {
    unused.push_back(name);
  }
  visit_adapters(role.layout(), part, [&](const ParamLayout& param) {
    const std::string name = kAdapterPrefix + param.key;
    std::erase(unused, name);
    if (file.tensors().count(name) == 0) {
      report.add_missing(name);
      return;
    }
    const auto& info = file.info(name);
    auto value = role.value_of(param, Weights::kConstant);
    if (value.sizes() != at::IntArrayRef(info.sizes)) {
      report.add_misshapen(name, info.sizes, value.sizes());
    }
    if (!converts(info.dtype, value.scalar_type())) {
      report.add_mistyped(name, info.type, value.scalar_type());
    }
    found.emplace_back(std::move(value), name);
  });
  for (const auto& name : unused) {
    report.add_unexpected(name);
  }
  report.throw_unless_clean(path.string());
  for (auto& [value, name] : found) {
    value.copy_(file.tensor(name));
  }
}

}  // namespace limbeck
