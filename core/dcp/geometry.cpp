// SPDX-License-Identifier: Apache-2.0
#include "core/dcp/geometry.hpp"

#include <algorithm>

#include "core/base/error.hpp"
#include "core/base/text.hpp"

namespace limbeck {

int64_t DcpBox::numel() const {
  int64_t count = 1;
  for (const int64_t size : sizes) {
    count *= size;
  }
  return count;
}

std::optional<int64_t> checked_numel(const std::vector<int64_t>& sizes, uint64_t element_bytes) {
  const uint64_t limit = uint64_t{1} << 62;
  // Sizes of zero last: the product of the others must not overflow either.
  uint64_t bytes = element_bytes;
  bool is_empty = false;
  for (const int64_t size : sizes) {
    const auto count = static_cast<uint64_t>(std::max<int64_t>(size, 1));
    if (size < 0 || bytes > limit / count) {
      return std::nullopt;
    }
    is_empty = is_empty || size == 0;
    bytes *= count;
  }
  return is_empty ? 0 : static_cast<int64_t>(bytes / element_bytes);
}

bool is_inside(const DcpBox& inner, const std::vector<int64_t>& sizes) {
  if (inner.offsets.size() != sizes.size() || inner.sizes.size() != sizes.size()) {
    return false;
  }
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (inner.offsets[d] < 0 || inner.sizes[d] < 0 || inner.offsets[d] > sizes[d] ||
        inner.sizes[d] > sizes[d] - inner.offsets[d]) {
      return false;
    }
  }
  return true;
}

std::optional<DcpBox> intersection(const DcpBox& a, const DcpBox& b) {
  DcpBox common;
  for (size_t d = 0; d < a.sizes.size(); ++d) {
    const int64_t begin = std::max(a.offsets[d], b.offsets[d]);
    const int64_t end = std::min(a.offsets[d] + a.sizes[d], b.offsets[d] + b.sizes[d]);
    if (begin >= end) {
      return std::nullopt;
    }
    common.offsets.push_back(begin);
    common.sizes.push_back(end - begin);
  }
  return common;
}

namespace {

// Numbers modulo the prime 2^61 - 1.
constexpr uint64_t kPrime = (uint64_t{1} << 61) - 1;
__extension__ using Wide = unsigned __int128;

uint64_t times(uint64_t a, uint64_t b) {
  const Wide product = static_cast<Wide>(a) * b;
  const uint64_t sum =
      static_cast<uint64_t>(product & kPrime) + static_cast<uint64_t>(product >> 61);
  return sum >= kPrime ? sum - kPrime : sum;
}
uint64_t minus(uint64_t a, uint64_t b) { return a >= b ? a - b : a + kPrime - b; }

// A number for a coordinate: a hash, of splitmix64.
uint64_t mark_of(size_t dimension, int64_t coordinate) {
  uint64_t z = static_cast<uint64_t>(coordinate) + (dimension + 1) * 0x9e3779b97f4a7c15U;
  for (int round = 0; round < 2; ++round) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    z ^= z >> 31;
  }
  return z % kPrime;
}

// The sum over the corners of a box, with alternating signs, of the product of their marks.
uint64_t corners_of(const int64_t* offsets, const std::vector<int64_t>& sizes) {
  uint64_t product = 1;
  for (size_t d = 0; d < sizes.size(); ++d) {
    const int64_t begin = offsets == nullptr ? 0 : offsets[d];
    product = times(product, minus(mark_of(d, begin + sizes[d]), mark_of(d, begin)));
  }
  return product;
}

}  // namespace

// Boxes cover a tensor exactly once if and only if their corners, counted with alternating signs,
// are those of the tensor: what two boxes have in common cancels. Instead of sets of corners their
// sums of marks are compared. These are polynomials of a degree of at most the number of
// dimensions in the marks: different sets have equal sums with a probability of about 64 / 2^61.
bool is_tiling(const std::vector<const DcpBox*>& boxes, const std::vector<int64_t>& sizes) {
  uint64_t sum = 0;
  for (const DcpBox* box : boxes) {
    sum = (sum + corners_of(box->offsets.data(), box->sizes)) % kPrime;
  }
  return sum == corners_of(nullptr, sizes);
}

std::string show(const std::vector<int64_t>& sizes) {
  std::vector<std::string> items;
  for (const int64_t size : sizes) {
    items.push_back(std::to_string(size));
  }
  return cat("[", join(items), "]");
}

namespace {

// The part [begin, end) of the sub-tensor at `fixed`, the first dimensions' indices.
void add_boxes(const std::vector<int64_t>& sizes,
               std::vector<int64_t>& fixed,
               int64_t begin,
               int64_t end,
               std::vector<DcpBox>& boxes) {
  const size_t dimension = fixed.size();
  const auto add = [&](int64_t first, int64_t count) {
    DcpBox box;
    box.offsets.assign(sizes.size(), 0);
    box.sizes = sizes;
    for (size_t d = 0; d < dimension; ++d) {
      box.offsets[d] = fixed[d];
      box.sizes[d] = 1;
    }
    if (dimension < sizes.size()) {
      box.offsets[dimension] = first;
      box.sizes[dimension] = count;
    }
    boxes.push_back(std::move(box));
  };
  if (begin == end) {
    return;
  }
  if (dimension == sizes.size()) {
    add(0, 1);
    return;
  }
  int64_t row = 1;
  for (size_t d = dimension + 1; d < sizes.size(); ++d) {
    row *= sizes[d];
  }
  const auto descend = [&](int64_t index, int64_t from, int64_t to) {
    fixed.push_back(index);
    add_boxes(sizes, fixed, from, to, boxes);
    fixed.pop_back();
  };
  int64_t first = begin / row;
  const int64_t last = end / row;
  if (first == last) {
    descend(first, begin % row, end % row);
    return;
  }
  if (begin % row != 0) {
    descend(first, begin % row, row);
    ++first;
  }
  if (first < last) {
    add(first, last - first);
  }
  if (end % row != 0) {
    descend(last, 0, end % row);
  }
}

}  // namespace

std::vector<DcpBox> boxes_of_range(const std::vector<int64_t>& sizes, int64_t begin, int64_t end) {
  const auto numel = checked_numel(sizes, 1);
  if (!numel || begin < 0 || begin > end || end > *numel) {
    throw Error(Fault::kInternal, cat("elements ", begin, " to ", end, " of a tensor of sizes ",
                                      show(sizes), " were asked for"));
  }
  std::vector<DcpBox> boxes;
  std::vector<int64_t> fixed;
  add_boxes(sizes, fixed, begin, end, boxes);
  return boxes;
}

}  // namespace limbeck
