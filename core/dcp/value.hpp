// SPDX-License-Identifier: Apache-2.0
// Plain Python values, as pickles hold them: read and written without Python.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "core/base/export.hpp"

namespace limbeck {

// None, bool, int of 64 bits, float, str, bytes, list or tuple, dict. Anything else that a pickle
// may hold is Opaque: known by the name of its class only, and of no use but for a message.
struct DcpValue {
  struct None {};
  struct Bytes {
    std::string data;
  };
  using List = std::vector<DcpValue>;
  struct Entry;
  using Dict = std::vector<Entry>;
  struct Opaque {
    std::string what;  // "torch.optim.adamw.AdamW"
  };
  std::variant<None, bool, int64_t, double, std::string, Bytes, List, Dict, Opaque> value;
};

struct DcpValue::Entry {
  DcpValue first;  // the key
  DcpValue second;
};

}  // namespace limbeck
