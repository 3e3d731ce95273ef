// SPDX-License-Identifier: Apache-2.0
#include "core/tensor/batch.hpp"

#include <iterator>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/tensor/handle.hpp"

namespace limbeck {
namespace {

const char* const kEntryNames[] = {"a tensor", "a number", "text", "a batch"};

lb_batch* batch_create(const lb_batch* like) noexcept {
  return like != nullptr ? new lb_batch(*like) : new lb_batch;
}
void batch_destroy(lb_batch* batch) noexcept { delete batch; }

lb_tensor* batch_get(const lb_batch* batch, const char* name) noexcept {
  const auto* tensor = batch->find<at::Tensor>(name);
  return tensor != nullptr ? lend(*tensor) : nullptr;
}
void batch_put(lb_batch* batch, const char* name, lb_tensor* taken) noexcept {
  batch->put(name, take(taken));
}

double batch_number(const lb_batch* batch, const char* name, double otherwise) noexcept {
  return batch->number(name, otherwise);
}
void batch_put_number(lb_batch* batch, const char* name, double value) noexcept {
  batch->put(name, value);
}

const char* batch_text(const lb_batch* batch, const char* name, uint32_t row) noexcept {
  const auto* rows = batch->find<TextRows>(name);
  return rows != nullptr && row < rows->size() ? (*rows)[row].c_str() : nullptr;
}
void batch_put_text(lb_batch* batch, const char* name, uint32_t row, const char* text) noexcept {
  auto& entry = batch->entries[name];
  if (!std::holds_alternative<TextRows>(entry)) {
    entry = TextRows();
  }
  auto& rows = std::get<TextRows>(entry);
  if (rows.size() <= row) {
    rows.resize(row + size_t{1});
  }
  rows[row] = text;
}

const lb_batch* batch_batch(const lb_batch* batch, const char* name) noexcept {
  const auto* nested = batch->find<std::shared_ptr<const lb_batch>>(name);
  return nested != nullptr ? nested->get() : nullptr;
}
void batch_put_batch(lb_batch* batch, const char* name, lb_batch* taken) noexcept {
  batch->put(name, std::shared_ptr<const lb_batch>(taken));
}

void batch_remove(lb_batch* batch, const char* name) noexcept {
  const auto entry = batch->entries.find(std::string_view(name));
  if (entry != batch->entries.end()) {
    batch->entries.erase(entry);
  }
}

lb_entry batch_kind(const lb_batch* batch, const char* name) noexcept {
  const auto entry = batch->entries.find(std::string_view(name));
  return entry == batch->entries.end()
             ? LB_ENTRY_NONE
             : static_cast<lb_entry>(LB_ENTRY_TENSOR + static_cast<int>(entry->second.index()));
}
uint32_t batch_rows(const lb_batch* batch, const char* name) noexcept {
  const auto* rows = batch->find<TextRows>(name);
  return rows != nullptr ? static_cast<uint32_t>(rows->size()) : 0;
}
uint32_t batch_size(const lb_batch* batch) noexcept {
  return static_cast<uint32_t>(batch->entries.size());
}
const char* batch_name_at(const lb_batch* batch, uint32_t index) noexcept {
  return index < batch->entries.size()
             ? std::next(batch->entries.begin(), static_cast<std::ptrdiff_t>(index))->first.c_str()
             : nullptr;
}

}  // namespace

const lb_batch_api& batch_api() {
  static const lb_batch_api api = {sizeof(lb_batch_api),
                                   0,
                                   batch_create,
                                   batch_destroy,
                                   batch_get,
                                   batch_put,
                                   batch_number,
                                   batch_put_number,
                                   batch_text,
                                   batch_put_text,
                                   batch_batch,
                                   batch_put_batch,
                                   batch_remove,
                                   batch_kind,
                                   batch_rows,
                                   batch_size,
                                   batch_name_at};
  return api;
}

}  // namespace limbeck

const at::Tensor& lb_batch::tensor(std::string_view name) const {
  if (const auto* found = find<at::Tensor>(name)) {
    return *found;
  }
  const auto entry = entries.find(name);
  if (entry != entries.end()) {
    throw limbeck::Error(
        limbeck::Fault::kInternal,
        limbeck::cat("batch entry '", name, "' is ", limbeck::kEntryNames[entry->second.index()],
                     ", expected a tensor"));
  }
  std::vector<std::string> names;
  for (const auto& [key, value] : entries) {
    names.push_back(key);
  }
  throw limbeck::Error(limbeck::Fault::kInternal,
                       limbeck::cat("the batch has no entry '", name, "'"),
                       limbeck::cat("it has: ", limbeck::join(names)));
}

double lb_batch::number(std::string_view name, double otherwise) const {
  const auto* found = find<double>(name);
  return found != nullptr ? *found : otherwise;
}
