// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iostream>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/plugin/default_config.hpp"
#include "core/plugin/host_table.hpp"
#include "core/plugin/registry.hpp"
#include "core/plugin/status.hpp"
#include "host/engine.hpp"
#include "host/inspect.hpp"
#include "host/plain_services.hpp"
#include "host/value_stats.hpp"
#include "media/image.hpp"
#include "media/png.hpp"

namespace limbeck::host {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDatasetKind = "limbeck.dataset/1";

struct Field {
  std::string name;
  std::vector<int64_t> sizes;
  lb_dtype dtype = LB_F32;
  bool is_text = false;
};

// An open data set. Faults of the component are thrown as Error.
class OpenData {
 public:
  explicit OpenData(const ComponentSpec& spec)
      : table_(spec.component->vtable<lb_dataset_vtable>()) {
    lb_source source{};
    source.struct_size = sizeof(source);
    source.workers = 1;
    source.world = 1;
    source.flags = LB_SOURCE_SKIPS;  // the odd ones are worth seeing too
    limbeck::check(table_.open(spec.component->library->state, spec.config.get(), &source, &self_));
  }
  ~OpenData() { table_.close(self_); }
  OpenData(const OpenData&) = delete;
  OpenData& operator=(const OpenData&) = delete;

  int64_t length() const { return table_.length(self_); }

  std::vector<Field> fields() const {
    lb_fields table{};
    limbeck::check(table_.fields(self_, &table));
    std::vector<Field> fields;
    const auto* item = reinterpret_cast<const char*>(table.items);
    for (uint32_t i = 0; i < table.count; ++i, item += table.stride) {
      const auto& declared = *reinterpret_cast<const lb_field*>(item);
      Field field{declared.name, {}, declared.dtype, (declared.flags & LB_FIELD_TEXT) != 0};
      if (!field.is_text && declared.ndim > 0) {
        field.sizes.assign(declared.sizes, declared.sizes + declared.ndim);
      }
      fields.push_back(std::move(field));
    }
    return fields;
  }

  uint64_t runs() const {
    const int64_t* ends = nullptr;
    uint64_t count = 0;
    if (LB_CAN(&table_, runs)) {
      limbeck::check(table_.runs(self_, &ends, &count));
    }
    return count;
  }

  PlainBatch facts() const {
    PlainBatch facts;
    if (LB_CAN(&table_, describe)) {
      limbeck::check(table_.describe(self_, facts.handle()));
    }
    return facts;
  }

  PlainBatch read(int64_t row) const {
    PlainBatch sample;
    limbeck::check(table_.read(self_, row, sample.handle()));
    return sample;
  }

 private:
  const lb_dataset_vtable& table_;
  void* self_ = nullptr;
};

std::string sizes_text(const std::vector<int64_t>& sizes) {
  std::vector<std::string> items;
  for (const int64_t size : sizes) {
    items.push_back(size == -1 ? "*" : std::to_string(size));
  }
  return "[" + join(items) + "]";
}

void print_entry(const std::string& name, const PlainBatch::Entry& entry) {
  std::cout << "    " << name << ": ";
  if (const auto* texts = std::get_if<std::vector<std::string>>(&entry)) {
    std::cout << '"' << join(*texts, "\", \"") << "\"\n";
  } else if (const auto* number = std::get_if<double>(&entry)) {
    std::cout << shortest(*number) << '\n';
  } else {
    const auto& tensor = std::get<PlainTensor>(entry);
    std::cout << name_of(tensor.dtype) << ' ' << sizes_text(tensor.sizes);
    const auto values = tensor.floats();
    if (values.size() == 1) {
      std::cout << " = " << shortest(static_cast<double>(values.front()));
    } else if (!values.empty()) {
      ValueStats stats;
      for (const float value : values) {
        stats.add(static_cast<double>(value));
      }
      std::cout << ", " << stats.text();
    }
    std::cout << '\n';
  }
}

// Counts of a description are integers that doubles hold.
void print_facts(const PlainBatch& facts) {
  for (const auto& [name, entry] : facts.entries) {
    if (const auto* texts = std::get_if<std::vector<std::string>>(&entry)) {
      for (const auto& text : *texts) {
        std::cout << "  " << name << ": " << text << '\n';
      }
    } else if (const auto* number = std::get_if<double>(&entry)) {
      const auto count = static_cast<uint64_t>(*number);
      std::cout << "  " << name << ": "
                << (name.ends_with("bytes") ? bytes_text(count) : count_text(count)) << '\n';
    }
  }
}

// Every row: what its tensors hold, and which cannot be read.
void print_stats(const OpenData& data) {
  constexpr int64_t kShown = 10;
  std::map<std::string, ValueStats> fields;
  int64_t unreadable = 0;
  for (int64_t row = 0; row < data.length(); ++row) {
    try {
      for (const auto& [name, entry] : data.read(row).entries) {
        if (const auto* tensor = std::get_if<PlainTensor>(&entry)) {
          for (const float value : tensor->floats()) {
            fields[name].add(static_cast<double>(value));
          }
        }
      }
    } catch (const Error& error) {
      if (++unreadable <= kShown) {
        std::cout << "  row " << row << " cannot be read: " << error.message() << '\n';
      }
    }
  }
  for (const auto& [name, stats] : fields) {
    std::cout << "  values of " << name << ": " << stats.text() << '\n';
  }
  std::cout << "  rows that cannot be read: " << unreadable << " of " << data.length() << '\n';
}

// ---- contact sheet

// The first frame of a clip [channels, frames, height, width]. Three channels and one are pixels
// of [-1, 1]; of latents, the first channel from its least to its greatest value.
media::Image first_frame(const PlainTensor& clip) {
  const auto channels = clip.sizes[0];
  const auto height = static_cast<int>(clip.sizes[2]), width = static_cast<int>(clip.sizes[3]);
  const auto plane = clip.sizes[1] * clip.sizes[2] * clip.sizes[3];
  auto values = clip.floats();
  if (channels == 1 || channels == 3) {
    return media::from_planes(values.data(), static_cast<int>(channels), height, width, plane);
  }
  const auto end = values.begin() + clip.sizes[2] * clip.sizes[3];
  const auto [least, most] = std::minmax_element(values.begin(), end);
  const float low = *least, scale = *most > *least ? 2.0F / (*most - *least) : 0.0F;
  std::transform(values.begin(), end, values.begin(),
                 [&](float value) { return (value - low) * scale - 1.0F; });
  return media::from_planes(values.data(), 1, height, width, plane);
}

void draw_contact_sheet(const OpenData& data, const fs::path& path) {
  const auto fields = data.fields();
  const auto clip = std::find_if(fields.begin(), fields.end(), [](const Field& field) {
    return !field.is_text && field.sizes.size() == 4;
  });
  if (clip == fields.end()) {
    throw Error(Fault::kData,
                "there is nothing to draw: no field is a clip [channels, frames, "
                "height, width]");
  }
  constexpr int64_t kTiles = 16;
  constexpr int kColumns = 4;
  constexpr int kLeastWidth = 96;  // pixels; smaller frames are enlarged
  std::vector<media::Image> tiles;
  const int64_t count = std::min(kTiles, data.length());
  for (int64_t i = 0; i < count; ++i) {
    const auto sample = data.read(i * data.length() / count);
    const auto* tensor = sample.tensor(clip->name);
    if (tensor == nullptr || tensor->sizes.size() != 4 || tensor->bytes.empty()) {
      continue;
    }
    auto tile = first_frame(*tensor);
    tiles.push_back(media::enlarge(tile, std::max(1, kLeastWidth / tile.width)));
  }
  if (tiles.empty()) {
    throw Error(Fault::kData, "there is nothing to draw: the clips are empty");
  }
  try {
    media::write_png(path, media::grid(tiles, kColumns));
  } catch (const std::exception& error) {
    throw Error(Fault::kData, error.what());
  }
  std::cout << "  contact sheet: " << path.string() << ", first frames of " << tiles.size()
            << " rows, '" << clip->name << "'\n";
}

}  // namespace

void print_data(const ComponentSpec& dataset, const InspectOptions& options) {
  const OpenData data(dataset);
  const int64_t length = data.length();
  std::cout << "  rows: " << (length < 0 ? "a stream" : count_text(static_cast<uint64_t>(length)));
  if (const auto runs = data.runs(); runs > 0) {
    std::cout << " in " << count_text(runs) << " runs that are read together";
  }
  std::cout << '\n';
  print_facts(data.facts());
  for (const auto& field : data.fields()) {
    std::cout << "  field " << field.name << ": "
              << (field.is_text ? std::string("text")
                                : cat(name_of(field.dtype), ' ', sizes_text(field.sizes)))
              << '\n';
  }
  for (int64_t row = 0; row < std::min(options.samples, length); ++row) {
    std::cout << "  row " << row << '\n';
    try {
      for (const auto& [name, entry] : data.read(row).entries) {
        print_entry(name, entry);
      }
    } catch (const Error& error) {
      std::cout << "    cannot be read: " << error.message() << '\n';
    }
  }
  if (options.has_stats) {
    print_stats(data);
  }
  if (!options.contact_sheet.empty()) {
    draw_contact_sheet(data, options.contact_sheet);
  }
}

void inspect_data(const fs::path& path, const std::string& format, const InspectOptions& options) {
  auto& registry = *new Registry;  // never destroyed: its libraries stay open
  open_on_demand(registry);
  Diagnostics diagnostics;
  registry.load({format, "", {}}, fs::current_path(), diagnostics);
  diagnostics.throw_if_errors();
  provide_plain_services();
  registry.start(host_table());
  const auto* component = registry.find(kDatasetKind, format);
  if (component == nullptr) {
    throw Error(Fault::kPlugin, cat("plugin '", format, "' has no data set '", format, "'"));
  }
  auto config = std::make_shared<lb_config>(*default_config(*component).config);
  const auto option = std::find_if(config->table.begin(), config->table.end(),
                                   [](const auto& item) { return item.key == "data_path"; });
  if (option == config->table.end()) {
    throw Error(Fault::kPlugin, cat("the data set '", format, "' has no option data_path"));
  }
  option->value.value = path.string();
  ComponentSpec spec;
  spec.key = path.string();
  spec.component = component;
  spec.config = config;
  std::cout << path.string() << ": a data set (" << format << ")\n";
  print_data(spec, options);
}

}  // namespace limbeck::host
