// SPDX-License-Identifier: Apache-2.0
#include "core/plugin/checks.hpp"

#include <array>
#include <string>

#include <doctest/doctest.h>

using limbeck::Faults;

namespace {

lb_option option(const char* name, lb_type type, const char* fallback) {
  lb_option one{};
  one.name = name;
  one.type = type;
  one.doc = "A sentence.";
  one.fallback = fallback;
  return one;
}

Faults faults_of(const lb_option& one, const char* kind = "limbeck.model/1") {
  return limbeck::check_options({sizeof(lb_option), 1, &one}, kind);
}

Faults file_faults(const limbeck::PluginNote& note, const std::string& needed) {
  limbeck::ElfFacts facts;
  facts.has_note = true;
  facts.note = note;
  facts.needed = {"libc.so.6", needed};
  return limbeck::check_file(facts, "torch=2.11.0;cxx11abi=1;debugstl=0;san=none");
}

}  // namespace

TEST_CASE("options: a sound table has no faults") {
  const std::array<const char*, 3> choices = {"a", "b", nullptr};
  lb_option which = option("which", LB_ENUM, "\"a\"");
  which.choices = choices.data();
  lb_option rates = option("rates", LB_FLOAT, "[1, 0.5]");
  rates.flags = LB_OPT_LIST;
  rates.range = "(0, 1]";
  const lb_option inner = option("n", LB_INT, nullptr);
  lb_option table = option("table", LB_TABLE, "{}");
  table.flags = LB_OPT_OPEN;
  table.fields = {sizeof(lb_option), 1, &inner};

  for (const auto& one :
       {which, rates, table, option("on", LB_BOOL, "true"), option("file", LB_PATH, "\"x/y\""),
        option("needed", LB_INT, nullptr), option("whole", LB_FLOAT, "1")}) {
    CHECK_MESSAGE(faults_of(one).empty(), one.name);
  }
}

TEST_CASE("options: every kind of fault has its sentence") {
  lb_option ranged = option("x", LB_FLOAT, "2");
  ranged.range = "[0, 1]";
  CHECK(faults_of(ranged) == Faults{"option 'x': its default 2 is not a number in [0, 1]"});

  ranged = option("x", LB_STRING, "\"a\"");
  ranged.range = "[0, 1]";
  CHECK(faults_of(ranged) ==
        Faults{"option 'x': it has a range, but is neither an LB_INT nor an LB_FLOAT"});

  CHECK(faults_of(option("x", LB_INT, "0.5")) ==
        Faults{"option 'x': its default 0.5 is not an integer"});
  CHECK(faults_of(option("x", LB_INT, "[1"))[0].starts_with(
      "option 'x': its default [1 is not TOML: "));
  CHECK(faults_of(option("Upper", LB_INT, "1")) ==
        Faults{"an option is named Upper, expected [a-z][a-z0-9_]*"});
  CHECK(faults_of(option(nullptr, LB_INT, "1")) ==
        Faults{"an option is named NULL, expected [a-z][a-z0-9_]*"});
  CHECK(faults_of(option("x", 99, "1")) == Faults{"option 'x': its type is 99, expected 0 to 6"});
  CHECK(faults_of(option("x", LB_ENUM, "\"a\"")) ==
        Faults{"option 'x': it is an LB_ENUM without choices"});

  lb_option flagged = option("x", LB_INT, "1");
  flagged.flags = 1U << 20U;
  CHECK(faults_of(flagged) == Faults{"option 'x': flags 1048576 are unknown to this limbeck"});
  flagged.flags = LB_OPT_OPEN;
  CHECK(faults_of(flagged) == Faults{"option 'x': it has LB_OPT_OPEN, but is not an LB_TABLE"});

  lb_option silent = option("x", LB_INT, "1");
  silent.doc = nullptr;
  CHECK(faults_of(silent) == Faults{"option 'x': it has no doc, expected one sentence"});
}

TEST_CASE("options: faults inside of tables are found") {
  const lb_option inner = option("n", LB_INT, "0.5");
  lb_option table = option("table", LB_TABLE, "{}");
  table.fields = {sizeof(lb_option), 1, &inner};

  CHECK(faults_of(table) ==
        Faults{"option 'table': option 'n': its default 0.5 is not an integer"});
}

TEST_CASE("options: a table that cannot be read is not read") {
  const lb_option one = option("x", LB_INT, "1");
  const auto faults = [](const lb_options& table) {
    return limbeck::check_options(table, "limbeck.loss/1");
  };

  CHECK(faults({8, 1, &one}) ==
        Faults{"a table of options has stride 8, expected 72 or, from a later header, a little "
               "more"});
  CHECK(faults({sizeof(lb_option), 1, nullptr}) ==
        Faults{"a table of options claims 1 items, but its list is NULL"});
  CHECK(faults({sizeof(lb_option), 5000000, &one}) ==
        Faults{"a table of options claims 5000000 items, at most 4096 are believed"});
  const std::array<lb_option, 2> twice = {one, one};
  CHECK(faults({sizeof(lb_option), 2, twice.data()}) == Faults{"option 'x' is declared twice"});
}

TEST_CASE("options: keys of the host are taken where the host reads the same table") {
  const lb_option weight = option("weight", LB_FLOAT, "1");

  CHECK(faults_of(weight, "limbeck.loss/1") ==
        Faults{"option 'weight' has the name of a key that limbeck itself reads in this table; "
               "rename it (taken: type, roles, weight)"});
  CHECK(faults_of(weight, "limbeck.prepare/1").empty());
  CHECK(faults_of(option("type", LB_INT, "1"), "limbeck.model/1").empty());
}

TEST_CASE("files: the note decides by versions, tag and needed libraries") {
  const std::string tag = "torch=2.11.0;cxx11abi=1;debugstl=0;san=none";
  limbeck::PluginNote note{"1.0", "org.x.y", "1.0.0", "none"};
  CHECK(file_faults(note, "libm.so.6").empty());
  CHECK(file_faults(note, "libc10.so")[0].starts_with(
      "it says that it does not share libtorch, but needs libc10.so"));

  note.torch = tag;
  CHECK(file_faults(note, "libtorch_cpu.so").empty());

  note.torch = "torch=2.10.0;cxx11abi=1;debugstl=0;san=address";
  CHECK(file_faults(note, "libtorch_cpu.so") ==
        Faults{"it was built for another libtorch: torch is 2.10.0, this limbeck has 2.11.0; san "
               "is address, this limbeck has none"});

  note.abi = "1.7";  // a later minor decides by min_host_minor, not here
  note.torch = "none";
  CHECK(file_faults(note, "libm.so.6").empty());
  note.abi = "one";
  CHECK(file_faults(note, "libm.so.6") ==
        Faults{"the note has abi 'one', expected a version like '1.0'"});
}
