// SPDX-License-Identifier: Apache-2.0
// Trying code that may crash: it runs in a copy of this process, which may end in any way.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "core/base/export.hpp"

namespace limbeck {

// What a child was doing when it ended; written by the child, read by its parent.
class LIMBECK_API ChildReport {
 public:
  explicit ChildReport(int descriptor) : descriptor_(descriptor) {}
  // "while opening it": kept until the next one. [any]
  void stage(const std::string& what) const;

 private:
  int descriptor_;
};

struct LIMBECK_API ChildOutcome {
  enum class End {
    kDone,    // the work returned `text`
    kError,   // it threw: `text` and, of an Error, `hint`
    kSignal,  // it was killed by signal `number`
    kExit,    // it called exit() with `number`
    kTimeout  // it was still running and was killed
  };
  End end = End::kDone;
  int number = 0;
  std::string text;
  std::string hint;
  std::string stage;   // the last one it reported
  std::string output;  // the end of what it wrote to standard output and standard error

  // "it crashed with signal 11 (Segmentation fault) while opening it; it wrote: ..."; for kDone
  // empty, for kError the text.
  std::string fault() const;
};

// A copy of this process that does one piece of work. The child has no other thread than the one
// that started it. [control]
class LIMBECK_API ChildProcess {
 public:
  using Work = std::function<std::string(const ChildReport&)>;

  // Forks; the child begins. Throws Error(kInternal) if no child can be made.
  explicit ChildProcess(const Work& work);
  ~ChildProcess();  // kills a child that was not waited for
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // Waits for the end of the work, for `limit` from now at most: then the child is killed. Once.
  ChildOutcome wait(std::chrono::milliseconds limit);

 private:
  int pid_ = -1;  // -1: none, or waited for
  int report_ = -1;
  int output_ = -1;  // read ends of pipes
};

// Runs `work` in a child and waits, for `limit` at most. Throws as ChildProcess. [control]
LIMBECK_API ChildOutcome run_in_child(const ChildProcess::Work& work,
                                      std::chrono::milliseconds limit);

}  // namespace limbeck
