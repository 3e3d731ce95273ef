// SPDX-License-Identifier: Apache-2.0
#include "core/checkpoint/saver.hpp"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <system_error>
#include <utility>

#include "core/base/text.hpp"

namespace limbeck {
namespace {

using Clock = std::chrono::steady_clock;

// Training has the processors first.
void lower_priority() {
  constexpr int kNice = 10;
  setpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)), kNice);
}

SaveOutcome save(const std::filesystem::path& output_dir,
                 int64_t limit,
                 const Snapshot& snapshot,
                 CheckpointText text) {
  const auto begin = Clock::now();
  SaveOutcome outcome;
  outcome.step = text.record.step;
  outcome.bytes = snapshot.bytes();
  try {
    outcome.folder = write_checkpoint(output_dir, snapshot, std::move(text));
    remove_old_checkpoints(output_dir, limit, outcome.folder);
  } catch (const Error& error) {
    outcome.error = error;
  } catch (const std::exception& error) {
    outcome.error = Error(Fault::kInternal, error.what());
  }
  outcome.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  return outcome;
}

}  // namespace

CheckpointSaver::CheckpointSaver(std::filesystem::path output_dir, int64_t limit)
    : output_dir_(std::move(output_dir)), limit_(limit) {}

CheckpointSaver::~CheckpointSaver() { wait(); }

void CheckpointSaver::start(Snapshot snapshot, CheckpointText text) {
  if (is_busy()) {
    throw Error(Fault::kInternal, "a checkpoint is still being written");
  }
  try {
    running_ = std::async(
        std::launch::async,
        [this](const Snapshot& saved, CheckpointText about) {
          lower_priority();
          return save(output_dir_, limit_, saved, std::move(about));
        },
        std::move(snapshot), std::move(text));
  } catch (const std::system_error& error) {
    throw Error(Fault::kMemory, cat("cannot start a thread for a checkpoint: ", error.what()));
  }
}

std::optional<SaveOutcome> CheckpointSaver::poll() {
  const bool is_over =
      running_.valid() && running_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  return is_over ? std::optional<SaveOutcome>(running_.get()) : std::nullopt;
}

std::optional<SaveOutcome> CheckpointSaver::wait() {
  return running_.valid() ? std::optional<SaveOutcome>(running_.get()) : std::nullopt;
}

}  // namespace limbeck
