// SPDX-License-Identifier: Apache-2.0
#include "core/data/collate.hpp"

#include <functional>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "error_message.hpp"

#include <doctest/doctest.h>

#include "core/base/error.hpp"

namespace limbeck {
namespace {

using testing::has;
using testing::message_of;

const char kOwner[] = "data set 'fake' (training.data)";

Field field(const std::string& name, std::vector<int64_t> sizes, at::ScalarType type = at::kFloat) {
  Field out;
  out.name = name;
  out.sizes = std::move(sizes);
  out.dtype = type;
  return out;
}

Field text_field(const std::string& name) {
  Field out;
  out.name = name;
  out.is_text = true;
  return out;
}

lb_batch sample(const std::string& name, BatchEntry entry) {
  lb_batch out;
  out.put(name, std::move(entry));
  return out;
}

lb_batch collated(const Field& one,
                  const std::vector<BatchEntry>& entries,
                  const TokenCounts& tokens = {}) {
  std::vector<lb_batch> samples;
  std::vector<int64_t> rows;
  for (const auto& entry : entries) {
    samples.push_back(sample(one.name, entry));
    rows.push_back(100 + static_cast<int64_t>(rows.size()));
  }
  return collate({one}, samples, rows, tokens, kOwner);
}

// [length, 2] with 1, 2, 3, ...
at::Tensor ragged(int64_t length) {
  return at::arange(1, 2 * length + 1, at::kFloat).reshape({length, 2});
}

at::Tensor numbers(const std::vector<float>& values, at::IntArrayRef sizes) {
  return at::tensor(values).reshape(sizes);
}

TEST_CASE("tensors of equal shape are stacked, in the order of the samples, with their dtype") {
  for (const auto type :
       {at::kFloat, at::kDouble, at::kBFloat16, at::kLong, at::kByte, at::kBool, at::kHalf}) {
    const auto a = at::arange(6, at::kFloat).reshape({2, 3}).to(type);
    const auto b = (at::arange(6, at::kFloat).reshape({2, 3}) + 7).to(type);
    const auto out = collated(field("x", {2, 3}, type), {a, b}).tensor("x");
    CHECK((out.scalar_type() == type));
    CHECK(at::equal(out, at::stack({a, b})));
    if (type != at::kBool) {
      CHECK_FALSE(at::equal(out, at::stack({b, a})));
    }
  }
}

TEST_CASE("views that are not contiguous and scalars are stacked as their values") {
  const auto base = at::arange(12, at::kFloat).reshape({3, 4});
  const auto out = collated(field("x", {4, 3}), {base.t(), base.t() * 2}).tensor("x");
  CHECK(at::equal(out, at::stack({base.t(), base.t() * 2})));
  CHECK(out.is_contiguous());
  const auto scalars = collated(field("s", {}), {at::scalar_tensor(1.5), at::scalar_tensor(2.5)});
  CHECK(at::equal(scalars.tensor("s"), numbers({1.5F, 2.5F}, {2})));
}

TEST_CASE("a ragged field is padded with zeros to the longest of the batch and gets a mask") {
  const auto out = collated(field("context", {-1, 2}), {ragged(1), ragged(3), ragged(2)});
  CHECK(at::equal(out.tensor("context"),
                  numbers({1, 2, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 0, 0}, {3, 3, 2})));
  const auto mask = numbers({1, 0, 0, 1, 1, 1, 1, 1, 0}, {3, 3});
  CHECK(at::equal(out.tensor("context_mask"), mask));
  CHECK((out.tensor("context_mask").scalar_type() == at::kFloat));
  CHECK_FALSE(at::equal(out.tensor("context_mask"), mask.flip(0)));
}

TEST_CASE("the number of tokens that the caller names wins: padded when shorter, cut when longer") {
  const auto padded = collated(field("context", {-1, 2}), {ragged(1)}, {{"context.tokens", 2}});
  CHECK(at::equal(padded.tensor("context"), numbers({1, 2, 0, 0}, {1, 2, 2})));
  CHECK(at::equal(padded.tensor("context_mask"), numbers({1, 0}, {1, 2})));
  const auto cut = collated(field("context", {-1, 2}), {ragged(5)}, {{"context.tokens", 2}});
  CHECK(at::equal(cut.tensor("context"), numbers({1, 2, 3, 4}, {1, 2, 2})));
  CHECK(at::equal(cut.tensor("context_mask"), numbers({1, 1}, {1, 2})));
  const auto other = collated(field("context", {-1, 2}), {ragged(3)}, {{"image.tokens", 2}});
  CHECK(other.tensor("context").size(1) == 3);
}

TEST_CASE("texts of different lengths in one batch are what they are in batches of their own") {
  const std::vector<BatchEntry> texts = {ragged(1), ragged(4), ragged(2)};
  const auto all = collated(field("context", {-1, 2}), texts, {{"context.tokens", 3}});
  for (int64_t i = 0; i < 3; ++i) {
    const auto one = collated(field("context", {-1, 2}), {texts[static_cast<size_t>(i)]},
                              {{"context.tokens", 3}});
    CHECK(at::equal(all.tensor("context")[i], one.tensor("context")[0]));
    CHECK(at::equal(all.tensor("context_mask")[i], one.tensor("context_mask")[0]));
  }
  CHECK_FALSE(at::equal(all.tensor("context_mask")[0], all.tensor("context_mask")[1]));
}

TEST_CASE("the ragged dimension need not be the first one") {
  // [2, L, 2]: two blocks, each padded for itself.
  const auto a = at::arange(1, 5, at::kFloat).reshape({2, 1, 2});
  const auto b = at::arange(1, 9, at::kFloat).reshape({2, 2, 2});
  const auto out = collated(field("x", {2, -1, 2}), {a, b}).tensor("x");
  CHECK(at::equal(out, numbers({1, 2, 0, 0, 3, 4, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8}, {2, 2, 2, 2})));
}

TEST_CASE("a ragged field may be empty in one sample or in all") {
  const auto out = collated(field("x", {-1, 2}), {ragged(0), ragged(1)});
  CHECK(at::equal(out.tensor("x"), numbers({0, 0, 1, 2}, {2, 1, 2})));
  CHECK(at::equal(out.tensor("x_mask"), numbers({0, 1}, {2, 1})));
  const auto none = collated(field("x", {-1, 2}), {ragged(0)});
  CHECK(none.tensor("x").sizes() == at::IntArrayRef({1, 0, 2}));
}

TEST_CASE("with several varying dimensions nothing is padded: shapes must be equal") {
  const auto one = field("x", {4, -1, -1});
  CHECK(one.ragged_dim() == -1);
  const auto out = collated(one, {at::ones({4, 2, 3}), at::ones({4, 2, 3})});
  CHECK(out.tensor("x").sizes() == at::IntArrayRef({2, 4, 2, 3}));
  CHECK(out.entries.count("x_mask") == 0);
  const auto text = message_of([&] { collated(one, {at::ones({4, 2, 3}), at::ones({4, 2, 5})}); });
  CHECK(has(text, "'x' has shape [4, 2, 3] in row 100 and [4, 2, 5] in row 101"));
  CHECK(has(text, kOwner));
}

TEST_CASE("numbers become f64, text becomes rows, and row holds the global indices") {
  CHECK(at::equal(collated(field("w", {}), {1.0, 0.1}).tensor("w"),
                  at::tensor(std::vector<double>{1.0, 0.1})));
  const auto out = collated(text_field("caption"), {TextRows{"a cat"}, TextRows{""}});
  CHECK(*out.find<TextRows>("caption") == TextRows{"a cat", ""});
  CHECK(at::equal(out.tensor("row"), at::tensor(std::vector<int64_t>{100, 101})));
  CHECK_FALSE(at::equal(out.tensor("row"), at::tensor(std::vector<int64_t>{101, 100})));
}

TEST_CASE("an unwanted field is left out, an optional one that no sample has too") {
  auto unwanted = field("x", {1});
  unwanted.is_wanted = false;
  CHECK(collated(unwanted, {at::ones({1})}).entries.size() == 1);
  auto optional = field("y", {1});
  optional.is_optional = true;
  CHECK(collate({optional}, {lb_batch(), lb_batch()}, {0, 1}, {}, kOwner).entries.size() == 1);
}

TEST_CASE("a missing entry names field and rows") {
  auto one = field("y", {1});
  const auto some = [&] { collate({one}, {sample("y", at::ones({1})), {}}, {7, 9}, {}, kOwner); };
  CHECK(has(message_of(some), "row 9 has no field 'y'"));
  one.is_optional = true;
  CHECK(has(message_of(some), "the optional field 'y' is missing in row 9 but not in row 7"));
}

TEST_CASE("an entry that does not fit its declaration is refused by name") {
  const auto plugin = Fault::kPlugin;
  CHECK(has(message_of([] {
              collated(field("x", {2, 3}), {at::ones({2, 4})});
            }),
            "field 'x' of row 100 has shape [2, 4], but the data set declares [2, 3]"));
  CHECK(has(message_of([] { collated(field("x", {2, -1}), {at::ones({2})}); }), "has shape [2]"));
  CHECK(has(message_of([] { collated(field("x", {2}), {at::ones({2}, at::kDouble)}); }, plugin),
            "has dtype Double, but declared as Float"));
  CHECK(has(message_of([] { collated(field("x", {2}), {1.0}); }, plugin),
            "field 'x' of row 100 is a number"));
  CHECK(has(message_of(
                [] {
                  collated(field("x", {}), {1.0, TextRows{"a"}});
                },
                plugin),
            "field 'x' of row 101 is text, but row 100 has a number"));
  CHECK(has(message_of([] { collated(text_field("x"), {at::ones({2})}); }, plugin),
            "is a tensor, but declared as text"));
  CHECK(has(message_of(
                [] {
                  collated(text_field("x"), {TextRows{"a", "b"}});
                },
                plugin),
            "has 2 rows of text, expected 1"));
  CHECK(has(message_of([] { collated(field("x", {2}), {at::Tensor()}); }, plugin),
            "an undefined tensor"));
  CHECK(has(message_of([] { collated(field("x", {2}), {at::ones({2}).set_requires_grad(true)}); },
                       plugin),
            "without history"));
  CHECK(has(
      message_of([] { collate({field("x", {1})}, {sample("z", 1.0)}, {3}, {}, kOwner); }, plugin),
      "row 3 has an entry 'z' that the data set's fields() does not declare"));
  message_of([] { collate({}, {}, {}, {}, kOwner); }, Fault::kInternal);
  message_of(
      [] {
        collated(field("x", {-1}), {at::ones({2})}, {{"x.tokens", 0}});
      },
      Fault::kInternal);
}

lb_fields table_of(const std::vector<lb_field>& items) {
  return {sizeof(lb_field), static_cast<uint32_t>(items.size()), items.data()};
}

TEST_CASE("the table of fields is copied with the stride of its writer") {
  struct Longer {
    lb_field field;
    uint64_t added;
  };
  const int64_t sizes[] = {-1, 8};
  const Longer items[] = {{{"context", sizes, LB_F16, 2, 0, 0}, 1},
                          {{"caption", nullptr, 99, 0, LB_FIELD_TEXT | LB_FIELD_OPTIONAL, 0}, 2}};
  const auto fields = copy_fields({sizeof(Longer), 2, &items[0].field}, {}, kOwner);
  REQUIRE(fields.size() == 2);
  CHECK(fields[0].name == "context");
  CHECK(fields[0].sizes == std::vector<int64_t>{-1, 8});
  CHECK((fields[0].dtype == at::kHalf));
  CHECK(fields[1].is_text);
  CHECK(fields[1].is_optional);
  const std::vector<BatchName> expected = {
      {"caption", true}, {"context", false}, {"context_mask", false}, {"row", false}};
  CHECK((batch_names(fields) == expected));
}

TEST_CASE("what nobody reads is not wanted; who reads a mask wants its field") {
  const int64_t sizes[] = {-1, 8};
  const std::vector<lb_field> items = {{"context", sizes, LB_F32, 2, 0, 0},
                                       {"other", sizes + 1, LB_F32, 1, 0, 0}};
  const auto names = [&](const std::vector<std::string>& wanted) {
    return batch_names(copy_fields(table_of(items), wanted, kOwner)).size();
  };
  CHECK(names({}) == 4);
  CHECK(names({"other"}) == 2);
  CHECK(names({"context"}) == 3);
  CHECK(names({"context_mask"}) == 3);
  CHECK(names({"other_mask"}) == 1);  // not ragged: there is no such mask
}

TEST_CASE("a table of fields that is wrong is the plugin's fault, by name") {
  const int64_t one[] = {3}, bad[] = {-2}, any[] = {-1};
  const auto refused = [](const std::vector<lb_field>& items) {
    return message_of([&] { copy_fields(table_of(items), {}, kOwner); }, Fault::kPlugin);
  };
  CHECK(has(refused({{"", one, LB_F32, 1, 0, 0}}), "field 0 has no name"));
  CHECK(has(refused({{"a", one, LB_F32, 1, 0, 0}, {"a", one, LB_F32, 1, 0, 0}}), "field 'a'"));
  CHECK(has(refused({{"row", one, LB_I64, 1, 0, 0}}), "field 'row'"));
  CHECK(has(refused({{"a", any, LB_F32, 1, 0, 0}, {"a_mask", one, LB_F32, 1, 0, 0}}), "a_mask"));
  CHECK(has(refused({{"a", one, 12, 1, 0, 0}}), "unknown dtype 12"));
  CHECK(has(refused({{"a", bad, LB_F32, 1, 0, 0}}), "shape [-2]"));
  CHECK(has(refused({{"a", nullptr, LB_F32, 1, 0, 0}}), "no sizes"));
  CHECK(has(message_of(
                [] {
                  copy_fields({8, 1, nullptr}, {}, kOwner);
                },
                Fault::kPlugin),
            "stride of 8"));
}

}  // namespace
}  // namespace limbeck
