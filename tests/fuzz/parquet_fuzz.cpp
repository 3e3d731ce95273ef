// SPDX-License-Identifier: Apache-2.0
// A file of samples that somebody else wrote: every row is read, or refused with an error.
#include <algorithm>
#include <cstddef>
#include <vector>

#include <limbeck/error.hpp>

#include "input.hpp"
#include "sample_files.hpp"

namespace {

volatile std::byte last;  // so that reading the values is not optimised away

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const limbeck::fuzz::InputFile input;
  input.set(data, size);
  try {
    const parquet_data::SampleFiles files(
        {input.path()}, {{"vae_latent", "text_embedding"}, {"caption"}, {"id"}}, int64_t{1} << 20);
    const auto rows = std::min<int64_t>(files.rows(), 64);
    for (int64_t row = 0; row < rows; ++row) {
      try {
        const auto sample = files.read(row);
        for (const auto& tensor : sample.tensors) {
          size_t bytes = sizeof(float);
          for (const auto one : tensor.sizes) {
            bytes *= static_cast<size_t>(one);
          }
          std::vector<std::byte> copy(tensor.data, tensor.data + bytes);
          last = copy.empty() ? std::byte{0} : copy.back();
        }
      } catch (const lb::Error&) {
      }
    }
    files.shapes(0);
  } catch (const lb::Error&) {
  }
  return 0;
}
