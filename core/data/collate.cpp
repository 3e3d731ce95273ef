// SPDX-License-Identifier: Apache-2.0
#include "core/data/collate.hpp"

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/tensor/handle.hpp"

namespace limbeck {
namespace {

const char kRow[] = "row";
const char kMaskSuffix[] = "_mask";

[[noreturn]] void refuse(Fault fault,
                         const std::string& owner,
                         const std::string& what,
                         const std::string& hint = "") {
  throw Error(fault, cat(owner, ": ", what), hint);
}

std::string shape_text(at::IntArrayRef sizes) {
  std::string text;
  for (const int64_t size : sizes) {
    text += cat(text.empty() ? "" : ", ", size);
  }
  return "[" + text + "]";
}

const char* kind_name(const BatchEntry& entry) {
  static const char* const kNames[] = {"a tensor", "a number", "text", "a batch"};
  return kNames[entry.index()];
}

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// The entries of one field, one for each sample; null where a sample has none.
struct Column {
  const Field& field;
  const std::vector<int64_t>& rows;
  const std::string& owner;
  std::vector<const BatchEntry*> entries;

  std::string where(size_t i) const { return cat("field '", field.name, "' of row ", rows[i]); }
};

TextRows collate_text(const Column& column) {
  TextRows out;
  for (size_t i = 0; i < column.entries.size(); ++i) {
    const auto* text = std::get_if<TextRows>(column.entries[i]);
    if (text == nullptr) {
      refuse(Fault::kPlugin, column.owner,
             cat(column.where(i), " is ", kind_name(*column.entries[i]), ", but declared as text"));
    }
    if (text->size() != 1) {
      refuse(Fault::kPlugin, column.owner,
             cat(column.where(i), " has ", text->size(), " rows of text, expected 1"));
    }
    out.push_back(text->front());
  }
  return out;
}

at::Tensor collate_numbers(const Column& column) {
  const auto count = static_cast<int64_t>(column.entries.size());
  auto out = at::empty({count}, at::kDouble);
  auto* values = out.mutable_data_ptr<double>();
  for (size_t i = 0; i < column.entries.size(); ++i) {
    const auto* number = std::get_if<double>(column.entries[i]);
    if (number == nullptr) {
      refuse(Fault::kPlugin, column.owner,
             cat(column.where(i), " is ", kind_name(*column.entries[i]), ", but row ",
                 column.rows.front(), " has a number"));
    }
    values[i] = *number;
  }
  return out;
}

// The tensors of a column, checked against the declaration, contiguous.
std::vector<at::Tensor> tensors_of(const Column& column) {
  const auto& field = column.field;
  std::vector<at::Tensor> tensors;
  for (size_t i = 0; i < column.entries.size(); ++i) {
    const auto* tensor = std::get_if<at::Tensor>(column.entries[i]);
    if (tensor == nullptr || !tensor->defined()) {
      refuse(Fault::kPlugin, column.owner,
             cat(column.where(i), " is ",
                 tensor != nullptr ? "an undefined tensor" : kind_name(*column.entries[i]),
                 ", but declared as a tensor of shape ", shape_text(field.sizes)));
    }
    if (!tensor->device().is_cpu() || tensor->requires_grad()) {
      refuse(Fault::kPlugin, column.owner,
             cat(column.where(i), " must be a CPU tensor without history"));
    }
    if (tensor->scalar_type() != field.dtype) {
      refuse(Fault::kPlugin, column.owner,
             cat(column.where(i), " has dtype ", c10::toString(tensor->scalar_type()),
                 ", but declared as ", c10::toString(field.dtype)));
    }
    bool fits = tensor->dim() == static_cast<int64_t>(field.sizes.size());
    for (size_t d = 0; fits && d < field.sizes.size(); ++d) {
      fits = field.sizes[d] == -1 || field.sizes[d] == tensor->size(static_cast<int64_t>(d));
    }
    if (!fits) {
      refuse(Fault::kData, column.owner,
             cat(column.where(i), " has shape ", shape_text(tensor->sizes()),
                 ", but the data set declares ", shape_text(field.sizes), " (-1: varies)"));
    }
    tensors.push_back(tensor->contiguous());
  }
  return tensors;
}

// Copies by memcpy: at::stack would start OpenMP threads on every data-loading thread.
void copy_bytes(char* to, const char* from, int64_t bytes) {
  if (bytes > 0) {
    std::memcpy(to, from, static_cast<size_t>(bytes));
  }
}

at::Tensor stack(const Column& column, const std::vector<at::Tensor>& tensors) {
  const auto& first = tensors.front();
  for (size_t i = 1; i < tensors.size(); ++i) {
    if (tensors[i].sizes() != first.sizes()) {
      refuse(Fault::kData, column.owner,
             cat("field '", column.field.name, "' has shape ", shape_text(first.sizes()),
                 " in row ", column.rows.front(), " and ", shape_text(tensors[i].sizes()),
                 " in row ", column.rows[i], "; the samples of a batch must have equal shapes"),
             "sort the samples by shape into data sets of their own, or set train_batch_size = 1");
    }
  }
  auto sizes = first.sizes().vec();
  sizes.insert(sizes.begin(), static_cast<int64_t>(tensors.size()));
  auto out = at::empty(sizes, first.options());
  const auto bytes = static_cast<int64_t>(first.nbytes());
  auto* to = static_cast<char*>(out.mutable_data_ptr());
  for (const auto& tensor : tensors) {
    copy_bytes(to, static_cast<const char*>(tensor.const_data_ptr()), bytes);
    to += bytes;
  }
  return out;
}

struct Padded {
  at::Tensor values;
  at::Tensor mask;
};

Padded pad(const std::vector<at::Tensor>& tensors, int64_t dim, std::optional<int64_t> count) {
  int64_t length = 0;
  for (const auto& tensor : tensors) {
    length = std::max(length, tensor.size(dim));
  }
  length = count.value_or(length);

  const auto& first = tensors.front();
  auto sizes = first.sizes().vec();
  sizes[static_cast<size_t>(dim)] = length;
  int64_t outer = 1;  // blocks before the ragged dimension, bytes of one entry after it
  int64_t inner = static_cast<int64_t>(first.element_size());
  for (int64_t d = 0; d < first.dim(); ++d) {
    (d < dim ? outer : inner) *= d == dim ? 1 : sizes[static_cast<size_t>(d)];
  }
  const auto batch = static_cast<int64_t>(tensors.size());
  sizes.insert(sizes.begin(), batch);

  Padded out{at::empty(sizes, first.options()), at::empty({batch, length}, at::kFloat)};
  auto* to = static_cast<char*>(out.values.mutable_data_ptr());
  auto* mask = out.mask.mutable_data_ptr<float>();
  for (const auto& tensor : tensors) {
    const int64_t own = tensor.size(dim);
    const int64_t kept = std::min(own, length);
    const auto* from = static_cast<const char*>(tensor.const_data_ptr());
    for (int64_t block = 0; block < outer; ++block) {
      copy_bytes(to, from + block * own * inner, kept * inner);
      if (kept < length && inner > 0) {
        std::memset(to + kept * inner, 0, static_cast<size_t>((length - kept) * inner));
      }
      to += length * inner;
    }
    std::fill(mask, mask + kept, 1.0F);
    std::fill(mask + kept, mask + length, 0.0F);
    mask += length;
  }
  return out;
}

std::optional<int64_t> token_count(const TokenCounts& tokens, const std::string& field) {
  const auto found = tokens.find(field + ".tokens");
  if (found == tokens.end()) {
    return std::nullopt;
  }
  if (found->second < 1) {
    throw Error(Fault::kInternal,
                cat("the fact '", found->first, "' is ", found->second, ", expected at least 1"));
  }
  return found->second;
}

// False if no sample has the field, which is fine for an optional one.
bool fill_column(Column& column, const std::vector<lb_batch>& samples) {
  std::optional<size_t> found, absent;
  for (size_t i = 0; i < samples.size(); ++i) {
    const auto entry = samples[i].entries.find(column.field.name);
    const bool is_there = entry != samples[i].entries.end();
    column.entries.push_back(is_there ? &entry->second : nullptr);
    auto& example = is_there ? found : absent;
    example = example.value_or(i);
  }
  if (!absent) {
    return true;
  }
  if (!column.field.is_optional) {
    refuse(Fault::kData, column.owner,
           cat("row ", column.rows[*absent], " has no field '", column.field.name, "'"));
  }
  if (found) {
    refuse(Fault::kData, column.owner,
           cat("the optional field '", column.field.name, "' is missing in row ",
               column.rows[*absent], " but not in row ", column.rows[*found],
               "; either all samples of a batch have it or none"));
  }
  return false;
}

}  // namespace

int64_t Field::ragged_dim() const {
  if (is_text || std::count(sizes.begin(), sizes.end(), -1) != 1) {
    return -1;
  }
  return std::find(sizes.begin(), sizes.end(), -1) - sizes.begin();
}

std::vector<Field> copy_fields(const lb_fields& table,
                               const std::vector<std::string>& wanted,
                               const std::string& owner) {
  if (table.count > 0 && (table.items == nullptr || table.stride < sizeof(lb_field))) {
    refuse(Fault::kPlugin, owner,
           cat("the table of fields has a stride of ", table.stride, " bytes, expected at least ",
               sizeof(lb_field)));
  }
  std::vector<Field> fields;
  std::set<std::string> names = {kRow};
  const auto* item = reinterpret_cast<const char*>(table.items);
  for (uint32_t i = 0; i < table.count; ++i, item += table.stride) {
    const auto& declared = *reinterpret_cast<const lb_field*>(item);
    if (declared.name == nullptr || *declared.name == '\0') {
      refuse(Fault::kPlugin, owner, cat("field ", i, " has no name"));
    }
    Field field;
    field.name = declared.name;
    field.is_text = (declared.flags & LB_FIELD_TEXT) != 0;
    field.is_optional = (declared.flags & LB_FIELD_OPTIONAL) != 0;
    if (!field.is_text) {
      if (declared.dtype < LB_F32 || declared.dtype > LB_F8E5M2) {
        refuse(Fault::kPlugin, owner,
               cat("field '", field.name, "' has the unknown dtype ", declared.dtype));
      }
      field.dtype = scalar_type(declared.dtype);
      if (declared.ndim > 0) {
        if (declared.sizes == nullptr) {
          refuse(Fault::kPlugin, owner, cat("field '", field.name, "' has no sizes"));
        }
        field.sizes.assign(declared.sizes, declared.sizes + declared.ndim);
      }
      if (std::any_of(field.sizes.begin(), field.sizes.end(), [](int64_t n) { return n < -1; })) {
        refuse(Fault::kPlugin, owner,
               cat("field '", field.name, "' has the shape ", shape_text(field.sizes),
                   "; sizes are at least 0, or -1"));
      }
    }
    const std::string mask = field.name + kMaskSuffix;
    const bool is_ragged = field.ragged_dim() >= 0;
    field.is_wanted =
        wanted.empty() || contains(wanted, field.name) || (is_ragged && contains(wanted, mask));
    if (!names.insert(field.name).second || (is_ragged && !names.insert(mask).second)) {
      refuse(Fault::kPlugin, owner,
             cat("field '", field.name, "'", is_ragged ? " or its mask" : "",
                 " is declared twice, or is '", kRow, "', which the host adds"));
    }
    fields.push_back(std::move(field));
  }
  return fields;
}

std::vector<BatchName> batch_names(const std::vector<Field>& fields) {
  std::vector<BatchName> names = {{kRow, false}};
  for (const auto& field : fields) {
    if (field.is_wanted) {
      names.push_back({field.name, field.is_optional});
      if (field.ragged_dim() >= 0) {
        names.push_back({field.name + kMaskSuffix, field.is_optional});
      }
    }
  }
  std::sort(names.begin(), names.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  return names;
}

lb_batch collate(const std::vector<Field>& fields,
                 const std::vector<lb_batch>& samples,
                 const std::vector<int64_t>& rows,
                 const TokenCounts& tokens,
                 const std::string& owner) {
  if (samples.empty() || samples.size() != rows.size()) {
    throw Error(Fault::kInternal,
                cat("collate() got ", samples.size(), " samples and ", rows.size(), " rows"));
  }
  for (size_t i = 0; i < samples.size(); ++i) {
    for (const auto& [name, entry] : samples[i].entries) {
      if (std::none_of(fields.begin(), fields.end(),
                       [&key = name](const Field& field) { return field.name == key; })) {
        refuse(Fault::kPlugin, owner,
               cat("row ", rows[i], " has an entry '", name, "' that the data set's fields() ",
                   "does not declare"));
      }
    }
  }

  lb_batch batch;
  for (const auto& field : fields) {
    Column column{field, rows, owner, {}};
    if (!field.is_wanted || !fill_column(column, samples)) {
      continue;
    }
    if (field.is_text) {
      batch.put(field.name, collate_text(column));
    } else if (field.sizes.empty() && std::holds_alternative<double>(*column.entries.front())) {
      batch.put(field.name, collate_numbers(column));
    } else if (field.ragged_dim() >= 0) {
      auto padded = pad(tensors_of(column), field.ragged_dim(), token_count(tokens, field.name));
      batch.put(field.name, std::move(padded.values));
      batch.put(field.name + kMaskSuffix, std::move(padded.mask));
    } else {
      batch.put(field.name, stack(column, tensors_of(column)));
    }
  }
  auto row = at::empty({static_cast<int64_t>(rows.size())}, at::kLong);
  std::copy(rows.begin(), rows.end(), row.mutable_data_ptr<int64_t>());
  batch.put(kRow, std::move(row));
  return batch;
}

}  // namespace limbeck
