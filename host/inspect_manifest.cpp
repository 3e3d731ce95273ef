// SPDX-License-Identifier: Apache-2.0
#include <iostream>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/plugin/host_table.hpp"
#include "core/plugin/registry.hpp"
#include "core/weights/safetensors_header.hpp"
#include "core/weights/weight_files.hpp"
#include "host/engine.hpp"
#include "host/inspect.hpp"
#include "host/plain_services.hpp"

namespace limbeck::host {
namespace {

namespace fs = std::filesystem;

std::string used(const ComponentSpec& spec) {
  return cat(spec.component->name(), " (plugin ", spec.component->library->name, ")");
}

const char* name_of(Precision precision) {
  switch (precision) {
    case Precision::kFloat32:
      return "fp32";
    case Precision::kBFloat16:
      return "bf16";
    case Precision::kFloat64:
      return "fp64";
  }
  return "";
}

// "/models/x, 1,418,996,800 numbers, 2.84 GB", as far as the headers tell.
std::string weights_text(const fs::path& path) {
  try {
    const auto found = find_weight_files(path);
    uint64_t numbers = 0, bytes = 0;
    for (const auto& file : found.files) {
      for (const auto& [name, tensor] : read_safetensors_header(file).tensors) {
        numbers += tensor.bytes() * 8 / tensor.type->bits;
        bytes += tensor.bytes();
      }
    }
    return cat(path.string(), ", ", count_text(numbers), " numbers, ", bytes_text(bytes));
  } catch (const Error& error) {
    return cat(path.string(), ", which cannot be read: ", error.message());
  }
}

void print_role(const RoleSpec& role) {
  std::cout << "  role " << role.name << ": " << used(role.model) << ", "
            << (role.is_trained  ? "trained"
                : role.is_shadow ? "an average of " + role.shadow_of
                                 : "frozen")
            << ", " << name_of(role.dtype) << '\n';
  if (!role.init_from.empty()) {
    std::cout << "    weights: " << weights_text(role.init_from) << '\n';
  }
  if (role.is_trained) {
    std::cout << "    optimizer: learning rate " << shortest(role.optimizer.learning_rate) << ", "
              << role.optimizer.lr_scheduler << '\n';
  }
  if (role.ema) {
    std::cout << "    average: decay " << shortest(role.ema->decay) << '\n';
  }
}

}  // namespace

void inspect_manifest(const fs::path& path, const InspectOptions& options) {
  auto& registry = *new Registry;  // never destroyed: its libraries stay open
  open_on_demand(registry);
  ManifestOptions manifest_options;
  manifest_options.needs_files = false;  // what is missing is said where it is used
  const auto& manifest = *new Manifest(load_manifest(path, manifest_options, registry));
  std::cout << path.string() << ": a manifest\n"
            << "  run: " << manifest.run.name << ", seed " << manifest.run.seed << ", "
            << count_text(static_cast<uint64_t>(manifest.loop.max_train_steps)) << " steps, into "
            << manifest.run.output_dir.string() << '\n';
  for (const auto& library : registry.libraries()) {
    std::cout << "  plugin " << library.name << ": " << library.plugin->id << ' '
              << library.plugin->version << ", " << library.path.string() << '\n';
  }
  std::cout << "  method: " << used(manifest.method) << '\n';
  for (const auto& role : manifest.roles) {
    print_role(role);
  }
  for (const auto& hook : manifest.prepare) {
    std::cout << "  prepare: " << used(hook) << '\n';
  }
  for (const auto& loss : manifest.losses) {
    std::cout << "  loss: " << used(loss.component) << ", weight " << shortest(loss.weight) << '\n';
  }
  for (const auto& callback : manifest.callbacks) {
    std::cout << "  callback " << callback.name << ": " << used(callback.component);
    if (callback.every_steps > 0) {
      std::cout << ", every " << callback.every_steps << " steps";
    }
    std::cout << '\n';
  }
  for (const auto& tracker : manifest.trackers) {
    std::cout << "  tracker: " << used(tracker) << '\n';
  }
  if (!manifest.data) {
    return;
  }
  std::cout << "  data: " << used(manifest.data->dataset) << ", batches of "
            << manifest.data->batch_size << '\n';
  provide_plain_services();
  registry.start(host_table());
  try {
    print_data(manifest.data->dataset, options);
  } catch (const Error& error) {
    std::cout << "  the data cannot be opened: " << error.message() << '\n';
  }
}

}  // namespace limbeck::host
