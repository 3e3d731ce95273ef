// SPDX-License-Identifier: Apache-2.0
// Sizes and boxes from files that anybody may have written.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/export.hpp"
#include "core/dcp/index.hpp"

namespace limbeck {

inline constexpr size_t kMaxDcpDims = 64;  // of libtorch's iterators

// The number of elements, or nothing if a size is negative or the bytes would not fit into 62 bits.
LIMBECK_API std::optional<int64_t> checked_numel(const std::vector<int64_t>& sizes,
                                                 uint64_t element_bytes);

// Whether `inner` lies in a tensor of `sizes` and has as many dimensions.
LIMBECK_API bool is_inside(const DcpBox& inner, const std::vector<int64_t>& sizes);

// The common part; nothing if there is none or it is empty.
LIMBECK_API std::optional<DcpBox> intersection(const DcpBox& a, const DcpBox& b);

// Whether boxes that lie in a tensor of `sizes` cover each of its elements exactly once. Takes time
// in proportion to their number.
LIMBECK_API bool is_tiling(const std::vector<const DcpBox*>& boxes,
                           const std::vector<int64_t>& sizes);

// "[2, 3]"
LIMBECK_API std::string show(const std::vector<int64_t>& sizes);

}  // namespace limbeck
