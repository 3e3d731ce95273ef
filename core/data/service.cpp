// SPDX-License-Identifier: Apache-2.0
#include "core/data/service.hpp"

#include <memory>
#include <utility>
#include <vector>

#include "core/tensor/guard.hpp"

namespace limbeck {

DataService::DataService(Loader& loader, std::function<void(lb_batch&)> prepare)
    : loader_(loader), prepare_(std::move(prepare)), table_{} {
  table_.struct_size = sizeof(lb_data);
  table_.ctx = this;
  table_.length = [](const lb_data* data) noexcept {
    return static_cast<DataService*>(data->ctx)->loader_.length();
  };
  table_.next = [](const lb_data* data, lb_batch** out) noexcept {
    return guarded([&] {
      auto& self = *static_cast<DataService*>(data->ctx);
      auto batch = std::make_unique<lb_batch>(std::move(*self.loader_.next()));
      if (self.prepare_) {
        self.prepare_(*batch);
      }
      *out = batch.release();
    });
  };
  table_.rows = [](const lb_data* data, const int64_t* indices, uint32_t count,
                   lb_batch** out) noexcept {
    return guarded([&] {
      auto& self = *static_cast<DataService*>(data->ctx);
      auto batch = std::make_unique<lb_batch>(
          std::move(*self.loader_.rows(std::vector<int64_t>(indices, indices + count))));
      if (self.prepare_) {
        self.prepare_(*batch);
      }
      *out = batch.release();
    });
  };
}

}  // namespace limbeck
