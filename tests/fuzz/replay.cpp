// SPDX-License-Identifier: Apache-2.0
// libFuzzer's place in a build without it: runs the seeds of a folder and a fixed list of damaged
// copies of them. It finds nothing new; it keeps what was found from coming back, in seconds and
// under any compiler and sanitizer.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "input.hpp"

namespace {

constexpr size_t kDamagedCopies = 400;  // of each seed

using Bytes = std::vector<uint8_t>;

std::vector<std::filesystem::path> seeds_in(const char* folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

Bytes read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return Bytes(std::istreambuf_iterator<char>(file), {});
}

// The numbers of splitmix64: the same on every machine.
class Random {
 public:
  uint64_t below(uint64_t limit) {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return (z ^ (z >> 31)) % limit;
  }

 private:
  uint64_t state_ = 1;
};

// One to four small faults: what a broken disk, a careless editor or an attacker makes.
Bytes damaged(Bytes bytes, Random& random) {
  for (uint64_t n = random.below(4) + 1; n > 0 && !bytes.empty(); --n) {
    const auto at = static_cast<std::ptrdiff_t>(random.below(bytes.size()));
    const auto place = bytes.begin() + at;
    switch (random.below(6)) {
      case 0:
        *place ^= static_cast<uint8_t>(1U << random.below(8));
        break;
      case 1:
        *place = static_cast<uint8_t>(random.below(256));
        break;
      case 2:
        bytes.erase(place, bytes.end());
        break;
      case 3:
        bytes.erase(place, place + std::min<std::ptrdiff_t>(bytes.end() - place, 8));
        break;
      case 4:
        bytes.insert(place, static_cast<uint8_t>(random.below(256)));
        break;
      default:
        std::fill(place, place + std::min<std::ptrdiff_t>(bytes.end() - place, 8), 0xff);
    }
  }
  return bytes;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
    return 64;
  }
  size_t count = 0;
  Random random;
  for (const auto& path : seeds_in(argv[1])) {
    const Bytes seed = read(path);
    LLVMFuzzerTestOneInput(seed.data(), seed.size());
    ++count;
    for (size_t i = 0; i < kDamagedCopies; ++i, ++count) {
      const Bytes bytes = damaged(seed, random);
      LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
    }
  }
  if (count == 0) {
    std::fprintf(stderr, "%s has no seeds\n", argv[1]);
    return 1;
  }
  std::printf("%zu inputs\n", count);
  return 0;
}
