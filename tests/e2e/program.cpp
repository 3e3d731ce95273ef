// SPDX-License-Identifier: Apache-2.0
#include "program.hpp"

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <thread>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

namespace limbeck::testing {
namespace {

struct Child {
  pid_t pid = -1;
  int output = -1;
};

Child start(const std::vector<std::string>& arguments) {
  int ends[2];
  if (pipe(ends) != 0) {
    throw std::runtime_error("pipe failed");
  }
  const pid_t pid = fork();
  if (pid == 0) {
    const std::string program = LIMBECK_BINARY_DIR "/bin/limbeck";
    std::vector<char*> argv = {const_cast<char*>(program.c_str())};
    for (const auto& argument : arguments) {
      argv.push_back(const_cast<char*>(argument.c_str()));
    }
    argv.push_back(nullptr);
    dup2(ends[1], STDOUT_FILENO);
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    close(ends[1]);
    setenv("OMP_NUM_THREADS", "1", 1);
    if (chdir(LIMBECK_SOURCE_DIR) == 0) {
      execv(program.c_str(), argv.data());
    }
    _exit(127);
  }
  close(ends[1]);
  return {pid, ends[0]};
}

Outcome finish(const Child& child, const std::string& wait_for, int signal) {
  const auto begin = std::chrono::steady_clock::now();
  Outcome outcome;
  bool is_sent = wait_for.empty();
  char buffer[4096];
  for (ssize_t count = 0; (count = read(child.output, buffer, sizeof(buffer))) > 0;) {
    outcome.output.append(buffer, static_cast<size_t>(count));
    if (!is_sent && outcome.output.find(wait_for) != std::string::npos) {
      kill(child.pid, signal);
      is_sent = true;
    }
  }
  close(child.output);
  int status = 0;
  waitpid(child.pid, &status, 0);
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return outcome;
}

}  // namespace

Outcome run_limbeck(const std::vector<std::string>& arguments) {
  return finish(start(arguments), "", 0);
}

Outcome signal_limbeck(const std::vector<std::string>& arguments,
                       const std::string& text,
                       int signal) {
  return finish(start(arguments), text, signal);
}

Outcome kill_limbeck(const std::vector<std::string>& arguments, double seconds) {
  const auto child = start(arguments);
  std::thread killer;
  std::mutex mutex;
  std::condition_variable over;
  bool is_over = false;
  killer = std::thread([&] {
    std::unique_lock lock(mutex);
    if (!over.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return is_over; })) {
      kill(child.pid, SIGKILL);
    }
  });
  // The pipe ends with the program, which is not waited for before nobody will kill its number.
  std::string output;
  char buffer[4096];
  for (ssize_t count = 0; (count = read(child.output, buffer, sizeof(buffer))) > 0;) {
    output.append(buffer, static_cast<size_t>(count));
  }
  {
    const std::lock_guard lock(mutex);
    is_over = true;
  }
  over.notify_one();
  killer.join();
  auto outcome = finish(child, "", 0);
  outcome.output = output;
  return outcome;
}

std::string shell(const std::string& command) {
  FILE* pipe = popen(("{ " + command + "\n} 2>&1").c_str(), "r");
  if (pipe == nullptr) {
    throw std::runtime_error("popen failed");
  }
  std::string output;
  char buffer[4096];
  while (const size_t count = fread(buffer, 1, sizeof(buffer), pipe)) {
    output.append(buffer, count);
  }
  if (pclose(pipe) != 0) {
    throw std::runtime_error(command + "\n" + output);
  }
  return output;
}

TempFolder::TempFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "limbeck-test-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) {
    throw std::runtime_error("mkdtemp failed");
  }
  path_ = name;
}

TempFolder::~TempFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    throw std::runtime_error("cannot read " + path.string());
  }
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void write_text(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

std::vector<double> metric(const std::filesystem::path& jsonl, const std::string& name) {
  std::vector<double> values;
  std::istringstream lines(read_text(jsonl));
  for (std::string line; std::getline(lines, line);) {
    const auto json = nlohmann::json::parse(line);
    if (json.contains(name)) {
      values.push_back(json.at(name).get<double>());
    }
  }
  return values;
}

const std::filesystem::path& clips() {
  static const TempFolder folder;
  static const std::filesystem::path path = [] {
    const auto data = folder / "data";
    const auto outcome =
        run_limbeck({"train", "configs/quickstart-judge.toml", "--set",
                     "training.loop.max_train_steps=1", "--override-output-dir", folder / "judge",
                     "--set", "callbacks.parquet_writer.data_path=\"" + data + "\""});
    if (outcome.exit_code != 0) {
      throw std::runtime_error("cannot make the clips: " + outcome.output);
    }
    return std::filesystem::path(data);
  }();
  return path;
}

}  // namespace limbeck::testing
