// SPDX-License-Identifier: Apache-2.0
// `limbeck export`, `import` and `inspect` of checkpoints and of what comes of them.
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "../fixtures/saved_state.hpp"
#include "program.hpp"

#include <doctest/doctest.h>

#include "core/transfer/tensor_files.hpp"

using namespace limbeck::testing;

namespace {

namespace fs = std::filesystem;

bool tells(const Outcome& outcome, const std::string& part) {
  INFO(outcome.output);
  return outcome.output.find(part) != std::string::npos;
}

const StateTensors& weights() {
  static const StateTensors all = {
      {"blocks.0.w", ramp({2, 3}, 1)}, {"blocks.1.w", ramp({2, 3}, 3)}, {"head", ramp({4}, 8)}};
  return all;
}

// The name that FastVideo trains a parameter under.
std::string trained_name(std::string name) {
  static const std::vector<std::pair<std::string, std::string>> parts = {
      {"patch_embedding.", "patch_embedding.proj."},
      {"text_embedder.linear_1.", "text_embedder.fc_in."},
      {"text_embedder.linear_2.", "text_embedder.fc_out."},
      {"time_embedder.linear_1.", "time_embedder.mlp.fc_in."},
      {"time_embedder.linear_2.", "time_embedder.mlp.fc_out."},
      {"time_proj.", "time_modulation.linear."},
      {"attn1.to_out.0.", "to_out."},
      {"attn1.", ""},
      {"attn2.to_out.0.", "attn2.to_out."},
      {"ffn.net.0.proj.", "ffn.fc_in."},
      {"ffn.net.2.", "ffn.fc_out."},
      {".norm2.", ".self_attn_residual_norm.norm."},
  };
  for (const auto& [from, to] : parts) {
    if (const auto at = name.find(from); at != std::string::npos) {
      return name.replace(at, from.size(), to);
    }
  }
  return name;
}

}  // namespace

TEST_CASE("transfer: a role of the newest checkpoint is exported, told, verified and compared") {
  const TempFolder folder;
  write_checkpoint(folder.path() / "checkpoint-12", weights());
  const auto out = folder / "out";
  const auto exported = run_limbeck(
      {"export", folder.path().string(), "--role", "pupil", "--output-dir", out, "--verify"});
  CHECK(exported.exit_code == 0);
  CHECK(tells(exported, "step 12 of role pupil, from " + folder / "checkpoint-12"));
  CHECK(tells(exported, "net: 3 tensors, 16 numbers, 64 bytes"));
  CHECK(tells(exported, "file: net/diffusion_pytorch_model.safetensors"));
  CHECK(tells(exported, "verified: every tensor was read again"));
  CHECK(tells(exported, "memory: peak "));

  const auto told = run_limbeck({"inspect", out, "--verify"});
  CHECK(told.exit_code == 0);
  CHECK(tells(told, ": an export"));
  CHECK(tells(told, "step: 12"));
  CHECK(tells(told, "verified: 1 files have the digests that were recorded"));
  CHECK(tells(told, "blocks.*.w  F32  [2, 3]  48 bytes in 2"));

  // Equal to the role in the checkpoint, not to its average.
  const auto role = run_limbeck(
      {"inspect", "--diff", folder / "checkpoint-12", out, "--prefix", "roles.pupil.net."});
  CHECK(role.exit_code == 0);
  CHECK(tells(role, "3 tensors were compared: all are equal"));
  const auto average = run_limbeck(
      {"inspect", "--diff", folder / "checkpoint-12", out, "--prefix", "ema.pupil.net."});
  CHECK(average.exit_code == 1);
  CHECK(tells(average, "head: 4 of 4 numbers, by at most 0.5"));
  const auto names = run_limbeck({"inspect", "--diff", folder / "checkpoint-12", out});
  CHECK(names.exit_code == 1);
  CHECK(tells(names, "only in " + folder / "checkpoint-12" + ": 9 tensors"));

  CHECK(run_limbeck({"export", folder.path().string(), "--role", "pupil", "--output-dir", out})
            .exit_code == 4);
  CHECK(run_limbeck({"export", folder.path().string(), "--role", "pupil", "--output-dir", out,
                     "--overwrite", "--weights", "ema", "--dtype", "bf16"})
            .exit_code == 0);
  CHECK(tells(run_limbeck({"inspect", out}), "weights: ema"));
}

TEST_CASE("transfer: a checkpoint is told by its step, plugins, roles, files, tensors and values") {
  const TempFolder folder;
  const auto checkpoint = folder.path() / "checkpoint-12";
  write_checkpoint(checkpoint, weights());
  const auto told = run_limbeck({"inspect", checkpoint.string(), "--verify"});
  CHECK(told.exit_code == 0);
  for (const char* part :
       {": a checkpoint", "step: 12", "plugin nets: org.example.nets 1.2.3, sha256 ab12",
        "role pupil: net, net (Net), averaged", "file: dcp/__0_0.distcp", "9 tensors, 48 numbers",
        "roles.pupil: 3 tensors, 16 numbers, 64 bytes, F32", "ema.pupil: 3 tensors",
        "optimizers.pupil: 3 tensors", "trainer.step = 12",
        "verified: 2 files have the digests that were recorded",
        "verified: 9 tensors and 1 values have the sums in their files",
        "roles.pupil.net.blocks.*.w"}) {
    CHECK(tells(told, part));
  }
  CHECK(
      tells(run_limbeck({"inspect", (checkpoint / "dcp").string()}), ": a distributed checkpoint"));

  auto bytes = read_text(checkpoint / "dcp" / "__0_0.distcp");
  const float wanted = 8.125F;
  char pattern[sizeof(wanted)];
  std::memcpy(pattern, &wanted, sizeof(wanted));
  const auto at = bytes.find(std::string(pattern, sizeof(pattern)));
  REQUIRE(at != std::string::npos);
  bytes[at] = static_cast<char>(bytes[at] ^ 1);
  write_text(checkpoint / "dcp" / "__0_0.distcp", bytes);
  CHECK(run_limbeck({"inspect", checkpoint.string()}).exit_code == 0);
  const auto damaged = run_limbeck({"inspect", checkpoint.string(), "--verify"});
  CHECK(damaged.exit_code == 4);
  CHECK(tells(damaged, "1 of 2 files are not as they were written"));
  const auto state = run_limbeck({"inspect", (checkpoint / "dcp").string(), "--verify"});
  CHECK(state.exit_code == 4);
  CHECK(tells(state, "1 items cannot be read"));
}

TEST_CASE("transfer: differences of two checkpoints are told, values too") {
  const TempFolder folder;
  auto other = weights();
  other.erase("head");
  other["tail"] = ramp({4}, 8);
  other["blocks.0.w"] = ramp({3, 2}, 1);
  other["blocks.1.w"].numbers[4] += 0.25F;
  write_state(folder.path() / "a", weights(), {{"trainer.step", {int64_t{1}}}, {"x", {true}}});
  write_state(folder.path() / "b", other, {{"trainer.step", {int64_t{2}}}});
  const auto diff = run_limbeck({"inspect", "--diff", folder / "a", folder / "b"});
  CHECK(diff.exit_code == 1);
  for (const std::string& part :
       {"only in " + folder / "a" + ": 1 tensors\n    head",
        "only in " + folder / "b" + ": 1 tensors\n    tail",
        std::string("blocks.0.w: [2, 3] and [3, 2]"),
        std::string("blocks.1.w: 1 of 6 numbers, by at most 0.25"),
        std::string("trainer.step: 1 and 2"), "only in " + folder / "a" + ": 1 values\n    x"}) {
    CHECK(tells(diff, part));
  }
  CHECK(run_limbeck({"inspect", "--diff", folder / "a", folder / "a"}).exit_code == 0);
  CHECK(run_limbeck({"inspect", "--diff", folder / "a"}).exit_code == 64);
}

TEST_CASE("transfer: states under training names are imported, and a role loads them") {
  const TempFolder folder;
  const std::vector<std::string> data = {"--set",
                                         "training.data.data_path=\"" + clips().string() + "\"",
                                         "--override-output-dir", folder / "run"};
  auto train = data;
  train.insert(train.begin(),
               {"train", "tests/e2e/tiny_sft.toml", "--set", "training.loop.max_train_steps=1"});
  REQUIRE(run_limbeck(train).exit_code == 0);
  const auto exported = folder / "run/export/student";
  const auto files = limbeck::open_tensor_files(exported);
  StateTensors state;
  for (const auto& [name, shape] : files->tensors()) {
    StateTensor tensor{shape.sizes, std::vector<float>(shape.numel())};
    files->read(name, 0, shape.bytes(), reinterpret_cast<std::byte*>(tensor.numbers.data()));
    state["roles.student.transformer." + trained_name(name)] = tensor;
    state["optimizers.student.state." + name + ".exp_avg"] = tensor;
  }
  write_state(folder.path() / "state" / "dcp", state);

  const auto published =
      run_limbeck({"import", folder / "state", "--role", "student", "--type", "wan", "--base",
                   exported + "/transformer", "--verify", "--output-dir", folder / "published"});
  CHECK(published.exit_code == 0);
  CHECK(tells(published, "left aside: optimizers.student, "));
  const auto same = run_limbeck({"inspect", "--diff", exported, folder / "published"});
  CHECK(same.exit_code == 0);

  // Without a plugin the names stay; the role that loads them knows them.
  const auto kept = run_limbeck(
      {"import", folder / "state", "--role", "student", "--output-dir", folder / "kept"});
  CHECK(kept.exit_code == 0);
  CHECK(tells(kept, "no config.json"));
  CHECK(run_limbeck({"inspect", "--diff", exported, folder / "kept"}).exit_code == 1);
  for (const char* name : {"published", "kept"}) {
    // A warm-up starts at zero: nothing moves.
    auto again = data;
    again.back() = folder / (std::string("from-") + name);
    again.insert(again.begin(),
                 {"train", "tests/e2e/tiny_sft.toml", "--set", "training.loop.max_train_steps=1",
                  "--set", "training.optimizer.lr_scheduler=\"constant_with_warmup\"", "--set",
                  "training.optimizer.lr_warmup_steps=1", "--set",
                  "models.student.init_from=\"" + folder / name + "\""});
    const auto outcome = run_limbeck(again);
    CHECK(outcome.exit_code == 0);
    const auto diff =
        run_limbeck({"inspect", "--diff", exported, again[again.size() - 1] + "/export/student"});
    INFO(diff.output);
    CHECK(diff.exit_code == 0);
  }

  const auto wrong = run_limbeck(
      {"import", folder / "state", "--role", "teacher", "--output-dir", folder / "none"});
  CHECK(wrong.exit_code == 4);
  CHECK(tells(wrong, "no tensor's name begins with 'roles.teacher.'"));
  CHECK(run_limbeck({"import", folder / "state", "--role", "student"}).exit_code == 64);
  CHECK(run_limbeck(
            {"export", folder / "state", "--role", "student", "--output-dir", folder / "none"})
            .exit_code == 4);
  CHECK(run_limbeck({"export", folder / "state", "--role", "x", "--output-dir", folder / "none",
                     "--dtype", "fp8"})
            .exit_code == 64);
  CHECK_FALSE(fs::exists(folder / "none"));
}
