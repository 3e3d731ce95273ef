// SPDX-License-Identifier: Apache-2.0
// The stage that reads the tables of everything but networks: method, hooks, losses, data,
// callbacks, trackers.
#include <utility>

#include "core/manifest/component_table.hpp"
#include "core/manifest/host_values.hpp"
#include "core/manifest/tables.hpp"

namespace limbeck {
namespace {

void read_loss(Draft& draft, const ComponentTable& table) {
  auto spec = read_component(draft, table, loss_options());
  const double weight = HostValues(draft.host[table.key]).number("weight");
  draft.manifest.losses.push_back({std::move(spec), weight});
}

void read_data(Draft& draft, const ComponentTable& table) {
  auto spec = read_component(draft, table, data_options());
  const HostValues host(draft.host[table.key]);
  draft.manifest.data = {std::move(spec), host.integer("train_batch_size"),
                         host.integer("dataloader_num_workers"), host.boolean("shuffle"),
                         host.integer("shuffle_window")};
}

void read_callback(Draft& draft, const ComponentTable& table) {
  auto spec = read_component(draft, table, callback_options());
  const int64_t every_steps = HostValues(draft.host[table.key]).integer("every_steps");
  const std::string name = table.key.substr(table.key.find('.') + 1);
  draft.manifest.callbacks.push_back({std::move(spec), name, every_steps});
}

void read_one(Draft& draft, const ComponentTable& table) {
  const std::string_view kind = table.kinds.front();
  if (kind == kMethodKind) {
    draft.manifest.method = read_component(draft, table, method_options());
  } else if (kind == kPrepareKind) {
    draft.manifest.prepare.push_back(read_component(draft, table, prepare_options()));
  } else if (kind == kLossKind) {
    read_loss(draft, table);
  } else if (kind == kDatasetKind) {
    read_data(draft, table);
  } else if (kind == kCallbackKind) {
    read_callback(draft, table);
  } else if (kind == kTrackerKind) {
    draft.manifest.trackers.push_back(read_component(draft, table, {}));
  }
}

}  // namespace

void read_components(Draft& draft) {
  for (const auto& table : component_tables(draft)) {
    read_one(draft, table);
  }
}

}  // namespace limbeck
