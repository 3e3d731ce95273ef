// SPDX-License-Identifier: Apache-2.0
#include "core/data/reader.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/plugin/status.hpp"

namespace limbeck {
namespace {

// "row 3", or "rows 3, 5, 9 (of 12)" with at most ten of them.
std::string rows_text(const std::vector<int64_t>& rows) {
  constexpr size_t kShown = 10;
  std::string text = rows.size() == 1 ? "row " : "rows ";
  for (size_t i = 0; i < std::min(rows.size(), kShown); ++i) {
    text += cat(i == 0 ? "" : ", ", rows[i]);
  }
  return rows.size() > kShown ? cat(text, ", ... (", rows.size(), ")") : text;
}

}  // namespace

std::string dataset_title(const ComponentSpec& dataset) {
  return cat("data set '", dataset.component->name(), "' (", dataset.key, ")");
}

Reader::Reader(const ComponentSpec& dataset, const SourceSpec& source)
    : table_(dataset.component->vtable<lb_dataset_vtable>()), title_(dataset_title(dataset)) {
  if (!LB_CAN(&table_, open) || !LB_CAN(&table_, close) || !LB_CAN(&table_, length) ||
      !LB_CAN(&table_, fields) || !LB_CAN(&table_, read)) {
    throw Error(Fault::kPlugin,
                cat(title_, ": its table lacks open, close, length, fields or read"));
  }
  std::vector<const char*> wanted;
  for (const auto& name : source.wanted) {
    wanted.push_back(name.c_str());
  }
  wanted.push_back(nullptr);
  lb_source table = {};
  table.struct_size = sizeof(lb_source);
  table.worker = source.worker;
  table.workers = source.workers;
  table.rank = source.rank;
  table.world = source.world;
  table.flags = source.skips_unreadable ? uint32_t{LB_SOURCE_SKIPS} : 0U;
  table.seed = source.seed;
  table.wanted = source.wanted.empty() ? nullptr : wanted.data();
  const auto* library = dataset.component->library;
  check(table_.open(library != nullptr ? library->state : nullptr, dataset.config.get(), &table,
                    &instance_),
        cat("while opening ", title_));
  length_ = table_.length(instance_);
  if (length_ < -1) {
    table_.close(instance_);
    throw Error(Fault::kPlugin, cat(title_, ": its length is ", length_));
  }
}

Reader::~Reader() { table_.close(instance_); }

std::vector<Field> Reader::fields(const std::vector<std::string>& wanted) const {
  lb_fields declared = {};
  check(table_.fields(instance_, &declared), cat("while asking for the fields of ", title_));
  return copy_fields(declared, wanted, title_);
}

std::vector<int64_t> Reader::runs() const {
  if (length_ < 0 || !LB_CAN(&table_, runs)) {
    return {};
  }
  const int64_t* ends = nullptr;
  uint64_t count = 0;
  check(table_.runs(instance_, &ends, &count), cat("while asking for the runs of ", title_));
  if (count == 0 || ends == nullptr) {
    return {};
  }
  std::vector<int64_t> copy(ends, ends + count);
  if (copy.front() < 0 || !std::is_sorted(copy.begin(), copy.end()) || copy.back() != length_) {
    throw Error(Fault::kPlugin, cat(title_, ": the ends of its runs must ascend to its length, ",
                                    length_, "; the last one is ", copy.back()));
  }
  return copy;
}

int64_t Reader::kept_runs() const {
  return LB_CAN(&table_, kept_runs) ? std::max<int64_t>(0, table_.kept_runs(instance_)) : 0;
}

uint64_t Reader::fingerprint() const {
  return LB_CAN(&table_, fingerprint) ? table_.fingerprint(instance_) : 0;
}

std::vector<Share> Reader::shares(const std::vector<int64_t>& runs) const {
  if (length_ < 0 || !LB_CAN(&table_, mix)) {
    return {};
  }
  lb_mix mix = {};
  check(table_.mix(instance_, &mix), cat("while asking for the sources of ", title_));
  if (mix.count > 0 && (mix.items == nullptr || mix.stride < sizeof(lb_mix_source))) {
    throw Error(Fault::kPlugin, cat(title_, ": its table of sources has a stride of ", mix.stride,
                                    " bytes, expected at least ", sizeof(lb_mix_source)));
  }
  std::vector<Share> shares;
  double sum = 0;
  const auto* item = reinterpret_cast<const char*>(mix.items);
  for (uint32_t i = 0; i < mix.count; ++i, item += mix.stride) {
    const auto& source = *reinterpret_cast<const lb_mix_source*>(item);
    const std::string name = source.name == nullptr ? cat("source ", i) : source.name;
    const int64_t begin = shares.empty() ? 0 : shares.back().end;
    if (!std::isfinite(source.weight) || source.weight < 0) {
      throw Error(Fault::kData, cat(title_, ": the weight of '", name, "' is ", source.weight,
                                    ", expected a number of at least 0"));
    }
    if (source.end < begin || (i + 1 == mix.count && source.end != length_)) {
      throw Error(Fault::kPlugin,
                  cat(title_, ": the ends of its sources must ascend to its length,", " ", length_,
                      "; '", name, "' ends at ", source.end));
    }
    if (source.end > 0 && !runs.empty() &&
        !std::binary_search(runs.begin(), runs.end(), source.end)) {
      throw Error(Fault::kPlugin,
                  cat(title_, ": its source '", name, "' ends at ", source.end, ", inside a run"));
    }
    if (source.weight > 0 && source.end == begin) {
      throw Error(Fault::kData,
                  cat(title_, ": '", name, "' has the weight ", source.weight, ", but no samples"),
                  "give it the weight 0, or remove it");
    }
    sum += source.weight;
    shares.push_back({source.end, source.weight});
  }
  if (!shares.empty() && sum <= 0) {
    throw Error(Fault::kData, cat(title_, ": all weights of its sources are 0"),
                "give at least one of them a weight");
  }
  return shares;
}

std::vector<lb_batch> Reader::read(const std::vector<int64_t>& rows, const Order& order) const {
  auto sorted = rows;
  std::sort(sorted.begin(), sorted.end());
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());

  std::vector<lb_batch> unique;
  for (auto first = sorted.begin(); first != sorted.end();) {
    const int64_t run = order.run_of(*first);
    const auto last =
        std::find_if(first, sorted.end(), [&](int64_t row) { return order.run_of(row) != run; });
    auto samples = read_run({first, last});
    std::move(samples.begin(), samples.end(), std::back_inserter(unique));
    first = last;
  }

  std::vector<lb_batch> out;
  for (const int64_t row : rows) {
    const auto at = std::lower_bound(sorted.begin(), sorted.end(), row) - sorted.begin();
    out.push_back(unique[static_cast<size_t>(at)]);
  }
  return out;
}

std::vector<lb_batch> Reader::read_run(const std::vector<int64_t>& rows) const {
  std::vector<lb_batch> samples(rows.size());
  if (rows.size() > 1 && LB_CAN(&table_, read_many)) {
    std::vector<lb_batch*> handles;
    for (auto& sample : samples) {
      handles.push_back(&sample);
    }
    check(table_.read_many(instance_, rows.data(), static_cast<uint32_t>(rows.size()),
                           handles.data()),
          cat("while reading ", rows_text(rows), " of ", title_));
    return samples;
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    check(table_.read(instance_, rows[i], &samples[i]),
          cat("while reading row ", rows[i], " of ", title_));
  }
  return samples;
}

bool Reader::read_stream(int64_t index, lb_batch& sample) const {
  auto* status = table_.read(instance_, index, &sample);
  if (status != nullptr && status->code == LB_OUT_OF_RANGE) {
    drop_status(status);
    return false;
  }
  check(status, cat("while reading sample ", index, " of the stream of ", title_));
  return true;
}

}  // namespace limbeck
