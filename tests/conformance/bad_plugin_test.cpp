// SPDX-License-Identifier: Apache-2.0
// Every way in which a plugin can be wrong has its own message, and the host lives on.
#include <elf.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <doctest/doctest.h>

#include "core/base/error.hpp"
#include "core/base/files.hpp"
#include "core/base/text.hpp"
#include "core/plugin/child_process.hpp"
#include "core/plugin/host_table.hpp"
#include "core/plugin/plugin_file.hpp"
#include "core/plugin/registry.hpp"

namespace {

namespace fs = std::filesystem;
using limbeck::cat;
using limbeck::Diagnostics;
using limbeck::Registry;

const fs::path kFolder = LIMBECK_TEST_PLUGIN_DIR;

// A folder that is gone afterwards.
class Scratch {
 public:
  Scratch() {
    std::string pattern = (fs::temp_directory_path() / "limbeck-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~Scratch() { fs::remove_all(path_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  const fs::path& path() const { return path_; }
  // A file with this content in it.
  fs::path file(const std::string& name, const std::string& content) const {
    limbeck::write_file(path_ / name, content);
    return path_ / name;
  }

 private:
  fs::path path_;
};

std::vector<Diagnostics::Item> load(Registry& registry,
                                    const std::string& name,
                                    const std::string& sha256 = "") {
  Diagnostics diagnostics;
  registry.load({name, sha256, {"x.toml", 1, 12}}, "/", diagnostics);
  return diagnostics.items();
}

// The one error of loading a file into an empty registry, without the part that names the file.
// Every refusal says what to do.
std::string refusal_of(const fs::path& path, const std::string& sha256 = "") {
  Registry registry;
  for (const auto& item : load(registry, path.string(), sha256)) {
    if (item.is_error) {
      CHECK(item.at.line == 1);
      CHECK_MESSAGE(!item.hint.empty(), item.message);
      CHECK(registry.libraries().empty());
      CHECK(registry.components().empty());
      const std::string before = cat("plugin '", path.string(), "', ", path.string(), ": ");
      return item.message.starts_with(before) ? item.message.substr(before.size()) : item.message;
    }
  }
  return "";
}

std::string refusal_of_fixture(const std::string& name) {
  return refusal_of(kFolder / (name + ".so"));
}

}  // namespace

TEST_CASE("plugins: a sound one is loaded once, and found by kind and name") {
  Registry registry;
  const std::string path = (kFolder / "good_callback.so").string();
  for (int i = 0; i < 2; ++i) {
    for (const auto& item : load(registry, path)) {
      CHECK_MESSAGE(!item.is_error, item.message);
    }
  }

  CHECK(registry.libraries().size() == 1);
  CHECK(registry.libraries()[0].name == "good_callback");
  const auto* component = registry.find("limbeck.callback/1", "good_callback");
  REQUIRE(component != nullptr);
  CHECK(component->summary() == "A callback that does nothing.");
  CHECK(LB_CAN(&component->vtable<lb_callback_vtable>(), event));
  CHECK(registry.of_kind("limbeck.callback/1").size() == 1);
  CHECK(registry.find("limbeck.method/1", "good_callback") == nullptr);
}

TEST_CASE("plugins: one of a later minor version with longer structs is loaded") {
  CHECK(refusal_of_fixture("good_future").empty());
}

TEST_CASE("plugins: what a file says about itself is checked before any code of it runs") {
  CHECK(refusal_of_fixture("bad_major") ==
        "it was built for ABI 2.0, this limbeck has ABI 1.0; another major version cannot be "
        "loaded");
  CHECK(refusal_of_fixture("bad_no_note") ==
        "it is a shared library, but not a plugin of limbeck: it has no note '.note.limbeck', "
        "which limbeck_add_plugin puts into one");
  CHECK(refusal_of_fixture("bad_torch_tag")
            .starts_with("it was built for another libtorch: torch is 1.2.3, this limbeck has 2."));
  CHECK(refusal_of_fixture("bad_links_torch") ==
        "it says that it does not share libtorch, but needs libtorch_cpu.so");
  CHECK(refusal_of_fixture("bad_torch_path") ==
        cat("it needs libtorch by its path, ", kFolder.string(),
            "/other/libtorch_cpu.so, which would bring a second copy of it into the process"));
  CHECK(refusal_of_fixture("bad_no_symbol") == "it exports no function 'limbeck_plugin_v1'");
  CHECK(refusal_of_fixture("bad_data_symbol") ==
        "its 'limbeck_plugin_v1' is data, expected a function");
  CHECK(refusal_of_fixture("bad_two_symbols") ==
        "it exports 1 symbols beside 'limbeck_plugin_v1': limbeck_another");
}

TEST_CASE("plugins: one that crashes or ends the process while it is opened is refused") {
  CHECK(refusal_of_fixture("bad_crash")
            .starts_with("it crashed while it was opened: signal 6 (Aborted)"));
  CHECK(refusal_of_fixture("bad_exit") ==
        "it ended the process while it was opened, with exit code 3; it wrote: licence server not "
        "found");
  CHECK(refusal_of_fixture("bad_pointer")
            .starts_with("it crashed while its tables were read: signal 11 (Segmentation fault)"));
}

TEST_CASE("plugins: the description of a plugin is checked") {
  CHECK(refusal_of_fixture("bad_minor") == "it needs ABI 1.9 or later, this limbeck has ABI 1.0");
  CHECK(refusal_of_fixture("bad_note_minor") ==
        "its ABI is '1.0' in its table and '1.3' in its file's note; they must be equal");
  CHECK(refusal_of_fixture("bad_returns_null") == "its function 'limbeck_plugin_v1' returned NULL");
  CHECK(refusal_of_fixture("bad_short_struct") ==
        "its lb_plugin has struct_size 40, expected 72 or, from a later header, a little more");
  CHECK(refusal_of_fixture("bad_note_id") ==
        "its id is 'org.limbeck.test.bad_note_id' in its table and 'org.limbeck.test.other' in "
        "its file's note; they must be equal");
  CHECK(refusal_of_fixture("bad_duplicate") ==
        "component 'bad_duplicate' of kind limbeck.callback/1 is offered twice");
  CHECK(refusal_of_fixture("bad_null_component") == "component 1 of 2 is NULL");
}

TEST_CASE("plugins: every component is checked") {
  CHECK(refusal_of_fixture("bad_name") ==
        "component 'Bad-Name': its name is 'Bad-Name', expected [a-z0-9_]+");
  CHECK(refusal_of_fixture("bad_kind") ==
        "component 'bad_kind': its kind is 'limbeck.callback/2', this limbeck knows "
        "limbeck.model/1, limbeck.text-encoder/1, limbeck.vae/1, limbeck.reward/1, "
        "limbeck.attention/1, limbeck.method/1, limbeck.prepare/1, limbeck.loss/1, "
        "limbeck.callback/1, limbeck.dataset/1, limbeck.tracker/1");
  CHECK(refusal_of_fixture("bad_null_vtable") == "component 'bad_null_vtable': its vtable is NULL");
  CHECK(refusal_of_fixture("bad_short_vtable") ==
        cat("component 'bad_short_vtable': its vtable has struct_size 48, expected ",
            sizeof(lb_callback_vtable), " or, from a later header, a little more"));
  CHECK(refusal_of_fixture("bad_header") ==
        cat("component 'bad_header': its vtable has struct_size ", sizeof(lb_callback_vtable) + 8,
            ", in ABI 1.0 it has ", sizeof(lb_callback_vtable),
            "; it was compiled with a changed header"));
  CHECK(refusal_of_fixture("bad_long_name") == cat("component '", std::string(80, 'x'),
                                                   "...': its name is '", std::string(80, 'x'),
                                                   "...', expected [a-z0-9_]+"));
  CHECK(refusal_of_fixture("bad_save_only") ==
        "component 'bad_save_only': it has only one of `save` and `load`; expected both or none");
  CHECK(refusal_of_fixture("bad_null_slot") ==
        "component 'bad_null_slot': its function `event` is NULL, but required");
  CHECK(refusal_of_fixture("bad_role") ==
        "component 'bad_role': role 0 of `needs`: it is a shadow of role 0, expected the index "
        "of a role that is not a shadow");
}

TEST_CASE("plugins: the options of every component are checked") {
  CHECK(refusal_of_fixture("bad_default") ==
        "component 'bad_default': option 'rate': its default 1.5 is not a number in [0, 1]");
  CHECK(refusal_of_fixture("bad_enum") ==
        "component 'bad_enum': option 'speed': its default \"slow\" is not \"fast\" or \"exact\"");
  CHECK(refusal_of_fixture("bad_range") ==
        "component 'bad_range': option 'rate': its range '0..1' is not an interval like '(0, 1]' "
        "or '[1, inf)'");
  CHECK(
      refusal_of_fixture("bad_host_key")
          .starts_with("component 'bad_host_key': option 'every_steps' has the name of a key that "
                       "limbeck itself reads in this table; rename it (taken: type, roles, "));
}

TEST_CASE("plugins: the dynamic linker's own words are kept") {
  CHECK(refusal_of_fixture("bad_undefined") ==
        "the dynamic linker refuses it: undefined symbol: limbeck_no_such_function");
  CHECK(
      refusal_of_fixture("bad_missing_library") ==
      "the dynamic linker refuses it: liblimbeck_gone.so: cannot open shared object file: No such "
      "file or directory");
}

TEST_CASE("plugins: what is no library is told apart") {
  const Scratch scratch;
  const std::string good = limbeck::read_file(kFolder / "good_callback.so");

  CHECK(refusal_of(scratch.file("half.so", good.substr(0, good.size() / 2)))
            .starts_with("it is cut off: "));
  CHECK(refusal_of(scratch.file("text.so", "this is a text, not a library")) ==
        "it is not a shared library: it does not begin with the four bytes of ELF");
  CHECK(refusal_of(scratch.file("empty.so", "")) == "it is not a shared library: it has 0 bytes");
  std::string other = good;
  other[EI_CLASS] = ELFCLASS32;
  CHECK(refusal_of(scratch.file("class32.so", other)) ==
        "it is built for another kind of machine: expected a 64-bit little-endian library");
  other = good;
  other[offsetof(Elf64_Ehdr, e_machine)] = static_cast<char>(EM_RISCV);
  CHECK(refusal_of(scratch.file("machine.so", other))
            .starts_with("it is built for another kind of machine: ELF machine 243, expected "));
  CHECK(refusal_of("/proc/self/exe").starts_with("it is a shared library, but not a plugin"));
  fs::create_directory(scratch.path() / "folder.so");
  CHECK(refusal_of(scratch.path() / "folder.so") == "it is a folder, expected a '.so' file");
  const fs::path pipe = scratch.path() / "pipe.so";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  CHECK(refusal_of(pipe) == "it is not a regular file");
  const fs::path missing = scratch.path() / "missing.so";
  CHECK(refusal_of(missing) ==
        cat("plugin '", missing.string(), "' was not found; tried ", missing.string()));
}

TEST_CASE("plugins: a name is looked for in every folder of the path, and told with the nearest") {
  const auto folders = Registry::search_path();
  setenv("LIMBECK_PLUGIN_PATH", cat("/no/such/folder:relative:", kFolder.string()).c_str(), 1);
  Registry registry;
  const auto items = load(registry, "good_calback");
  const auto found = load(registry, "good_callback");
  unsetenv("LIMBECK_PLUGIN_PATH");

  REQUIRE(items.size() == 1);
  CHECK(items[0].message ==
        cat("plugin 'good_calback' was not found; tried /no/such/folder/good_calback.so, ",
            kFolder.string(), "/good_calback.so, ", folders.back().string(),
            "/good_calback.so; LIMBECK_PLUGIN_PATH also has 'relative', which is left out because "
            "it is not absolute"));
  CHECK(items[0].hint == "did you mean 'good_callback'?");
  CHECK(registry.libraries().size() == 1);
  CHECK(folders.back() == fs::path(LIMBECK_BINARY_DIR "/lib/limbeck/plugins"));
}

TEST_CASE("plugins: two with one name for one kind, or with one id, do not both load") {
  const Scratch scratch;
  Registry registry;
  load(registry, (kFolder / "good_callback.so").string());

  const auto twin = load(registry, (kFolder / "good_twin.so").string());
  const auto copy = load(
      registry, scratch.file("copy.so", limbeck::read_file(kFolder / "good_callback.so")).string());

  const auto last = [](const auto& items) { return items.empty() ? "" : items.back().message; };
  CHECK(
      last(twin).ends_with("it offers 'good_callback' of kind limbeck.callback/1, as plugin "
                           "'good_callback' (org.limbeck.test.good_callback 1.0.0) does"));
  CHECK(last(copy).ends_with(
      cat("a plugin with the id org.limbeck.test.good_callback is already loaded, from ",
          (kFolder / "good_callback.so").string())));
  CHECK(registry.libraries().size() == 1);
}

TEST_CASE("plugins: one that shares libtorch is loaded after libtorch, which is opened once") {
  const Scratch scratch;
  std::string content = limbeck::read_file(kFolder / "good_native.so");
  const std::string placeholder(64, '@');
  std::string tag = limbeck::host_torch_tag();
  tag.resize(placeholder.size());  // with NULs
  for (auto at = content.find(placeholder); at != content.npos; at = content.find(placeholder)) {
    content.replace(at, tag.size(), tag);
  }
  const fs::path path = scratch.file("native.so", content);
  int n_opened = 0;
  Registry registry;
  registry.on_native([&n_opened] {
    if (++n_opened == 1) {
      throw limbeck::Error(limbeck::Fault::kInternal, "cannot open libtorch");
    }
  });

  const auto first = load(registry, path.string());
  REQUIRE(first.size() == 1);
  CHECK(first[0].message.ends_with(": cannot open libtorch"));
  CHECK(load(registry, path.string()).empty());

  CHECK(n_opened == 2);
  CHECK(registry.libraries().size() == 1);
  CHECK(refusal_of(path) == "it shares libtorch, which this command does not load");
}

TEST_CASE("plugins: a pinned hash is checked") {
  const fs::path path = kFolder / "good_callback.so";
  const std::string message = refusal_of(path, std::string(64, '0'));
  CHECK(message.starts_with("its sha256 is "));
  const std::string actual = message.substr(14, 64);
  CHECK(message == cat("its sha256 is ", actual, ", the manifest expects ", std::string(64, '0')));

  CHECK(refusal_of(path, actual).empty());
}

TEST_CASE("plugins: a file that others can write is a warning") {
  const Scratch scratch;
  const fs::path path = scratch.file("open.so", limbeck::read_file(kFolder / "good_callback.so"));
  fs::permissions(path, fs::perms(0666));
  Registry registry;

  const auto items = load(registry, path.string());

  REQUIRE(items.size() == 1);
  CHECK_FALSE(items[0].is_error);
  CHECK(items[0].message == cat("plugin '", path.string(), "': ", path.string(),
                                " can be written by its group or by everybody"));
  CHECK(registry.libraries().size() == 1);

  Registry strict;
  strict.be_strict();
  const auto refused = load(strict, path.string());
  REQUIRE(refused.size() == 1);
  CHECK(refused[0].is_error);
  CHECK(refused[0].message.ends_with(" can be written by its group or by everybody"));
  CHECK(refused[0].hint ==
        "whoever can write there can run code as you; --strict refuses such plugins");
  CHECK(strict.libraries().empty());
}

TEST_CASE(
    "plugins: a folder that others can write is a warning, unless only owners can rename in it") {
  const Scratch scratch;
  const fs::path folder = scratch.path() / "shared";
  fs::create_directory(folder);
  const fs::path path = folder / "open.so";
  fs::copy(kFolder / "good_callback.so", path);
  const auto warnings = [&path] {
    Registry registry;
    return load(registry, path.string());
  };

  CHECK(warnings().empty());
  fs::permissions(folder, fs::perms(0777));
  REQUIRE(warnings().size() == 1);
  CHECK(warnings()[0].message == cat("plugin '", path.string(), "': ", folder.string(),
                                     " can be written by its group or by everybody"));
  fs::permissions(folder, fs::perms(01777));
  CHECK(warnings().empty());
}

TEST_CASE("plugins: a file of another user is a warning") {
  const Scratch scratch;
  const fs::path path = scratch.file("theirs.so", limbeck::read_file(kFolder / "good_callback.so"));
  if (chown(path.c_str(), 12345, 12345) != 0) {
    MESSAGE("skipped: only root can give a file away");
    return;
  }
  Registry registry;
  const auto items = load(registry, path.string());

  REQUIRE(items.size() == 1);
  CHECK(items[0].message ==
        cat("plugin '", path.string(), "': ", path.string(), " belongs to another user"));
}

TEST_CASE("plugins: a file that is written to or replaced after it was opened is noticed") {
  const Scratch scratch;
  const fs::path path = scratch.file("x.so", "content");
  const limbeck::PluginFile file(path);
  CHECK(file.is_unchanged(path));

  std::ofstream(path, std::ios::app) << "more";
  CHECK(file.is_same(path));
  CHECK_FALSE(file.is_unchanged(path));

  const limbeck::PluginFile second(path);
  CHECK(second.is_unchanged(path));
  scratch.file("x.so", "content");  // by renaming another file over it
  CHECK_FALSE(second.is_same(path));
  CHECK_FALSE(second.is_unchanged(path));
}

TEST_CASE("plugins: two that contain libraries of one name each see their own") {
  Registry registry;
  load(registry, (kFolder / "good_library_a.so").string());
  load(registry, (kFolder / "good_library_b.so").string());

  for (const char* name : {"a", "b"}) {
    const auto* component =
        registry.find("limbeck.callback/1", std::string("good_library_") + name);
    REQUIRE(component != nullptr);
    CHECK(static_cast<const char*>(component->table->get_extension("")) == std::string(name));
  }
}

namespace {

std::string start_of(const std::string& fixture) {
  Registry registry;
  load(registry, (kFolder / (fixture + ".so")).string());
  REQUIRE(registry.libraries().size() == 1);
  try {
    registry.start(limbeck::host_table());
  } catch (const limbeck::Error& error) {
    CHECK(limbeck::exit_code(error.fault()) != 70);
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("plugins: a plugin that fails to start says why and where") {
  CHECK(start_of("bad_init") ==
        "no licence file\n  at bad_init.c:7\n  while looking for the licence\n"
        "  while starting plugin 'bad_init' (org.limbeck.test.bad_init 1.0.0)");
}

TEST_CASE("plugins: an exception that leaves a plugin is an error that names it") {
  CHECK(start_of("bad_throw_init") ==
        "no licence file\n  an exception left the plugin, which the ABI forbids\n"
        "  while starting plugin 'bad_throw_init' (org.limbeck.test.bad_throw_init 1.0.0)\n"
        "  hint: a plugin's function must catch what it throws and return a status");
}

TEST_CASE("plugins: a plugin that crashes when it is started is named") {
  const auto outcome =
      limbeck::run_in_child([](const limbeck::ChildReport&) { return start_of("bad_crash_init"); },
                            std::chrono::seconds(30));

  CHECK(outcome.end == limbeck::ChildOutcome::End::kSignal);
  CHECK(outcome.number == SIGABRT);
  CHECK(outcome.output == cat("limbeck: the process crashed in init() of plugin 'bad_crash_init' "
                              "(org.limbeck.test.bad_crash_init 1.0.0), ",
                              kFolder.string(), "/bad_crash_init.so"));
}

TEST_CASE("child process: however it ends is told") {
  using limbeck::ChildOutcome;
  using limbeck::ChildReport;
  using limbeck::run_in_child;
  const std::chrono::seconds limit(30);

  const auto done = run_in_child(
      [](const ChildReport& report) {
        report.stage("first");
        return std::string("result");
      },
      limit);
  CHECK(done.end == ChildOutcome::End::kDone);
  CHECK(done.text == "result");
  CHECK(done.fault().empty());

  const auto failed = run_in_child(
      [](const ChildReport&) -> std::string {
        throw limbeck::Error(limbeck::Fault::kPlugin, "message", "hint").with("frame");
      },
      limit);
  CHECK(failed.fault() == "message\n  frame");
  CHECK(failed.hint == "hint");

  const auto endless = run_in_child(
      [](const ChildReport& report) -> std::string {
        report.stage("while it waited");
        for (;;) {
          pause();
        }
      },
      std::chrono::milliseconds(50));
  CHECK(endless.fault() == "it did not come to an end while it waited and was stopped after 50 ms");

  const auto wordy = run_in_child(
      [](const ChildReport&) {
        for (int i = 0; i < 100000; ++i) {
          std::puts("a line of output");
        }
        std::fflush(stdout);
        return std::string("still done");
      },
      limit);
  CHECK(wordy.text == "still done");
  CHECK(wordy.output.size() < 10000);
}
