// SPDX-License-Identifier: Apache-2.0
#include "core/train/record.hpp"

#include <fcntl.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <array>
#include <ctime>
#include <fstream>
#include <thread>

#include <ATen/Parallel.h>

#include <nlohmann/json.hpp>

#include "core/base/files.hpp"
#include "core/base/log.hpp"
#include "core/base/sha256.hpp"
#include "core/base/text.hpp"
#include "core/checkpoint/record.hpp"
#include "core/plugin/host_table.hpp"

namespace limbeck {
namespace {

using Document = nlohmann::ordered_json;

std::string hash_of(const std::filesystem::path& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) {
    return "";  // gone since it was loaded
  }
  struct Closer {
    int file;
    ~Closer() { ::close(file); }
  } const closer{file};
  return sha256_of_descriptor(file);
}

Document plugins_json(const Registry& registry) {
  auto list = Document::array();
  for (const auto& library : registry.libraries()) {
    list.push_back({{"name", library.name},
                    {"id", library.plugin->id},
                    {"version", library.plugin->version},
                    {"path", library.path.string()},
                    {"sha256", hash_of(library.path)}});
  }
  return list;
}

Document data_json(const Run& run) {
  if (run.loader == nullptr) {
    return nullptr;
  }
  return {{"type", run.manifest.data->dataset.component->name()},
          {"samples", run.loader->length()},
          {"fingerprint", digest_text(run.loader->fingerprint())}};
}

// The value of the first line of /proc/cpuinfo that begins with `name`.
std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const auto colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) {
      return line.substr(colon + 2);
    }
  }
  return "";
}

// Of the machine, nothing that tells whose it is.
Document machine_json() {
  utsname system{};
  uname(&system);
  return {{"system", cat(system.sysname, " ", system.release, " ", system.machine)},
          {"processor", processor_name()},
          {"processors", std::thread::hardware_concurrency()},
          {"memory_bytes", int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE)}};
}

// "prepare[0].rate" and "prepare.0.rate" are one key.
std::string dotted(const std::string& key) {
  std::string text;
  for (const char c : key) {
    if (c != ']') {
      text += c == '[' ? '.' : c;
    }
  }
  return text;
}

bool sets(const std::string& argument, const std::string& key) {
  const auto equals = argument.find('=');
  std::string name = dotted(argument.substr(0, equals));
  name.erase(0, name.find_first_not_of(" \t"));
  name.erase(name.find_last_not_of(" \t") + 1);
  const std::string secret = dotted(key);
  // A table that holds the key holds its value too.
  return equals != std::string::npos && (name == secret || secret.starts_with(name + "."));
}

}  // namespace

std::string now_text() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text.data();
}

std::vector<std::string> without_secrets(std::vector<std::string> arguments,
                                         const std::vector<std::string>& secret_keys) {
  constexpr std::string_view kSet = "--set=";
  for (auto& argument : arguments) {
    const size_t begin = argument.starts_with(kSet) ? kSet.size() : 0;
    for (const auto& key : secret_keys) {
      if (sets(argument.substr(begin), key)) {
        argument = argument.substr(0, argument.find('=', begin) + 1) + "***";
      }
    }
  }
  return arguments;
}

RunRecord::RunRecord(const Run& run,
                     const Registry& registry,
                     const std::vector<std::string>& arguments)
    : path_(run.manifest.run.output_dir / "run.json"), json_(std::make_shared<Document>()) {
  const Manifest& manifest = run.manifest;
  write_file(manifest.run.output_dir / "config.resolved.toml",
             "# Every key of this run, its value and where the value is from. It runs again with\n"
             "# `limbeck train config.resolved.toml`.\n" +
                 manifest.explained);
  *json_ = {{"outcome", "running"},
            {"name", manifest.run.name},
            {"started", now_text()},
            {"ended", nullptr},
            {"error", nullptr},
            {"manifest", manifest.path.string()},
            {"command", without_secrets(arguments, manifest.secret_keys)},
            {"resumed_from", nullptr},
            {"seed", manifest.run.seed},
            {"threads", at::get_num_threads()},
            {"limbeck",
             {{"version", version()},
              {"abi", cat(LB_ABI_MAJOR, ".", LB_ABI_MINOR)},
              {"compiler", "g++ " __VERSION__}}},
            {"libtorch", host_torch_tag()},
            {"plugins", plugins_json(registry)},
            {"data", data_json(run)},
            {"machine", machine_json()}};
  write("running");
}

const nlohmann::ordered_json& RunRecord::plugins() const { return json_->at("plugins"); }

void RunRecord::set_resumed(const std::filesystem::path& checkpoint) {
  (*json_)["resumed_from"] = checkpoint.string();
  write("running");
}

void RunRecord::finish() { write("finished"); }

void RunRecord::finish(const Error& error) {
  (*json_)["error"] = error.what();
  try {
    write(error.fault() == Fault::kCancelled ? "stopped" : "failed");
  } catch (const Error& fault) {
    log::warn("run", fault.what());
  }
}

void RunRecord::write(const std::string& outcome) {
  (*json_)["outcome"] = outcome;
  (*json_)["ended"] = outcome == "running" ? Document() : Document(now_text());
  write_file(path_, json_->dump(2, ' ', false, Document::error_handler_t::replace) + "\n");
}

}  // namespace limbeck
