// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <iostream>
#include <map>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/plugin/default_config.hpp"
#include "core/plugin/host_table.hpp"
#include "core/plugin/registry.hpp"
#include "core/plugin/status.hpp"
#include "core/transfer/import_state.hpp"
#include "host/commands.hpp"
#include "host/engine.hpp"
#include "host/inspect.hpp"
#include "host/memory_peak.hpp"
#include "host/plain_services.hpp"
#include "host/transfer.hpp"

namespace limbeck::host {
namespace {

namespace fs = std::filesystem;

uint32_t next_number(lb_builder* builder) { return ++*static_cast<uint32_t*>(builder->ctx); }

// What a network declares while it is made, of which nothing is kept: units and parameters get
// numbers, there are no files.
lb_builder plain_builder(uint32_t& count) {
  lb_builder builder{};
  builder.struct_size = sizeof(builder);
  builder.ctx = &count;
  builder.unit = [](lb_builder* self, const char*, lb_unit* out) noexcept -> lb_status* {
    *out = next_number(self);
    return nullptr;
  };
  builder.param = [](lb_builder* self, lb_unit, const lb_param_spec*,
                     lb_param* out) noexcept -> lb_status* {
    *out = next_number(self);
    return nullptr;
  };
  builder.part = builder.unit;
  builder.file = [](lb_builder*, const char*) noexcept -> const char* { return nullptr; };
  return builder;
}

// A network of the plugin that has the name of its type, made for its names alone.
class Renamer {
 public:
  explicit Renamer(const std::string& type) {
    auto& registry = *new Registry;  // never destroyed: its libraries stay open
    open_on_demand(registry);
    Diagnostics diagnostics;
    registry.load({type, "", {}}, fs::current_path(), diagnostics);
    diagnostics.throw_if_errors();
    provide_plain_services();
    registry.start(host_table());
    const auto networks = registry.of_kind("limbeck.model/1");
    for (const auto* network : networks) {
      if (network->name() == type || networks.size() == 1) {
        vtable_ = &network->vtable<lb_model_vtable>();
        const auto config = default_config(*network);
        uint32_t declared = 0;
        auto builder = plain_builder(declared);
        limbeck::check(
            vtable_->create(network->library->state, config.config.get(), &builder, &self_));
        return;
      }
    }
    throw Error(Fault::kPlugin, cat("plugin '", type, "' has no network '", type, "'"));
  }

  std::string operator()(const std::string& name) const {
    std::array<char, 512> renamed{};
    if (!LB_CAN(vtable_, rename)) {
      return name;
    }
    const auto length = vtable_->rename(self_, name.c_str(), renamed.data(), renamed.size());
    return length > 0 && static_cast<size_t>(length) < renamed.size()
               ? std::string(renamed.data(), static_cast<size_t>(length))
               : name;
  }

 private:
  const lb_model_vtable* vtable_ = nullptr;
  void* self_ = nullptr;  // as long as the process
};

void print_report(const ImportRequest& request, const ImportReport& report) {
  std::cout << request.output.string() << ": weights of role " << request.role << ", from "
            << request.state.string() << "\n  " << report.tensors << " tensors, "
            << bytes_text(report.bytes) << ", ";
  if (request.rename) {
    std::cout << report.renamed << " under their published names\n";
  } else {
    std::cout << "names as in the state; --type makes them the published ones, as does a role that "
                 "loads them\n";
  }
  print_written(report.files);
  if (!report.has_config) {
    std::cout << "  no config.json: name the network's options in the manifest, or use --base\n";
  }
  for (const auto& [name, aside] : report.aside) {
    std::cout << "  left aside: " << name << ", " << aside.tensors << " tensors, " << aside.values
              << " values\n";
  }
  if (request.verifies) {
    std::cout << "  verified: every tensor was read again and has the bits of the state\n";
  }
}

}  // namespace

void import_weights(const Options& options) {
  ImportRequest request;
  request.state = options.paths.front();
  request.role = options.role;
  request.prefix = options.prefix;
  request.output = options.output;
  request.type = type_of(options.dtype);
  request.base = options.base;
  request.overwrites = options.overwrites;
  request.verifies = options.verifies;
  if (!options.type.empty()) {
    request.rename = Renamer(options.type);
  }
  const MemoryPeak memory;
  print_report(request, import_state(request));
  std::cout << "  memory: " << memory.text() << '\n';
}

}  // namespace limbeck::host
