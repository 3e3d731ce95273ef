// SPDX-License-Identifier: Apache-2.0
// Numbers in files: as doubles, and as another type.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/base/export.hpp"
#include "core/weights/safetensors_header.hpp"

namespace limbeck {

// F64, F32, BF16 or F16: the types of weights, which become one another.
LIMBECK_API bool is_floating(const WeightType& type);
// Types of which number_at() tells the value: the floating ones, integers and BOOL.
LIMBECK_API bool has_numbers(const WeightType& type);

// Number `i` of `bytes`, a type with numbers. Exact but for integers of more than 53 bits. `bytes`
// need not be aligned.
LIMBECK_API double number_at(const WeightType& type, const std::byte* bytes, uint64_t i);

// Writes `count` numbers to `out` as `to`: the same bits if the types are equal, else rounded once
// to the nearest, ties to even. A NaN stays a NaN, quiet, with its sign and the upper bits of its
// payload. Returns how many finite numbers became infinite. Types that are not equal are floating
// ones. [any]
LIMBECK_API uint64_t convert_numbers(const WeightType& from,
                                     const WeightType& to,
                                     const std::byte* in,
                                     uint64_t count,
                                     std::byte* out);

}  // namespace limbeck
