// SPDX-License-Identifier: Apache-2.0
// What reaches standard error, which is a pipe or a pseudo-terminal of a child process here.
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <regex>
#include <string>

#include <doctest/doctest.h>

#include "core/base/log.hpp"

namespace {

namespace log = limbeck::log;

std::string read_all(int descriptor) {
  std::string text;
  std::array<char, 4096> block{};
  for (ssize_t n = 0; (n = ::read(descriptor, block.data(), block.size())) > 0;) {
    text.append(block.data(), static_cast<size_t>(n));
  }
  return text;
}

// What `body` writes to standard error in a child process.
std::string written_to_pipe(const std::function<void()>& body) {
  std::array<int, 2> ends{};
  REQUIRE(::pipe(ends.data()) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(ends[1], STDERR_FILENO);
    body();
    ::_exit(0);
  }
  ::close(ends[1]);
  const std::string text = read_all(ends[0]);
  ::close(ends[0]);
  ::waitpid(child, nullptr, 0);
  return text;
}

// The same where standard error is a terminal of 20 columns. It is not the controlling terminal of
// the child: the end of a session would throw away what was not read yet.
std::string written_to_terminal(const std::function<void()>& body) {
  int ours = -1;
  int theirs = -1;
  const struct winsize size = {24, 20, 0, 0};
  REQUIRE(::openpty(&ours, &theirs, nullptr, nullptr, &size) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::setenv("TERM", "dumb", 1);  // no colours
    ::dup2(theirs, STDERR_FILENO);
    body();
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  ::close(theirs);
  const std::string text = read_all(ours);
  ::close(ours);
  return text;
}

}  // namespace

TEST_CASE("log: a line has time, level, component and text") {
  const std::string text = written_to_pipe([] { log::info("train", "step 1"); });

  CHECK(std::regex_match(
      text, std::regex(R"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} info    train: step 1\n)")));
}

TEST_CASE("log: lines below the level are not written") {
  const std::string text = written_to_pipe([] {
    log::debug("a", "unseen");
    log::setup(log::Level::kWarn);
    log::info("a", "unseen");
    log::warn("a", "seen {}");
  });

  CHECK(text.find("unseen") == std::string::npos);
  CHECK(text.find("warning a: seen {}\n") != std::string::npos);
}

TEST_CASE("log: enabled follows the level") {
  CHECK(log::enabled(log::Level::kInfo));
  CHECK_FALSE(log::enabled(log::Level::kDebug));
}

TEST_CASE("log: a status line is not written to a pipe") {
  CHECK(written_to_pipe([] { log::status_line("step 1"); }).empty());
}

TEST_CASE("log: a status line stays below the lines of the log on a terminal") {
  const std::string text = written_to_terminal([] {
    log::status_line("step 1");
    log::info("train", "saved");
    log::status_line("");
  });

  const size_t first = text.find("step 1");
  const size_t erased = text.find("\r\x1b[2K");
  const size_t line = text.find("train: saved");
  const size_t again = text.find("step 1", line);
  const size_t removed = text.find("\r\x1b[2K", again);
  CHECK(first == 0);
  CHECK(erased < line);
  CHECK(line < again);
  CHECK(again < removed);
  CHECK(removed != std::string::npos);
}

TEST_CASE("log: a status line is cut to the width of the terminal and to one line") {
  const std::string text =
      written_to_terminal([] { log::status_line("0123456789012345678901234\nmore"); });

  CHECK(text == "0123456789012345678");
}
