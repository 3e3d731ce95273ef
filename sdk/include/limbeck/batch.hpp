// SPDX-License-Identifier: Apache-2.0
// lb::Batch: named tensors, numbers, rows of text and batches. A micro-batch, the inputs and
// outputs of a network, a cache, the facts about a run: all are this one type.
//
// A name is [a-z0-9_.]+. One batch is used on one thread at a time.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <limbeck/error.hpp>
#include <limbeck/tensor.hpp>

namespace lb {
inline namespace v1 LB_HIDDEN {

// Owns its entries, or looks at a batch of the host for the length of a call. Copies are cheap:
// tensors are shared.
class Batch {
 public:
  Batch() : batch_(services.batch->create(nullptr)), owns_(true) {}
  Batch(const Batch& other) : batch_(services.batch->create(other.batch_)), owns_(true) {}
  Batch(Batch&& other) noexcept
      : batch_(std::exchange(other.batch_, nullptr)), owns_(std::exchange(other.owns_, false)) {}
  // Replaces what this object holds; a view then no longer looks at its batch.
  Batch& operator=(Batch other) noexcept {
    std::swap(batch_, other.batch_);
    std::swap(owns_, other.owns_);
    return *this;
  }
  ~Batch() {
    if (owns_) {
      services.batch->destroy(batch_);
    }
  }

  // Takes over a batch of the ABI.
  static Batch take(lb_batch* taken) { return Batch(taken, true); }
  // Looks at a lent one; NULL looks like an empty batch that cannot be changed.
  static Batch view(const lb_batch* lent) { return Batch(const_cast<lb_batch*>(lent), false); }
  // The batch, lent: valid as long as this object.
  lb_batch* raw() const { return batch_; }
  // The batch, handed over; this becomes empty. Of a view: a copy.
  lb_batch* release() {
    if (!owns_) {
      return services.batch->create(batch_);
    }
    owns_ = false;
    return std::exchange(batch_, nullptr);
  }

  lb_entry kind(const std::string& name) const {
    return batch_ == nullptr ? LB_ENTRY_NONE : services.batch->kind(batch_, name.c_str());
  }
  bool has(const std::string& name) const { return kind(name) != LB_ENTRY_NONE; }
  bool has_text(const std::string& name) const { return kind(name) == LB_ENTRY_TEXT; }
  bool has_tensor(const std::string& name) const { return kind(name) == LB_ENTRY_TENSOR; }

  // The tensor of that name; Error(LB_NOT_FOUND) that lists what there is.
  Tensor operator[](const std::string& name) const {
    auto tensor = find(name);
    if (!tensor.defined()) {
      throw missing("tensor", name);
    }
    return tensor;
  }
  // The tensor of that name, undefined when there is none.
  Tensor find(const std::string& name) const {
    return Tensor::share(batch_ == nullptr ? nullptr : services.batch->get(batch_, name.c_str()));
  }
  // The number of that name.
  double number(const std::string& name, double otherwise) const {
    return batch_ == nullptr ? otherwise : services.batch->number(batch_, name.c_str(), otherwise);
  }
  // The same, Error(LB_NOT_FOUND) when there is none.
  double number(const std::string& name) const {
    if (kind(name) != LB_ENTRY_NUMBER) {
      throw missing("number", name);
    }
    return number(name, 0);
  }
  // Rows of the text of that name; 0 when there is none.
  uint32_t rows(const std::string& name) const {
    return has_text(name) ? services.batch->rows(batch_, name.c_str()) : 0;
  }
  // One row of text; Error(LB_NOT_FOUND) when there is none.
  std::string text(const std::string& name, uint32_t row = 0) const {
    const char* text = has_text(name) ? services.batch->text(batch_, name.c_str(), row) : nullptr;
    if (text == nullptr) {
      throw missing("text", name);
    }
    return text;
  }
  std::vector<std::string> texts(const std::string& name) const {
    std::vector<std::string> all(rows(name));
    for (uint32_t row = 0; row < all.size(); ++row) {
      all[row] = text(name, row);
    }
    return all;
  }
  // A copy of the nested batch; Error(LB_NOT_FOUND) when there is none.
  Batch batch(const std::string& name) const {
    if (kind(name) != LB_ENTRY_BATCH) {
      throw missing("batch", name);
    }
    return Batch(view(services.batch->batch(batch_, name.c_str())));
  }
  // Sorted.
  std::vector<std::string> names() const {
    std::vector<std::string> all(batch_ == nullptr ? 0 : services.batch->size(batch_));
    for (uint32_t i = 0; i < all.size(); ++i) {
      all[i] = services.batch->name_at(batch_, i);
    }
    return all;
  }
  Batch copy() const { return Batch(*this); }

  // Adds or replaces an entry.
  Batch& set(const std::string& name, Tensor value) {
    if (!value.defined()) {
      throw Error(LB_INVALID_ARGUMENT, "an undefined tensor for the batch entry '" + name + "'");
    }
    services.batch->put(mutable_batch(), name.c_str(), value.release());
    return *this;
  }
  template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>>
  Batch& set(const std::string& name, T value) {
    services.batch->put_number(mutable_batch(), name.c_str(), static_cast<double>(value));
    return *this;
  }
  Batch& set(const std::string& name, const char* value) { return set(name, std::string(value)); }
  Batch& set(const std::string& name, const std::string& value) {
    return set(name, std::vector<std::string>{value});
  }
  Batch& set(const std::string& name, const std::vector<std::string>& rows_of_text) {
    drop(name);
    for (uint32_t row = 0; row < rows_of_text.size(); ++row) {
      services.batch->put_text(batch_, name.c_str(), row, rows_of_text[row].c_str());
    }
    return *this;
  }
  Batch& set(const std::string& name, Batch value) {
    services.batch->put_batch(mutable_batch(), name.c_str(), value.release());
    return *this;
  }
  // Removes an entry if it is there.
  Batch& drop(const std::string& name) {
    services.batch->remove(mutable_batch(), name.c_str());
    return *this;
  }

 private:
  Batch(lb_batch* batch, bool owns) : batch_(batch), owns_(owns) {}

  lb_batch* mutable_batch() {
    if (batch_ == nullptr) {
      batch_ = services.batch->create(nullptr);
      owns_ = true;
    }
    return batch_;
  }
  Error missing(const char* what, const std::string& name) const {
    std::string text = std::string("no ") + what + " '" + name + "' in the batch; it has ";
    const auto all = names();
    for (size_t i = 0; i < all.size(); ++i) {
      text += (i == 0 ? "" : ", ") + all[i];
    }
    return Error(LB_NOT_FOUND, all.empty() ? text + "nothing" : text);
  }

  lb_batch* batch_;
  bool owns_;
};

}  // namespace v1
}  // namespace lb
