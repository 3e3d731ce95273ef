// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "error_message.hpp"

#include <doctest/doctest.h>

#include "core/dcp/geometry.hpp"
#include "core/dcp/index.hpp"

namespace limbeck {
namespace {

using Sizes = std::vector<int64_t>;

// The row-major positions of a box's elements, in the box's order.
std::vector<int64_t> elements_of(const DcpBox& box, const Sizes& sizes) {
  std::vector<int64_t> elements;
  for (int64_t n = 0; n < box.numel(); ++n) {
    int64_t rest = n;
    int64_t place = 0;
    int64_t stride = 1;
    for (size_t d = sizes.size(); d-- > 0;) {
      place += (box.offsets[d] + rest % box.sizes[d]) * stride;
      rest /= box.sizes[d];
      stride *= sizes[d];
    }
    elements.push_back(place);
  }
  return elements;
}

bool tiles(const std::vector<DcpBox>& boxes, const Sizes& sizes) {
  std::vector<const DcpBox*> pointers;
  for (const auto& box : boxes) {
    pointers.push_back(&box);
  }
  return is_tiling(pointers, sizes);
}

}  // namespace

TEST_CASE("dcp boxes: every range of small tensors is covered in order by few boxes") {
  for (const Sizes& sizes : {Sizes{}, Sizes{7}, Sizes{1, 5}, Sizes{3, 4}, Sizes{2, 3, 4},
                             Sizes{1, 1, 6}, Sizes{3, 1, 2}, Sizes{2, 2, 2, 3}}) {
    const int64_t numel = DcpBox{Sizes(sizes.size(), 0), sizes}.numel();
    const size_t most = sizes.empty() ? 1 : 2 * sizes.size() - 1;
    for (int64_t begin = 0; begin <= numel; ++begin) {
      for (int64_t end = begin; end <= numel; ++end) {
        const auto boxes = boxes_of_range(sizes, begin, end);
        std::vector<int64_t> covered;
        for (const auto& box : boxes) {
          const auto elements = elements_of(box, sizes);
          REQUIRE_FALSE(elements.empty());
          covered.insert(covered.end(), elements.begin(), elements.end());
        }
        std::vector<int64_t> expected;
        for (int64_t i = begin; i < end; ++i) {
          expected.push_back(i);
        }
        REQUIRE(covered == expected);
        REQUIRE(boxes.size() <= most);
      }
    }
  }
}

TEST_CASE("dcp boxes: nothing of an empty tensor, and ranges outside are refused") {
  CHECK(boxes_of_range({0, 3}, 0, 0).empty());
  CHECK(boxes_of_range({2}, 1, 1).empty());
  using testing::message_of;
  CHECK(testing::has(message_of(
                         [] {
                           boxes_of_range({2, 3}, 4, 7);
                         },
                         Fault::kInternal),
                     "elements 4 to 7 of a tensor of sizes [2, 3]"));
  message_of([] { boxes_of_range({2, 3}, -1, 2); }, Fault::kInternal);
  message_of([] { boxes_of_range({2, 3}, 3, 2); }, Fault::kInternal);
}

TEST_CASE("dcp boxes: a tiling is told from gaps, overlaps and both at once") {
  const Sizes sizes = {4, 6};
  CHECK(tiles({{{0, 0}, {4, 6}}}, sizes));
  CHECK(tiles({{{0, 0}, {1, 6}}, {{1, 0}, {3, 2}}, {{1, 2}, {3, 4}}}, sizes));
  // A pinwheel, which no single cut takes apart.
  CHECK(tiles(
      {{{0, 0}, {1, 2}}, {{0, 2}, {2, 1}}, {{2, 1}, {1, 2}}, {{1, 0}, {2, 1}}, {{1, 1}, {1, 1}}},
      {3, 3}));
  CHECK(tiles({{{}, {}}}, {}));
  CHECK(tiles({{{0, 0}, {4, 6}}, {{4, 0}, {0, 6}}}, sizes));  // an empty one

  CHECK_FALSE(tiles({}, sizes));
  CHECK_FALSE(tiles({}, {}));
  CHECK_FALSE(tiles({{{0, 0}, {4, 5}}}, sizes));
  CHECK_FALSE(tiles({{{0, 0}, {4, 6}}, {{1, 1}, {1, 1}}}, sizes));
  // As many elements as there are, but not those.
  CHECK_FALSE(tiles({{{0, 0}, {2, 6}}, {{1, 0}, {2, 6}}}, sizes));
  CHECK_FALSE(tiles({{{0, 0}, {4, 3}}, {{0, 2}, {4, 3}}}, sizes));
}

TEST_CASE("dcp boxes: the ranges of ranks tile a tensor") {
  const Sizes sizes = {3, 5, 7};
  for (int64_t ranks = 1; ranks < 12; ++ranks) {
    std::vector<DcpBox> boxes;
    for (int64_t r = 0; r < ranks; ++r) {
      const auto part = boxes_of_range(sizes, 105 * r / ranks, 105 * (r + 1) / ranks);
      boxes.insert(boxes.end(), part.begin(), part.end());
    }
    CHECK(tiles(boxes, sizes));
    boxes.back().sizes.back() -= 1;
    CHECK_FALSE(tiles(boxes, sizes));
  }
}

TEST_CASE("dcp boxes: sizes whose product does not fit are told") {
  CHECK(checked_numel({3, 4}, 4) == 12);
  CHECK(checked_numel({}, 8) == 1);
  CHECK(checked_numel({int64_t{1} << 40, 0}, 8) == 0);
  CHECK_FALSE(checked_numel({int64_t{1} << 40, int64_t{1} << 40}, 1).has_value());
  CHECK_FALSE(checked_numel({int64_t{1} << 40, int64_t{1} << 40, 0}, 1).has_value());
  CHECK_FALSE(checked_numel({-1}, 1).has_value());
}

}  // namespace limbeck
