// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <string>

#include <doctest/doctest.h>

#include "core/base/text.hpp"
#include "tests/unit/manifest_files.hpp"

namespace {

namespace fs = std::filesystem;
using limbeck::EmaWarmup;
using limbeck::Manifest;
using limbeck::Precision;
using limbeck::Recompute;
using limbeck::test::kPlain;
using limbeck::test::ManifestFolder;

const fs::path kManifests = fs::path(LIMBECK_SOURCE_DIR) / "tests/fixtures/manifests";
const fs::path kGood = kManifests / "good.toml";

const lb_config& config_of(const Manifest& manifest, const std::string& role) {
  return *manifest.role(role)->model.config;
}

}  // namespace

TEST_CASE("manifest: [run] is read") {
  ManifestFolder folder;
  const auto run = folder.load_file(kGood).run;

  CHECK(run.name == "everything");
  CHECK(run.output_dir == "/tmp/limbeck-everything");
  CHECK(run.seed == 7);
  CHECK(run.device == "cpu");
  CHECK(run.threads == 2);
  CHECK(run.log_every_steps == 5);
  CHECK(run.replay == kManifests / "draws.safetensors");
}

TEST_CASE("manifest: what [run] leaves out has a default") {
  ManifestFolder folder;
  const auto run = folder.load(kPlain).run;

  CHECK(run.name == "x");
  CHECK(run.output_dir == fs::current_path() / "runs/x");
  CHECK(run.seed == 0);
  CHECK(run.device == "auto");
  CHECK(run.threads == 0);
  CHECK(run.log_every_steps == 10);
  CHECK(run.replay.empty());
}

TEST_CASE("manifest: roles keep the order of the file and say what the method makes of them") {
  ManifestFolder folder;
  const auto manifest = folder.load_file(kGood);

  REQUIRE(manifest.roles.size() == 5);
  const char* names[] = {"student", "teacher", "judge", "average", "vae"};
  const bool trained[] = {true, false, true, false, false};
  for (size_t i = 0; i < 5; ++i) {
    CHECK(manifest.roles[i].name == names[i]);
    CHECK(manifest.roles[i].is_trained == trained[i]);
    CHECK(manifest.roles[i].is_shadow == (i == 3));
  }
  CHECK(manifest.role("average")->shadow_of == "student");
  CHECK(manifest.role("nobody") == nullptr);
}

TEST_CASE("manifest: precision, recompute and weights of a role") {
  ManifestFolder folder;
  const auto manifest = folder.load_file(kGood);
  const auto& student = *manifest.role("student");
  const auto& teacher = *manifest.role("teacher");

  CHECK(student.dtype == Precision::kFloat32);
  CHECK(student.compute_dtype == Precision::kBFloat16);
  CHECK(student.recompute == Recompute::kFull);
  CHECK(student.init_from.empty());
  CHECK(teacher.dtype == Precision::kBFloat16);
  CHECK_FALSE(teacher.compute_dtype.has_value());
  CHECK(teacher.recompute == Recompute::kKeep);
  CHECK(teacher.init_from == kManifests / "weights");
}

TEST_CASE("manifest: the inline config of a network lies over config.json over defaults") {
  ManifestFolder folder;
  const auto manifest = folder.load_file(kGood);
  const auto& teacher = config_of(manifest, "teacher");

  CHECK(teacher.integer("num_layers") == 3);  // inline, 30 in config.json
  CHECK(teacher.integer("width") == 24);      // config.json, required
  CHECK(teacher.number("eps") == 1e-5);       // config.json, 1e-6 by default
  CHECK(teacher.integer("patch_size.1") == 1);
  CHECK(teacher.find("_class_name") == nullptr);
  CHECK(teacher.find("num_layers")->is_given);
  CHECK(config_of(manifest, "judge").integer("num_layers") == 4);
  CHECK_FALSE(config_of(manifest, "judge").find("num_layers")->is_given);
}

TEST_CASE("manifest: a network takes config.json from the folder of its own kind") {
  ManifestFolder folder;
  limbeck::write_file(folder.path() / "w/transformer/config.json", "{\"scale\": 1}");
  limbeck::write_file(folder.path() / "w/vae/config.json", "{\"scale\": 2}");

  const auto manifest = folder.load(
      kPlain +
      "[models.vae]\ntype = \"pixels\"\ninit_from = \"w\"\n[[prepare]]\ntype = \"noise\"\n");

  CHECK(config_of(manifest, "vae").number("scale") == 2.0);
}

TEST_CASE("manifest: a role's optimizer keys lie over those of all roles") {
  ManifestFolder folder;
  const auto manifest = folder.load_file(kGood);
  const auto& student = manifest.role("student")->optimizer;
  const auto& judge = manifest.role("judge")->optimizer;

  CHECK(student.learning_rate == 1e-3);
  CHECK(student.beta1 == 0.9);
  CHECK(student.beta2 == 0.999);
  CHECK(student.eps == 1e-8);
  CHECK(student.lr_scheduler == "constant");
  CHECK_FALSE(student.decays_flagged);
  CHECK(judge.beta1 == 0.0);
  CHECK(judge.beta2 == 0.99);
  CHECK(judge.weight_decay == 0.01);
  CHECK_FALSE(judge.decays_flagged);
  CHECK(judge.lr_scheduler == "cosine");
  CHECK(judge.lr_warmup_steps == 10);
  CHECK(judge.lr_num_cycles == 1);
  CHECK(judge.min_lr_ratio == 0.1);
}

TEST_CASE("manifest: an option with an alias sets the key it is another name of, and back") {
  ManifestFolder folder;
  const auto manifest = folder.load_file(kGood);
  CHECK(manifest.role("judge")->optimizer.learning_rate == 2e-4);

  const auto other = folder.load(kPlain +
                                 "[models.critic]\ntype = \"toy_features\"\nconfig.width = 16\n"
                                 "optimizer.learning_rate = 5e-4\n");
  CHECK(other.method.config->number("critic_rate") == 5e-4);
  CHECK(other.role("critic")->optimizer.learning_rate == 5e-4);

  const auto without = folder.load(kPlain);
  CHECK(without.method.config->number("critic_rate") == 1e-4);
}

TEST_CASE("manifest: keys with two homes are accepted in both") {
  ManifestFolder folder;
  const auto manifest =
      folder.load(kPlain +
                  "[training.data]\ndata_path = \"d\"\nseed = 5\n[training.checkpoint]\n"
                  "output_dir = \"/o\"\n[training.tracker]\nrun_name = \"n\"\n");

  CHECK(manifest.run.seed == 5);
  CHECK(manifest.run.output_dir == "/o");
  CHECK(manifest.run.name == "n");
}

TEST_CASE("manifest: averages from the role's table and from [callbacks.ema]") {
  ManifestFolder folder;
  const auto manifest = folder.load_file(kGood);
  const auto& student = manifest.role("student")->ema;
  const auto& judge = manifest.role("judge")->ema;

  REQUIRE(student.has_value());
  CHECK(student->decay == 0.99);
  CHECK(student->warmup == EmaWarmup::kRatio);
  CHECK(student->start_step == 10);
  REQUIRE(judge.has_value());
  CHECK(judge->decay == 0.99);
  CHECK(judge->warmup == EmaWarmup::kConstant);
  CHECK(judge->start_step == 10);
  CHECK_FALSE(manifest.role("teacher")->ema.has_value());
  CHECK_FALSE(folder.load(kPlain).role("student")->ema.has_value());
}

TEST_CASE("manifest: the method, its roles and options of every type") {
  ManifestFolder folder;
  const auto manifest = folder.load_file(kGood);
  const auto& method = manifest.method;

  CHECK(method.key == "method");
  CHECK(method.component->name() == "pair");
  CHECK(method.roles == std::map<std::string, std::string>{{"critic", "judge"}});
  CHECK(method.config->number("gamma") == 1.0);
  CHECK(method.config->integer("steps.3") == 250);
  CHECK(method.config->text("speed") == "exact");
  CHECK(method.config->boolean("verbose"));
  CHECK(method.config->number("bell.width") == 2.0);
  CHECK(method.config->integer("bell.centre") == 500);
  CHECK(method.config->number("weights.second") == 0.5);
  CHECK(method.config->text("table_file") == (kManifests / "tables/a.bin").string());
  CHECK(method.config->text("token") == "hush");
}

TEST_CASE("manifest: hooks and losses keep their order") {
  ManifestFolder folder;
  const auto manifest = folder.load_file(kGood);

  REQUIRE(manifest.prepare.size() == 2);
  CHECK(manifest.prepare[0].key == "prepare[0]");
  CHECK(manifest.prepare[0].config->number("shift") == 5.0);
  CHECK(manifest.prepare[1].component->name() == "drop");
  CHECK(manifest.prepare[1].config->number("rate") == 0.1);
  REQUIRE(manifest.losses.size() == 2);
  CHECK(manifest.losses[0].weight == 0.25);
  CHECK(manifest.losses[1].weight == 1.0);
}

TEST_CASE("manifest: data, where a component may use a name the host keeps for later") {
  ManifestFolder folder;
  const auto manifest = folder.load_file(kGood);

  REQUIRE(manifest.data.has_value());
  CHECK(manifest.data->dataset.component->name() == "clips");
  CHECK(manifest.data->batch_size == 8);
  CHECK(manifest.data->workers == 2);
  CHECK_FALSE(manifest.data->shuffle);
  CHECK(manifest.data->window == 16);
  CHECK(manifest.data->dataset.config->text("data_path") ==
        (kManifests.parent_path() / "clips").string());
  CHECK(manifest.data->dataset.config->integer("num_latent_t") == 21);
  CHECK_FALSE(folder.load(kPlain).data.has_value());
}

TEST_CASE("manifest: callbacks keep their order, with the table's name for a type") {
  ManifestFolder folder;
  const auto manifest = folder.load_file(kGood);

  REQUIRE(manifest.callbacks.size() == 2);
  CHECK(manifest.callbacks[0].name == "pictures");
  CHECK(manifest.callbacks[0].component.component->name() == "watch");
  CHECK(manifest.callbacks[0].every_steps == 20);
  CHECK(manifest.callbacks[0].component.config->text("prompts.1") == "digit \"4\"");
  CHECK(manifest.callbacks[1].component.component->name() == "beep");
  CHECK(manifest.callbacks[1].every_steps == 0);
}

TEST_CASE("manifest: clipping, loop, ranks and trackers") {
  ManifestFolder folder;
  const auto manifest = folder.load_file(kGood);

  CHECK(manifest.clip.max_grad_norm == 0.5);
  CHECK(manifest.loop.max_train_steps == 100);
  CHECK(manifest.loop.gradient_accumulation_steps == 2);
  CHECK(manifest.distributed.shard == 1);
  REQUIRE(manifest.trackers.size() == 1);
  CHECK(manifest.trackers[0].config->text("file") == "all.jsonl");

  CHECK(folder.load(kPlain).clip.max_grad_norm == 1.0);
  CHECK_FALSE(
      folder.load(kPlain, {"callbacks.grad_clip.max_grad_norm=0"}).clip.max_grad_norm.has_value());
}

TEST_CASE("manifest: numbers and truth values become facts") {
  ManifestFolder folder;
  const auto facts = folder.load_file(kGood).facts;

  CHECK(facts.at("pipeline.flow_shift") == 3.0);
  CHECK(facts.at("pipeline.num_inference_steps") == 40.0);
  CHECK(facts.at("data.train_batch_size") == 8.0);
  CHECK(facts.at("data.shuffle") == 0.0);
  CHECK(facts.at("data.num_latent_t") == 21.0);
  CHECK(facts.at("loop.max_train_steps") == 100.0);
  CHECK(facts.count("data.data_path") == 0);
  CHECK(facts.count("pipeline.guidance_scale") == 0);
  CHECK(folder.load(kPlain).facts.at("pipeline.flow_shift") == 1.0);
}

TEST_CASE("manifest: integers are taken for numbers everywhere") {
  ManifestFolder folder;
  const auto manifest = folder.load(
      kPlain, {"training.optimizer.learning_rate=1", "training.optimizer.betas=[0, 0.5]",
               "pipeline.flow_shift=3", "method.gamma=1", "method.weights={ a = 2 }"});

  CHECK(manifest.role("student")->optimizer.learning_rate == 1.0);
  CHECK(manifest.role("student")->optimizer.beta1 == 0.0);
  CHECK(manifest.method.config->number("weights.a") == 2.0);
}

TEST_CASE("manifest: every schedule is accepted with the keys it needs") {
  ManifestFolder folder;
  const std::vector<std::vector<std::string>> schedules = {
      {"constant"},
      {"constant_with_warmup", "lr_warmup_steps=100"},
      {"linear", "lr_warmup_steps=99"},
      {"cosine"},
      {"cosine_with_min_lr", "min_lr_ratio=0.05"},
      {"cosine_with_restarts", "lr_num_cycles=3"},
      {"polynomial", "lr_power=2"},
      {"piecewise_constant", "step_rules=\"1:50,0.1:80,0.01\""},
      {"piecewise_constant", "step_rules=\"0.5\""},
  };
  for (const auto& schedule : schedules) {
    CAPTURE(schedule[0]);
    std::vector<std::string> set = {"training.optimizer.lr_scheduler=" + schedule[0]};
    for (size_t i = 1; i < schedule.size(); ++i) {
      set.push_back("training.optimizer." + schedule[i]);
    }
    CHECK(folder.fault(kPlain, set).empty());
  }
}

TEST_CASE("manifest: --override-output-dir wins over --set and the file") {
  ManifestFolder folder;
  limbeck::write_file(folder.path() / "x.toml", kPlain);

  const auto manifest =
      folder.load_file(folder.path() / "x.toml", {{"run.output_dir=/set"}, "relative"});

  CHECK(manifest.run.output_dir == fs::current_path() / "relative");
}

TEST_CASE("manifest: a key that components take arrives at the one that is in use") {
  ManifestFolder folder;
  const std::string text = kPlain +
                           "[[prepare]]\ntype = \"noise\"\n[[prepare]]\ntype = \"drop\"\n" +
                           "[training.data]\ndata_path = \"a\"\n";

  CHECK(folder.load(text).prepare[1].config->number("rate") == 0.1);
  CHECK(folder.load(text, {"training.data.training_cfg_rate=0.3"})
            .prepare[1]
            .config->number("rate") == 0.3);
  // The same value under both names is no conflict.
  CHECK(folder.load(text, {"training.data.training_cfg_rate=0.3", "prepare[1].rate=0.3"})
            .prepare[1]
            .config->number("rate") == 0.3);
}

TEST_CASE("manifest: sizes of videos are facts for components") {
  ManifestFolder folder;
  const std::string text = kPlain + "[training.data]\ndata_path = \"a\"\n";
  const auto facts = folder
                         .load(text, {"training.data.num_latent_t=5", "training.data.num_frames=17",
                                      "training.data.num_height=64"})
                         .facts;

  CHECK(facts.at("data.num_latent_t") == 5.0);
  CHECK(facts.at("data.num_frames") == 17.0);
  CHECK(facts.at("data.num_height") == 64.0);
  CHECK(facts.at("data.num_width") == 0.0);
}

TEST_CASE("manifest: files that are not there are no fault when only the manifest is asked about") {
  ManifestFolder folder;
  const std::string text = kPlain + "[run]\nreplay = \"none.safetensors\"\n";
  limbeck::write_file(folder.path() / "x.toml", text);
  limbeck::ManifestOptions options;
  options.set = {"models.teacher.init_from=none"};
  CHECK_THROWS_AS(folder.load_file(folder.path() / "x.toml", options), limbeck::Error);
  options.needs_files = false;
  CHECK_NOTHROW(folder.load_file(folder.path() / "x.toml", options));
  // Of a network whose config.json is not there, an option may be missing but not be wrong.
  options.set = {"models.teacher={ type = \"toy\", init_from = \"none\" }"};
  CHECK_NOTHROW(folder.load_file(folder.path() / "x.toml", options));
  options.set = {"models.teacher={ type = \"toy\", init_from = \"none\", config.width = 1 }"};
  CHECK_THROWS_AS(folder.load_file(folder.path() / "x.toml", options), limbeck::Error);
}
