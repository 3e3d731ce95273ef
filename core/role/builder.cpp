// SPDX-License-Identifier: Apache-2.0
#include "core/role/builder.hpp"

#include <list>

#include "core/base/text.hpp"
#include "core/tensor/guard.hpp"
#include "core/tensor/handle.hpp"

namespace limbeck {
namespace {

struct Declaring {
  RoleLayout layout;
  std::filesystem::path directory;
  std::list<std::string> paths;  // lent to the plugin

  static Declaring& of(lb_builder* builder) { return *static_cast<Declaring*>(builder->ctx); }

  lb_unit add_unit(std::string name) {
    auto& unit = layout.units.emplace_back();
    unit.name = std::move(name);
    unit.part = layout.parts.size() - 1;
    return static_cast<lb_unit>(layout.units.size() - 1);
  }
};

lb_status* builder_unit(lb_builder* builder, const char* name, lb_unit* out) noexcept {
  return guarded([&] {
    TORCH_CHECK(name != nullptr && *name != '\0', "unit() needs a name; the root exists already");
    *out = Declaring::of(builder).add_unit(name);
  });
}

lb_status* builder_param(lb_builder* builder,
                         lb_unit unit,
                         const lb_param_spec* spec,
                         lb_param* out) noexcept {
  return guarded([&] {
    auto& layout = Declaring::of(builder).layout;
    TORCH_CHECK(unit < layout.units.size(), "param(): there is no unit number ", unit);
    TORCH_CHECK(spec->name != nullptr && *spec->name != '\0', "param() needs a name");
    TORCH_CHECK(spec->init != nullptr, "parameter '", spec->name, "' has no init expression");
    auto& owner = layout.units[unit];
    ParamLayout param;
    param.name = spec->name;
    param.key = owner.name.empty() ? param.name : owner.name + "." + param.name;
    param.shape.assign(spec->sizes, spec->sizes + spec->ndim);
    param.numel = 1;
    for (const int64_t size : param.shape) {
      TORCH_CHECK(size > 0, "parameter '", param.key, "' has shape ", param.shape,
                  "; sizes must be positive");
      param.numel *= size;
    }
    scalar_type(spec->dtype);  // refuses what is no dtype
    param.flags = spec->flags;
    param.dtype = spec->dtype;
    param.init = spec->init;
    param.unit = unit;
    param.part = owner.part;
    *out = static_cast<lb_param>(owner.params.size());
    owner.params.push_back(layout.params.size());
    layout.params.push_back(std::move(param));
  });
}

lb_status* builder_part(lb_builder* builder, const char* name, lb_unit* root) noexcept {
  return guarded([&] {
    TORCH_CHECK(name != nullptr && *name != '\0', "part() needs a name");
    auto& declaring = Declaring::of(builder);
    declaring.layout.parts.push_back({name, static_cast<lb_unit>(declaring.layout.units.size())});
    *root = declaring.add_unit("");
  });
}

const char* builder_file(lb_builder* builder, const char* name) noexcept {
  auto& declaring = Declaring::of(builder);
  const auto path = declaring.directory / name;
  std::error_code ignored;
  if (declaring.directory.empty() || !std::filesystem::exists(path, ignored)) {
    return nullptr;
  }
  return declaring.paths.emplace_back(path.string()).c_str();
}

}  // namespace

RoleLayout declare_network(const lb_model_vtable& vtable,
                           lb_state* plugin,
                           const lb_config& config,
                           const std::filesystem::path& directory,
                           void** self) {
  Declaring declaring;
  declaring.directory = directory;
  declaring.layout.parts.push_back({"", LB_ROOT});
  declaring.add_unit("");
  lb_builder builder = {sizeof(lb_builder), 0,           &declaring, builder_unit, builder_param,
                        builder_part,       builder_file};
  check(vtable.create(plugin, &config, &builder, self), "while declaring the network's parameters");
  return std::move(declaring.layout);
}

}  // namespace limbeck
