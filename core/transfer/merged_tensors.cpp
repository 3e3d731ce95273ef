// SPDX-License-Identifier: Apache-2.0
#include "core/transfer/merged_tensors.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/transfer/numbers.hpp"

namespace limbeck {
namespace {

std::vector<double> numbers_of(const TensorFiles& files, const std::string& name, double scale) {
  const auto& shape = files.shape(name);
  std::vector<double> numbers;
  numbers.reserve(shape.numel());
  const uint64_t width = shape.type->bits / 8;
  read_blocks(files, name, [&](const std::byte* data, uint64_t /*first*/, uint64_t bytes) {
    for (uint64_t i = 0; i < bytes / width; ++i) {
      numbers.push_back(number_at(*shape.type, data, i) * scale);
    }
  });
  return numbers;
}

}  // namespace

MergedTensors::MergedTensors(std::unique_ptr<TensorFiles> base,
                             const TensorFiles& adapters,
                             std::string prefix,
                             AdapterConfig config)
    : base_(std::move(base)),
      adapters_(adapters),
      prefix_(std::move(prefix)),
      config_(std::move(config)) {
  path_ = base_->path();
  tensors_ = base_->tensors();
  std::vector<std::string> faults;
  for (auto at = adapters_.tensors().lower_bound(prefix_);
       at != adapters_.tensors().end() && at->first.starts_with(prefix_); ++at) {
    const auto own = at->first.substr(prefix_.size());
    if (!own.ends_with(kAdapterA)) {
      continue;
    }
    const auto layer = own.substr(0, own.size() - std::strlen(kAdapterA));
    const auto weight = tensors_.find(layer + ".weight");
    const auto& b = adapters_.shape(prefix_ + layer + kAdapterB);
    if (weight == tensors_.end()) {
      faults.push_back(layer + ": no weight");
    } else if (const std::vector<int64_t> expected = {b.sizes.at(0), at->second.sizes.at(1)};
               weight->second.sizes != expected || !is_floating(*weight->second.type)) {
      faults.push_back(cat(layer, ": the weight is ", weight->second.type->name, " ",
                           shape_text(weight->second.sizes), ", the adapter is for ",
                           shape_text(expected)));
    } else {
      layers_.emplace(weight->first, layer);
    }
  }
  if (!faults.empty() || layers_.empty()) {
    throw Error(Fault::kData,
                cat(path_.string(), ": the adapters of the checkpoint do not fit: ",
                    faults.empty() ? "there are none" : first_ten(faults, "; ")),
                "name the weights that they were trained on: --base");
  }
}

void MergedTensors::load(const std::string& name, const std::string& layer) const {
  const auto& shape = adapters_.shape(prefix_ + layer + kAdapterA);
  factors_ = {name, static_cast<uint64_t>(shape.sizes[1]), static_cast<uint64_t>(shape.sizes[0]),
              numbers_of(adapters_, prefix_ + layer + kAdapterA, config_.scale_of(layer)),
              numbers_of(adapters_, prefix_ + layer + kAdapterB, 1.0)};
}

void MergedTensors::read(const std::string& name,
                         uint64_t first,
                         uint64_t bytes,
                         std::byte* out) const {
  base_->read(name, first, bytes, out);
  const auto layer = layers_.find(name);
  if (layer == layers_.end()) {
    return;
  }
  if (factors_.name != name) {
    load(name, layer->second);
  }
  const auto& type = *shape(name).type;
  const uint64_t width = type.bits / 8;
  const auto& f64 = *find_weight_type("F64");
  std::vector<double> row;
  // Row by row: what is read need not begin or end with one.
  for (uint64_t i = first / width, end = (first + bytes) / width; i < end;) {
    const uint64_t column = i % factors_.width;
    const uint64_t count = std::min(end - i, factors_.width - column);
    row.resize(count);
    std::byte* place = out + (i * width - first);
    for (uint64_t k = 0; k < count; ++k) {
      row[k] = number_at(type, place, k);
    }
    const double* b = factors_.b.data() + i / factors_.width * factors_.rank;
    for (uint64_t r = 0; r < factors_.rank; ++r) {
      const double* a = factors_.a.data() + r * factors_.width + column;
      for (uint64_t k = 0; k < count; ++k) {
        row[k] += b[r] * a[k];
      }
    }
    convert_numbers(f64, type, reinterpret_cast<const std::byte*>(row.data()), count, place);
    i += count;
  }
}

}  // namespace limbeck
