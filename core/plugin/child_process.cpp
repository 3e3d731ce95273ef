// SPDX-License-Identifier: Apache-2.0
#include "core/plugin/child_process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/text.hpp"

namespace limbeck {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kKeptOutput = 2000;

// The report is a sequence of records: a letter, a text, a NUL.
constexpr char kStage = 's';
constexpr char kDone = 'd';
constexpr char kError = 'e';
constexpr char kHint = 'h';

void write_all(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(descriptor, bytes.data(), bytes.size());
    if (written < 0 && errno != EINTR) {
      return;  // the parent is gone: nobody wants to know
    }
    bytes.remove_prefix(static_cast<size_t>(std::max<ssize_t>(written, 0)));
  }
}

void tell(int descriptor, char kind, const std::string& text) {
  write_all(descriptor, std::string(1, kind) + text.substr(0, text.find('\0')) + '\0');
}

struct Pipe {
  int read_end = -1;
  int write_end = -1;

  Pipe() {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) {
      throw Error(Fault::kInternal, cat("cannot make a pipe: ", std::strerror(errno)));
    }
    read_end = ends[0];
    write_end = ends[1];
  }
  ~Pipe() {
    for (const int end : {read_end, write_end}) {
      if (end >= 0) {
        close(end);
      }
    }
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  int take_read_end() { return std::exchange(read_end, -1); }
};

// Whatever handlers this process has, a crash of the child is to end it, at once and without a
// core file.
void forget_handlers() {
  for (const int signal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP, SIGTERM, SIGINT}) {
    std::signal(signal, SIG_DFL);
  }
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
}

void work_in_child(const ChildProcess::Work& work, int report) {
  try {
    tell(report, kDone, work(ChildReport(report)));
  } catch (const Error& error) {
    tell(report, kHint, error.hint());
    std::vector<std::string> lines = error.frames();
    lines.insert(lines.begin(), error.message());
    tell(report, kError, join(lines, "\n  "));
  } catch (const std::exception& error) {
    tell(report, kError, error.what());
  } catch (...) {
    tell(report, kError, "an exception that is not a std::exception");
  }
}

bool append_from(int descriptor, std::string& text) {
  std::array<char, 4096> buffer{};
  const ssize_t size = read(descriptor, buffer.data(), buffer.size());
  text.append(buffer.data(), static_cast<size_t>(std::max<ssize_t>(size, 0)));
  return size > 0;
}

// The same for what the child printed, of which the end is kept.
bool append_output(int descriptor, std::string& text) {
  const bool has_more = append_from(descriptor, text);
  if (text.size() > 2 * kKeptOutput) {
    text.erase(0, text.size() - kKeptOutput);
  }
  return has_more;
}

// Reads the report until the child has closed it, and whatever it has written until then. False:
// the time is over.
bool collect(
    int report, int output, Clock::time_point end, std::string& told, std::string& written) {
  fcntl(output, F_SETFL, O_NONBLOCK);
  std::array<pollfd, 2> open = {pollfd{report, POLLIN, 0}, pollfd{output, POLLIN, 0}};
  for (bool is_open = true; is_open;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
    if (left.count() <= 0) {
      return false;
    }
    if (poll(open.data(), open.size(), static_cast<int>(left.count()) + 1) <= 0) {
      continue;
    }
    if (open[1].revents != 0 && !append_output(output, written)) {
      open[1].fd = -1;
    }
    is_open = open[0].revents == 0 || append_from(report, told);
  }
  while (append_output(output, written)) {
  }
  return true;
}

void read_report(const std::string& told, ChildOutcome& outcome, bool& has_result) {
  for (size_t at = 0; at < told.size();) {
    const size_t end = std::min(told.find('\0', at), told.size());
    std::string text = told.substr(at + 1, end - at - 1);
    switch (told[at]) {
      case kStage:
        outcome.stage = std::move(text);
        break;
      case kHint:
        outcome.hint = std::move(text);
        break;
      default:
        outcome.end = told[at] == kDone ? ChildOutcome::End::kDone : ChildOutcome::End::kError;
        outcome.text = std::move(text);
        has_result = true;
    }
    at = end + 1;
  }
}

int wait_for(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

}  // namespace

void ChildReport::stage(const std::string& what) const { tell(descriptor_, kStage, what); }

std::string ChildOutcome::fault() const {
  const std::string during = stage.empty() ? "" : " " + stage;
  std::string what;
  switch (end) {
    case End::kDone:
      return "";
    case End::kError:
      return text;
    case End::kSignal:
      what = cat("it crashed", during, ": signal ", number, " (", sigdescr_np(number), ")");
      break;
    case End::kExit:
      what = cat("it ended the process", during, ", with exit code ", number);
      break;
    case End::kTimeout:
      what = cat("it did not come to an end", during, " and was stopped after ", number, " ms");
      break;
  }
  return output.empty() ? what : cat(what, "; it wrote: ", output);
}

ChildProcess::ChildProcess(const Work& work) {
  Pipe report;
  Pipe output;
  // Else a child that calls exit() would write once more what waits to be written.
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) {
    throw Error(Fault::kInternal, cat("cannot start a child process: ", std::strerror(errno)));
  }
  if (child == 0) {
    forget_handlers();
    dup2(output.write_end, STDOUT_FILENO);
    dup2(output.write_end, STDERR_FILENO);
    work_in_child(work, report.write_end);
    _exit(0);
  }
  pid_ = child;
  report_ = report.take_read_end();
  output_ = output.take_read_end();
}

ChildProcess::~ChildProcess() {
  if (pid_ >= 0) {
    kill(pid_, SIGKILL);
    wait_for(pid_);
  }
  for (const int end : {report_, output_}) {
    if (end >= 0) {
      close(end);
    }
  }
}

ChildOutcome ChildProcess::wait(std::chrono::milliseconds limit) {
  ChildOutcome outcome;
  std::string told;
  const bool is_in_time = collect(report_, output_, Clock::now() + limit, told, outcome.output);
  if (!is_in_time) {
    kill(pid_, SIGKILL);
  }
  const int status = wait_for(std::exchange(pid_, -1));
  bool has_result = false;
  read_report(told, outcome, has_result);
  while (!outcome.output.empty() && outcome.output.back() == '\n') {
    outcome.output.pop_back();
  }
  if (!is_in_time) {
    outcome.end = ChildOutcome::End::kTimeout;
    outcome.number = static_cast<int>(limit.count());
  } else if (WIFSIGNALED(status)) {
    outcome.end = ChildOutcome::End::kSignal;
    outcome.number = WTERMSIG(status);
  } else if (!has_result) {
    outcome.end = ChildOutcome::End::kExit;
    outcome.number = WEXITSTATUS(status);
  }
  return outcome;
}

ChildOutcome run_in_child(const ChildProcess::Work& work, std::chrono::milliseconds limit) {
  return ChildProcess(work).wait(limit);
}

}  // namespace limbeck
