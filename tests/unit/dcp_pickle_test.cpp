// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>
#include <string>
#include <variant>

#include "error_message.hpp"

#include <doctest/doctest.h>

#include "core/dcp/pickle.hpp"

namespace limbeck {
namespace {

using testing::has;
using testing::message_of;

DcpValue unpickled(const std::string& bytes) {
  const PickleGraph graph(bytes, "here");
  return graph.value_of(graph.root());
}

DcpValue round_trip(const DcpValue& value) {
  PickleWriter out;
  out.value(value);
  return unpickled(out.finish());
}

template <class T>
T as(const DcpValue& value) {
  REQUIRE(std::holds_alternative<T>(value.value));
  return std::get<T>(value.value);
}

std::string refused(const std::string& bytes) {
  return message_of([&] { unpickled(bytes); });
}

}  // namespace

TEST_CASE("dcp pickle: what is written is read back") {
  as<DcpValue::None>(round_trip({DcpValue::None{}}));
  CHECK(as<bool>(round_trip({true})));
  CHECK_FALSE(as<bool>(round_trip({false})));
  for (const int64_t n :
       {int64_t{0}, int64_t{255}, int64_t{256}, int64_t{65535}, int64_t{65536}, int64_t{-1},
        int64_t{-256}, int64_t{2147483647}, int64_t{2147483648}, int64_t{-2147483648},
        int64_t{-2147483649}, std::numeric_limits<int64_t>::max(),
        std::numeric_limits<int64_t>::min()}) {
    CHECK(as<int64_t>(round_trip({n})) == n);
  }
  CHECK(as<double>(round_trip({0.1})) == 0.1);
  CHECK(std::isnan(as<double>(round_trip({std::nan("")}))));
  CHECK(std::signbit(as<double>(round_trip({-0.0}))));
  CHECK(as<std::string>(round_trip({std::string("d\xc3\xa9j\xc3\xa0\0 vu", 10)})).size() == 10);

  std::string all;
  for (int i = 0; i < 256; ++i) {
    all += static_cast<char>(i);
  }
  CHECK(as<DcpValue::Bytes>(round_trip({DcpValue::Bytes{all}})).data == all);
  CHECK(as<DcpValue::Bytes>(round_trip({DcpValue::Bytes{}})).data.empty());

  DcpValue::List list = {{int64_t{1}}, {std::string("x")}, {DcpValue::List{}}};
  DcpValue::Dict dict = {{{std::string("k")}, {list}}, {{int64_t{2}}, {DcpValue::Dict{}}}};
  const auto read = as<DcpValue::Dict>(round_trip({dict}));
  REQUIRE(read.size() == 2);
  CHECK(as<std::string>(read[0].first) == "k");
  CHECK(as<int64_t>(as<DcpValue::List>(read[0].second)[0]) == 1);
  CHECK(as<DcpValue::List>(read[0].second).size() == 3);
  CHECK(as<DcpValue::Dict>(read[1].second).empty());
}

TEST_CASE("dcp pickle: what Python wrote") {
  // pickle.dumps({"a": [1, 2.5, None, True], "b": (1, b"\x00\xff", {1}, 2**70)}, protocol=4)
  const std::string four(
      "\x80\x04\x95\x39\x00\x00\x00\x00\x00\x00\x00\x7d\x94\x28\x8c\x01\x61\x94\x5d\x94\x28\x4b\x01"
      "\x47\x40\x04\x00\x00\x00\x00\x00\x00\x4e\x88\x65\x8c\x01\x62\x94\x28\x4b\x01\x43\x02\x00\xff"
      "\x94\x8f\x94\x28\x4b\x01\x90\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00\x40\x74\x94\x75\x2e",
      68);
  const auto dict = as<DcpValue::Dict>(unpickled(four));
  REQUIRE(dict.size() == 2);
  const auto a = as<DcpValue::List>(dict[0].second);
  CHECK(as<double>(a[1]) == 2.5);
  const auto b = as<DcpValue::List>(dict[1].second);
  CHECK(as<DcpValue::Bytes>(b[1]).data == std::string("\0\xff", 2));
  CHECK(as<DcpValue::Opaque>(b[2]).what == "set");
  CHECK(as<DcpValue::Opaque>(b[3]).what == "an integer of more than 64 bits");
  // pickle.dumps(b"\x00\xff\xe9", protocol=2)
  const std::string two(
      "\x80\x02"
      "c_codecs\nencode\nq\x00X\x05\x00\x00\x00\x00\xc3\xbf\xc3\xa9q\x01X\x06\x00\x00\x00"
      "latin1q\x02\x86q\x03Rq\x04.",
      52);
  CHECK(as<DcpValue::Bytes>(unpickled(two)).data == std::string("\0\xff\xe9", 3));
}

TEST_CASE("dcp pickle: what would be called is named and nothing else") {
  // pickle.dumps of an object whose __reduce__ is (os.system, ("rm -r /",))
  const std::string bytes =
      std::string("\x80\x02") + "cposix\nsystem\nX\x07" + std::string(3, '\0') + "rm -r /\x85R.";
  CHECK(as<DcpValue::Opaque>(unpickled(bytes)).what == "posix.system");
}

TEST_CASE("dcp pickle: damaged ones are refused with the place") {
  CHECK(has(refused(""), "does not begin as a pickle"));
  CHECK(has(refused("{}"), "here: the pickle is damaged at byte 0: does not begin as a pickle"));
  CHECK(has(refused("\x80\x01N."), "protocol 1, known are 2 to 5"));
  CHECK(has(refused("\x80\x02N"), "it ends within 1 bytes"));
  CHECK(has(refused("\x80\x02."), "byte 2: takes from an empty stack"));
  CHECK(has(refused("\x80\x02N.N"), "bytes follow the end"));
  CHECK(has(refused("\x80\x02t."), "no mark"));
  CHECK(has(refused(std::string("\x80\x02h\x07.", 5)), "refers to number 7"));
  CHECK(has(refused("\x80\x02\xff."), "the opcode 255 is not known"));
  CHECK(has(refused("\x80\x02}(Nu."), "a key has no value"));
  CHECK(has(refused("\x80\x02N(Ne."), "appends to what is no list"));
  CHECK(has(refused("\x80\x02(."), "takes from an empty stack"));
}

TEST_CASE("dcp pickle: a few bytes cannot ask for much memory or time") {
  // A text of 4 GiB, a memo of 2^32 - 1 entries.
  CHECK(has(refused("\x80\x02X\xff\xff\xff\xff."), "it ends within 4294967295 bytes"));
  CHECK(has(refused("\x80\x02Nr\xff\xff\xff\xff."), "remembers something as number 4294967295"));
  // A list that contains itself.
  CHECK(has(refused(std::string("\x80\x02]q\0h\0a.", 9)), "nested in more than 100"));
  // [[...]] without end.
  CHECK(has(refused("\x80\x02" + std::string(1000, ']') + std::string(999, 'a') + "."),
            "nested in more than 100"));
  // Lists of two times the list before: 2^60 values.
  std::string doubled("\x80\x02N\x94", 4);
  for (char i = 0; i < 60; ++i) {
    doubled += std::string("h") + i + "h" + i + "\x86\x94";
  }
  CHECK(has(refused(doubled + "."), "shared so often"));
}

TEST_CASE("dcp pickle: what cannot be written is refused") {
  const auto refused_value = [](const DcpValue& value) {
    return message_of([&] { PickleWriter().value(value); }, Fault::kInternal);
  };
  CHECK(has(refused_value({DcpValue::Opaque{"torch.Tensor"}}), "torch.Tensor"));
  CHECK(has(refused_value({std::string("\xff")}), "not UTF-8"));
  DcpValue deep = {int64_t{1}};
  for (int i = 0; i < 101; ++i) {
    deep = {DcpValue::List{deep}};
  }
  CHECK(has(refused_value(deep), "nested"));
}

TEST_CASE("dcp pickle: UTF-8 is told from other bytes") {
  for (const char* good : {"", "abc", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80"}) {
    CHECK(is_utf8(good));
  }
  for (const char* bad : {"\x80", "\xc3", "\xc0\xaf", "\xe0\x80\xaf", "\xed\xa0\x80",
                          "\xf4\x90\x80\x80", "\xf8\x88\x80\x80\x80", "\xe2\x82"}) {
    CHECK_FALSE(is_utf8(bad));
  }
}

}  // namespace limbeck
