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
