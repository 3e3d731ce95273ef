// SPDX-License-Identifier: Apache-2.0
// The state of a run as one tree of names, saved and restored: what it must have to go on as if it
// had never stopped. docs/checkpoint-format.md lists the names.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/checkpoint/state.hpp"
#include "core/plugin/stateful.hpp"
#include "core/train/run.hpp"

namespace limbeck {

// Where a run stands between two steps.
struct RunPosition {
  std::string id;       // of the run, kept when it is resumed
  int64_t step = 0;     // steps that are done
  int64_t samples = 0;  // trained on, over all ranks
};

struct RunSnapshot {
  Snapshot snapshot;
  CheckpointText text;
};

class RunState {
 public:
  // After run.load(). `plugins`: those of the run with their hashes, for the record. [control]
  RunState(Run& run, nlohmann::ordered_json plugins);

  // Copies the whole state; empty if a component would rather be asked after the next step. Throws
  // Error. [control]
  std::optional<RunSnapshot> save(const RunPosition& position);

  // Restores everything from a checkpoint folder, which was verified, and logs what was restored,
  // begun anew and left aside. Throws Error(kData) if the checkpoint is not one of this run: other
  // networks, weights it was started from, data (unless the manifest allows that), names that are
  // missing or left over. [control]
  RunPosition load(const std::filesystem::path& checkpoint);

 private:
  bool save_components(SnapshotWriter& writer) const;
  void load_components(SnapshotReader& reader, const nlohmann::json& saved) const;

  Run& run_;
  std::vector<Stateful> components_;
  nlohmann::ordered_json plugins_;
  nlohmann::ordered_json facts_;  // those that never change; null until they are needed
};

// The checkpoint that the manifest resumes from; empty: it starts from the beginning. Verifies it.
// Throws Error(kData). [control]
std::optional<std::filesystem::path> checkpoint_to_resume(const Manifest& manifest);

// Every method, hook and callback of a run, and its data set, with its place among its like:
// "prepare.flow_noise", and "prepare.flow_noise-2" for the second of that type.
std::vector<Stateful> stateful_components(const Run& run);

}  // namespace limbeck
