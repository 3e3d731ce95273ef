// SPDX-License-Identifier: Apache-2.0
// The lb_data that methods and callbacks get: a loader, with hooks applied to what it gives.
#pragma once

#include <functional>

#include <limbeck/abi.h>

#include "core/data/loader.hpp"

namespace limbeck {

// The table refers to this object and to `loader`, which must outlive it. [control]
class DataService {
 public:
  // `prepare` changes each batch before it is handed out; it may be empty and may throw.
  DataService(Loader& loader, std::function<void(lb_batch&)> prepare);
  DataService(const DataService&) = delete;
  DataService& operator=(const DataService&) = delete;

  const lb_data& table() const { return table_; }

 private:
  Loader& loader_;
  std::function<void(lb_batch&)> prepare_;
  lb_data table_;
};

}  // namespace limbeck
