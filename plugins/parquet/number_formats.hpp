// SPDX-License-Identifier: Apache-2.0
// Numbers as files store them, and as the 32-bit floats that latents and text embeddings are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace parquet_data {

// Bytes of one number of a type as NumPy or libtorch call it ("float32", "torch.bfloat16"), 0 for
// a type that is none of supported_types().
size_t width_of(std::string_view dtype);
std::string supported_types();

// Whether the bytes are 32-bit floats already.
bool is_float32(std::string_view dtype);

// The numbers as 32-bit floats: float16 and bfloat16 exactly, float64 rounded, bool 0 or 1.
// `bytes` is a multiple of width_of(dtype), which is not 0. An integer that a 32-bit float cannot
// hold, and a bool that is neither 0 nor 1, gives null and its text in `refused`.
std::unique_ptr<float[]> to_floats(std::string_view bytes,
                                   std::string_view dtype,
                                   std::string& refused);

}  // namespace parquet_data
