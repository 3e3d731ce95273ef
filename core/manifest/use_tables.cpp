// SPDX-License-Identifier: Apache-2.0
// The stage that reads the tables of everything but networks: method, hooks, losses, data,
// callbacks, trackers.
#include <utility>

#include "core/base/text.hpp"
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

// As in data_options(). A resolved manifest says it although it has no effect.
constexpr int64_t kDefaultMaxSkipped = 100;

void read_data(Draft& draft, const ComponentTable& table) {
  auto spec = read_component(draft, table, data_options());
  const HostValues host(draft.host[table.key]);
  DataSpec data;
  data.dataset = std::move(spec);
  data.batch_size = host.integer("train_batch_size");
  data.workers = host.integer("dataloader_num_workers");
  data.shuffle = host.boolean("shuffle");
  data.window = host.integer("shuffle_window");
  data.is_reference_order = host.text("order") == "reference";
  if (data.is_reference_order && !data.shuffle) {
    draft.diagnostics.error(host.position("order"),
                            cat(table.key, ".order: \"reference\" needs shuffle = true"),
                            "with shuffle = false samples come as the data set has them");
  }
  if (host.text("on_error") == "skip") {
    data.max_skipped = host.integer("max_skipped");
  } else if (host.integer("max_skipped") != kDefaultMaxSkipped) {
    draft.diagnostics.error(host.position("max_skipped"),
                            cat(table.key, ".max_skipped has no effect: on_error is \"stop\""),
                            "set on_error = \"skip\", or remove the key");
  }
  draft.manifest.data = std::move(data);
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
