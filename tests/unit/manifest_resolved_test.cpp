// SPDX-License-Identifier: Apache-2.0
// The manifest with every default filled in.
#include <filesystem>
#include <string>

#include <doctest/doctest.h>

#include "tests/unit/manifest_files.hpp"

namespace {

using limbeck::Manifest;
using limbeck::test::kPlain;
using limbeck::test::ManifestFolder;

const std::filesystem::path kGood =
    std::filesystem::path(LIMBECK_SOURCE_DIR) / "tests/fixtures/manifests/good.toml";

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("resolved manifest: resolves to itself, from another folder") {
  ManifestFolder folder;
  const std::string first = folder.load_file(kGood).resolved;
  CHECK(folder.load(first).resolved == first);

  const std::string plain = folder.load(kPlain).resolved;
  CHECK(folder.load(plain).resolved == plain);
  CHECK(plain != first);
}

TEST_CASE("resolved manifest: gives the same values") {
  ManifestFolder folder;
  const Manifest first = folder.load_file(kGood);
  const Manifest again = folder.load(first.resolved);

  CHECK(again.run.seed == first.run.seed);
  CHECK(again.run.output_dir == first.run.output_dir);
  CHECK(again.run.replay == first.run.replay);
  CHECK(again.facts == first.facts);
  REQUIRE(again.roles.size() == first.roles.size());
  for (size_t i = 0; i < first.roles.size(); ++i) {
    CHECK(again.roles[i].name == first.roles[i].name);
    CHECK(again.roles[i].init_from == first.roles[i].init_from);
    CHECK(again.roles[i].is_trained == first.roles[i].is_trained);
    CHECK(again.roles[i].dtype == first.roles[i].dtype);
    CHECK(again.roles[i].optimizer.learning_rate == first.roles[i].optimizer.learning_rate);
    CHECK(again.roles[i].ema.has_value() == first.roles[i].ema.has_value());
  }
  CHECK(again.role("teacher")->model.config->integer("width") == 24);
  CHECK(again.method.roles == first.method.roles);
  CHECK(again.losses[0].weight == 0.25);
  CHECK(again.callbacks[0].every_steps == 20);
  CHECK(again.clip.max_grad_norm == 0.5);
}

TEST_CASE("resolved manifest: a change of one value shows in it") {
  ManifestFolder folder;
  CHECK(folder.load(kPlain).resolved != folder.load(kPlain, {"run.seed=1"}).resolved);
}

TEST_CASE("resolved manifest: defaults are in it") {
  ManifestFolder folder;
  const std::string text = folder.load(kPlain).resolved;

  CHECK(has(text, "\n[models.student.config]\nwidth = 16\nnum_layers = 4\neps = 1e-06\n"));
  CHECK(has(text, "\nlr_scheduler = \"constant\"\n"));
  CHECK(has(text, "\ntype = \"pair\"\n"));
  CHECK(has(text, "\n[callbacks.grad_clip]\nmax_grad_norm = 1.0\n"));
}

TEST_CASE("resolved manifest: secrets are not in it") {
  ManifestFolder folder;
  const std::string text = folder.load(kPlain, {"method.token=hush"}).resolved;

  CHECK_FALSE(has(text, "hush"));
  CHECK(has(text, "token = \"***\""));
}

TEST_CASE("resolved manifest: texts and names of any kind survive") {
  ManifestFolder folder;
  const std::string name = "a \"b\" \\ c\n\t\x01 \xc3\xa9";
  const std::string text = kPlain + "[run]\nname = \"a \\\"b\\\" \\\\ c\\n\\t\\u0001 \xc3\xa9\"\n" +
                           "[method.weights]\n\"odd name\" = 2\n";

  const Manifest first = folder.load(text);
  const Manifest again = folder.load(first.resolved);

  CHECK(first.run.name == name);
  CHECK(again.run.name == name);
  CHECK(again.method.config->number("weights.odd name") == 2.0);
}

TEST_CASE("explained manifest: says where each value is from, and is the same manifest") {
  ManifestFolder folder;
  limbeck::write_file(folder.path() / "net/config.json", R"({"num_layers": 3})");
  const auto manifest = folder.load(
      kPlain + "[training.model]\nenable_gradient_checkpointing_type = \"full\"\n" +
          "[callbacks.ema]\ndecay = 0.5\n[models.student.ema]\nwarmup = \"ratio\"\n" +
          "[models.student.optimizer]\nweight_decay = 0.1\n[training.data]\nseed = 4\n" +
          "data_path = \"a\"\n",
      {"method.gamma=0.25", "models.teacher.init_from=net"});
  const std::string text =
      ManifestFolder::without(manifest.explained, folder.path().string() + "/");

  CHECK(has(text, "plugins = [\"good_study\"]  # x.toml:1:11\n"));
  CHECK(has(text, "seed = 4  # x.toml:21:8\n"));
  CHECK(has(text, "threads = 0  # default\n"));
  CHECK(has(text, "gamma = 0.25  # --set\n"));
  CHECK(has(text, "width = 16  # x.toml:4:16\n"));
  CHECK(has(text, "num_layers = 3  # net/config.json\n"));
  CHECK(has(text, "trainable = true  # as the method says\n"));
  CHECK(has(text, "enable_gradient_checkpointing_type = \"full\"  # x.toml:13:38\n"));
  CHECK(has(text, "learning_rate = 0.001  # x.toml:9:17\n"));
  CHECK(has(text, "weight_decay = 0.1  # x.toml:19:16\n"));
  CHECK(has(
      text,
      "decay = 0.5  # x.toml:15:9\nwarmup = \"ratio\"  # x.toml:17:10\nstart_step = 0  # default\n"));

  CHECK(folder.load(manifest.explained).resolved == manifest.resolved);
  CHECK(manifest.explained != manifest.resolved);
}

TEST_CASE("explained manifest: a path with a line break in it stays in its comment") {
  ManifestFolder folder;
  const auto path = folder.path() / "a\nb.toml";
  limbeck::write_file(path, kPlain);
  const Manifest manifest = folder.load_file(path);

  CHECK(folder.load(manifest.explained).resolved == manifest.resolved);
}
