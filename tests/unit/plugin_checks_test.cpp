// SPDX-License-Identifier: Apache-2.0
#include "core/plugin/checks.hpp"

#include <array>
#include <cstddef>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "core/base/error.hpp"

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

// What check_file() says; empty: nothing.
std::string file_fault(const limbeck::PluginNote& note, const std::string& needed) {
  limbeck::ElfFacts facts;
  facts.has_note = true;
  facts.note = note;
  facts.needed = {"libc.so.6", needed};
  facts.exported = {{"limbeck_plugin_v1", true}};
  try {
    limbeck::check_file(facts, "torch=2.11.0;cxx11abi=1;debugstl=0;san=none");
  } catch (const limbeck::Error& error) {
    CHECK_FALSE(error.hint().empty());
    return error.message();
  }
  return "";
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

  lb_option renamed = option("x", LB_INT, "1");
  renamed.alias = "Models.critic";
  CHECK(faults_of(renamed) == Faults{"option 'x': its alias is 'Models.critic', expected a key of "
                                     "the manifest like 'models.x.learning_rate'"});

  const std::array<const char*, 4> twice = {"a", "b", "a", nullptr};
  lb_option chosen = option("x", LB_ENUM, "\"a\"");
  chosen.choices = twice.data();
  CHECK(faults_of(chosen) == Faults{"option 'x': its choices have 'a' twice"});
  const std::array<const char*, 2> nameless = {"", nullptr};
  chosen.choices = nameless.data();
  CHECK(faults_of(chosen) ==
        Faults{"option 'x': its choice 0 is '', expected 1 to 128 characters"});

  const std::string endless(100000, 'x');
  lb_option wordy = option("x", LB_INT, "1");
  wordy.doc = endless.c_str();
  CHECK(faults_of(wordy) == Faults{"option 'x': one of its texts has no end within 65536 bytes"});
  CHECK(faults_of(option(endless.c_str(), LB_INT, "1")) ==
        Faults{"an option is named " + std::string(80, 'x') + "..., expected [a-z][a-z0-9_]*"});
  CHECK(faults_of(option("a\x1b[31m", LB_INT, "1")) ==
        Faults{"an option is named a?[31m, expected [a-z][a-z0-9_]*"});

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
  CHECK(faults({sizeof(lb_option) + 8, 1, &one}) ==
        Faults{"a table of options has stride 80, in ABI 1.0 it has 72; it was compiled with a "
               "changed header"});
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
  CHECK(file_fault(note, "libm.so.6").empty());
  CHECK(file_fault(note, "libc10.so") ==
        "it says that it does not share libtorch, but needs libc10.so");

  note.torch = tag;
  CHECK(file_fault(note, "libtorch_cpu.so").empty());
  CHECK(file_fault(note, "/opt/lib/libc10.so")
            .starts_with("it needs libtorch by its path, /opt/lib/libc10.so, "));

  note.torch = "torch=2.10.0;cxx11abi=1;debugstl=0;san=address";
  CHECK(file_fault(note, "libtorch_cpu.so") ==
        "it was built for another libtorch: torch is 2.10.0, this limbeck has 2.11.0; san is "
        "address, this limbeck has none");

  note.abi = "1.7";  // a later minor decides by min_host_minor, not here
  note.torch = "none";
  CHECK(file_fault(note, "libm.so.6").empty());
  note.abi = "one";
  CHECK(file_fault(note, "libm.so.6") == "its note has abi 'one', expected a version like '1.0'");
  note.abi = "";
  CHECK(file_fault(note, "libm.so.6") ==
        "its note does not say which ABI it was built for: expected a line like 'abi=1.0'");
}

namespace {

// A vtable of the given kind in which every member after struct_size is a function that is there.
struct Vtable {
  explicit Vtable(const char* kind, size_t bytes) {
    words.fill(nullptr);
    component.struct_size = sizeof(component);
    component.kind = kind;
    component.name = "x";
    component.doc = "A component.";
    component.vtable = words.data();
    const auto size = static_cast<uint32_t>(bytes);
    std::memcpy(words.data(), &size, sizeof(size));
  }
  void set(size_t offset) {
    const void* anything = this;
    std::memcpy(reinterpret_cast<char*>(words.data()) + offset, &anything, sizeof(anything));
  }
  void clear(size_t offset) {
    std::memset(reinterpret_cast<char*>(words.data()) + offset, 0, sizeof(void*));
  }

  std::array<void*, 64> words;
  lb_component component{};
};

struct Required {
  const char* kind;
  size_t bytes;
  std::vector<std::pair<const char*, size_t>> functions;
};

#define SLOT(type, member) \
  { #member, offsetof(type, member) }

std::vector<Required> required_functions() {
  const auto network = [](const char* kind) {
    return Required{kind,
                    sizeof(lb_model_vtable),
                    {SLOT(lb_model_vtable, create), SLOT(lb_model_vtable, destroy),
                     SLOT(lb_model_vtable, describe), SLOT(lb_model_vtable, forward)}};
  };
  return {
      network("limbeck.model/1"),
      network("limbeck.text-encoder/1"),
      network("limbeck.vae/1"),
      network("limbeck.reward/1"),
      {"limbeck.attention/1",
       sizeof(lb_attention_vtable),
       {SLOT(lb_attention_vtable, create), SLOT(lb_attention_vtable, destroy),
        SLOT(lb_attention_vtable, supports), SLOT(lb_attention_vtable, forward)}},
      {"limbeck.method/1",
       sizeof(lb_method_vtable),
       {SLOT(lb_method_vtable, create), SLOT(lb_method_vtable, destroy),
        SLOT(lb_method_vtable, loss)}},
      {"limbeck.prepare/1",
       sizeof(lb_prepare_vtable),
       {SLOT(lb_prepare_vtable, create), SLOT(lb_prepare_vtable, destroy),
        SLOT(lb_prepare_vtable, prepare)}},
      {"limbeck.loss/1",
       sizeof(lb_loss_vtable),
       {SLOT(lb_loss_vtable, create), SLOT(lb_loss_vtable, destroy), SLOT(lb_loss_vtable, loss)}},
      {"limbeck.callback/1",
       sizeof(lb_callback_vtable),
       {SLOT(lb_callback_vtable, create), SLOT(lb_callback_vtable, destroy),
        SLOT(lb_callback_vtable, event)}},
      {"limbeck.dataset/1",
       sizeof(lb_dataset_vtable),
       {SLOT(lb_dataset_vtable, open), SLOT(lb_dataset_vtable, close),
        SLOT(lb_dataset_vtable, length), SLOT(lb_dataset_vtable, fields),
        SLOT(lb_dataset_vtable, read)}},
      {"limbeck.tracker/1",
       sizeof(lb_tracker_vtable),
       {SLOT(lb_tracker_vtable, open), SLOT(lb_tracker_vtable, scalars),
        SLOT(lb_tracker_vtable, close)}}};
}

#undef SLOT

}  // namespace

TEST_CASE("vtables: a required function that is NULL is refused by name, any other may be NULL") {
  std::vector<std::string> kinds;
  for (const auto& rule : required_functions()) {
    kinds.emplace_back(rule.kind);
    Vtable vtable(rule.kind, rule.bytes);
    for (const auto& [name, offset] : rule.functions) {
      vtable.set(offset);
    }
    // All that is optional is NULL.
    CHECK_MESSAGE(limbeck::check_component(vtable.component).empty(), rule.kind);
    for (const auto& [name, offset] : rule.functions) {
      vtable.clear(offset);
      CHECK(
          limbeck::check_component(vtable.component) ==
          Faults{"component 'x': its function `" + std::string(name) + "` is NULL, but required"});
      vtable.set(offset);
    }
  }
  CHECK(kinds == limbeck::known_kinds());
}

TEST_CASE("vtables: state and attention functions go together") {
  Vtable loss("limbeck.loss/1", sizeof(lb_loss_vtable));
  for (const size_t offset : {offsetof(lb_loss_vtable, create), offsetof(lb_loss_vtable, destroy),
                              offsetof(lb_loss_vtable, loss), offsetof(lb_loss_vtable, load)}) {
    loss.set(offset);
  }
  CHECK(limbeck::check_component(loss.component) ==
        Faults{"component 'x': it has only one of `save` and `load`; expected both or none"});
  loss.set(offsetof(lb_loss_vtable, save));
  CHECK(limbeck::check_component(loss.component).empty());

  Vtable attention("limbeck.attention/1", sizeof(lb_attention_vtable));
  for (const size_t offset :
       {offsetof(lb_attention_vtable, create), offsetof(lb_attention_vtable, destroy),
        offsetof(lb_attention_vtable, supports), offsetof(lb_attention_vtable, forward)}) {
    attention.set(offset);
  }
  const uint32_t saved = 2;
  std::memcpy(
      reinterpret_cast<char*>(attention.words.data()) + offsetof(lb_attention_vtable, n_saved),
      &saved, sizeof(saved));
  CHECK(limbeck::check_component(attention.component) ==
        Faults{"component 'x': it saves 2 tensors for a `backward` that is NULL"});
}
