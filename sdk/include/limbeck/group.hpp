// SPDX-License-Identifier: Apache-2.0
// Collectives on values, without history. Every rank of the group calls. [control]
#pragma once

#include <limbeck/batch.hpp>

namespace lb {
inline namespace v1 LB_HIDDEN {

// One group of ranks: LB_WORLD, LB_DATA or LB_SEQUENCE.
class Group {
 public:
  explicit Group(lb_group group) : group_(group) {}

  uint32_t rank() const { return services.group == nullptr ? 0 : services.group->rank(group_); }
  uint32_t size() const { return services.group == nullptr ? 1 : services.group->size(group_); }
  // Tensors joined along dimension 0 and rows of text appended, in rank order.
  Batch all_gather(const Batch& mine) const {
    if (services.group == nullptr) {
      return mine;
    }
    lb_batch* out = nullptr;
    check(services.group->all_gather(group_, mine.raw(), &out));
    return Batch::take(out);
  }
  Tensor all_reduce(lb_reduce how, const Tensor& mine) const {
    if (services.group == nullptr) {
      return mine;
    }
    lb_tensor* out = nullptr;
    check(services.group->all_reduce(group_, how, mine.raw(), &out));
    return Tensor::take(out);
  }
  // What rank `root` passes; that of the others does not count.
  Batch broadcast(uint32_t root, const Batch& mine) const {
    if (services.group == nullptr) {
      return mine;
    }
    lb_batch* out = nullptr;
    check(services.group->broadcast(group_, root, mine.raw(), &out));
    return Batch::take(out);
  }
  void barrier() const {
    if (services.group != nullptr) {
      check(services.group->barrier(group_));
    }
  }

 private:
  lb_group group_;
};

}  // namespace v1
}  // namespace lb
