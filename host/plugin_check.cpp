// SPDX-License-Identifier: Apache-2.0
// Everything that can be found out about a plugin without a manifest. What runs code of it runs in
// child processes, so that a crash is a finding.
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <set>
#include <sstream>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/plugin/child_process.hpp"
#include "core/plugin/default_config.hpp"
#include "core/plugin/elf_note.hpp"
#include "core/plugin/plugin_file.hpp"
#include "host/commands.hpp"
#include "host/engine.hpp"
#include "host/plugin_files.hpp"

namespace limbeck::host {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kTrialLimit(60);

class Report {
 public:
  void pass(const std::string& what) { print("pass", what); }
  void note(const std::string& what) { print("note", what); }
  void fail(const std::string& what) {
    print("FAIL", what);
    ++n_failed_;
  }
  int failed() const { return n_failed_; }

 private:
  static void print(const char* verdict, const std::string& what) {
    std::cout << verdict << "  " << what << '\n' << std::flush;
  }
  int n_failed_ = 0;
};

// Functions that change the process under the host's feet, or end it.
std::vector<std::string> unwelcome(const std::vector<std::string>& imported) {
  static const std::set<std::string> list = {
      "_exit",     "chdir",  "exit",   "fork",      "putenv",   "quick_exit", "setenv",
      "setlocale", "signal", "system", "sigaction", "unsetenv", "vfork"};
  std::vector<std::string> found;
  for (const auto& name : imported) {
    if (list.count(name) != 0) {
      found.push_back(name);
    }
  }
  return found;
}

void check_linking(const ElfFacts& facts, Report& report) {
  if (facts.has_executable_stack) {
    report.fail("file: it asks for a stack that can be executed; link it with -z noexecstack");
  }
  if (facts.has_text_relocations) {
    report.fail("file: its code is changed when it is loaded; compile it with -fPIC");
  }
  if (!facts.is_never_unloaded || !facts.is_bound_at_load) {
    report.note("file: it is not linked with -z nodelete and -z now, as limbeck_add_plugin does");
  }
  if (const auto names = unwelcome(facts.imported); !names.empty()) {
    report.note(cat("file: it uses ", join(names),
                    ", which change or end the process that it shares with others"));
  }
}

// A folder that is gone afterwards.
class Scratch {
 public:
  Scratch() {
    std::string pattern = (fs::temp_directory_path() / "limbeck-check-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) {
      throw Error(Fault::kInternal, cat("cannot make a folder in ", fs::temp_directory_path()));
    }
    path_ = pattern;
  }
  ~Scratch() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

// The report of a child: a line for each fault ("f...") and note ("n...").
std::string to_lines(const ComponentTrial& trial) {
  std::string lines;
  const auto add = [&lines](char kind, std::string text) {
    for (size_t at = 0; (at = text.find('\n', at)) != std::string::npos;) {
      text[at] = ' ';
    }
    lines += kind + text + '\n';
  };
  for (const auto& fault : trial.faults) {
    add('f', fault);
  }
  for (const auto& note : trial.notes) {
    add('n', note);
  }
  return lines;
}

void try_one(const Component& component, Registry& registry, Report& report) {
  const std::string name = cat(component.name(), " (", component.kind(), ")");
  const Scratch scratch;
  const DefaultConfig options = default_config(component);
  const auto outcome = run_in_child(
      [&](const ChildReport& child) {
        ComponentTrial trial;
        trial.component = &component;
        trial.registry = &registry;
        trial.config = options.config;
        trial.scratch = scratch.path();
        trial.stage = [&child](const std::string& what) { child.stage(what); };
        try_component(trial);
        return to_lines(trial);
      },
      kTrialLimit);
  if (outcome.end != ChildOutcome::End::kDone) {
    report.fail(cat(name, ": ", outcome.fault()));
    return;
  }
  bool is_sound = true;
  std::istringstream lines(outcome.text);
  for (std::string line; std::getline(lines, line);) {
    if (line.front() == 'f') {
      report.fail(cat(name, ": ", line.substr(1)));
      is_sound = false;
    } else {
      const std::string made_up =
          options.made_up.empty() ? ""
                                  : cat(" (values were made up for ", join(options.made_up), ")");
      report.note(cat(name, ": ", line.substr(1), made_up));
    }
  }
  if (!outcome.output.empty()) {
    report.note(cat(name, ": it writes to standard output or standard error: ", outcome.output));
  }
  if (is_sound) {
    report.pass(name);
  }
}

void check_one(const std::string& path, Report& report) {
  auto& registry = *new Registry;  // never destroyed: its libraries stay open
  open_on_demand(registry);
  try {
    load_plugins({path}, registry);
  } catch (const Error& error) {
    report.fail(error.message());
    return;
  }
  const Library& library = registry.libraries().front();
  report.pass(cat(library.path.string(), ": file, note, symbols, tables and options"));
  check_linking(read_elf(PluginFile(library.path).descriptor()), report);
  open_engine();
  for (const auto& component : registry.components()) {
    try_one(component, registry, report);
  }
}

}  // namespace

void plugin_check(const Options& options) {
  Report report;
  for (const auto& path : options.plugins) {
    check_one(path, report);
  }
  if (report.failed() > 0) {
    throw Error(Fault::kPlugin,
                cat(report.failed(), report.failed() == 1 ? " check" : " checks", " failed"),
                "the rules are in docs/abi.md");
  }
}

}  // namespace limbeck::host
