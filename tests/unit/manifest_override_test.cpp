// SPDX-License-Identifier: Apache-2.0
// --set key=value.
#include <string>

#include <doctest/doctest.h>

#include "tests/unit/manifest_files.hpp"

using limbeck::test::kPlain;
using limbeck::test::ManifestFolder;

TEST_CASE("--set: replaces a value, makes tables, reads TOML and bare words") {
  ManifestFolder folder;
  const auto manifest = folder.load(
      kPlain, {"training.loop.max_train_steps=5", "run.name=short", "run.output_dir=/tmp/a b",
               "models.student.config.width = 32", "method.speed=exact", "method.verbose=true",
               "training.optimizer.learning_rate=5e-5", "method.steps=[7, 8]"});

  CHECK(manifest.loop.max_train_steps == 5);
  CHECK(manifest.run.name == "short");
  CHECK(manifest.run.output_dir == "/tmp/a b");
  CHECK(manifest.role("student")->model.config->integer("width") == 32);
  CHECK(manifest.method.config->text("speed") == "exact");
  CHECK(manifest.method.config->boolean("verbose"));
  CHECK(manifest.role("student")->optimizer.learning_rate == 5e-5);
  CHECK(manifest.method.config->integer("steps.1") == 8);
}

TEST_CASE("--set: reaches into lists as messages write them, and with dots") {
  ManifestFolder folder;
  const std::string text = kPlain + "[[prepare]]\ntype = \"drop\"\n[[prepare]]\ntype = \"drop\"\n";
  const auto manifest = folder.load(text, {"prepare[0].rate=0.5", "prepare.1.rate=0.25"});

  CHECK(manifest.prepare[0].config->number("rate") == 0.5);
  CHECK(manifest.prepare[1].config->number("rate") == 0.25);
}

TEST_CASE("--set: the last of several wins, and a value may have an equals sign") {
  ManifestFolder folder;
  const auto manifest = folder.load(kPlain, {"run.name=a", "run.name=b=c"});

  CHECK(manifest.run.name == "b=c");
}

TEST_CASE("--set: its faults are reported as its own, word by word") {
  ManifestFolder folder;
  CHECK(folder.fault(kPlain, {"run.seed"}) ==
        "--set: expected key=value, got \"run.seed\"\n"
        "  hint: such as --set training.loop.max_train_steps=100\n1 error");
  CHECK(folder.fault(kPlain, {"run..seed=1"}) ==
        "--set: expected key=value, got \"run..seed=1\"\n"
        "  hint: such as --set training.loop.max_train_steps=100\n1 error");
  CHECK(folder.fault(kPlain, {"method.steps=[1, "}) ==
        "--set: method.steps: not TOML: array: encountered end-of-file\n1 error");
  CHECK(folder.fault(kPlain, {"training.loop.max_train_steps.x=1"}) ==
        "--set: cannot set training.loop.max_train_steps.x: training.loop.max_train_steps is the "
        "integer 100, not a table\n1 error");
  CHECK(folder.fault(kPlain, {"plugins[3]=x"}) ==
        "--set: cannot set plugins[3]: plugins is a list of 1 items\n1 error");
}

TEST_CASE("--set: a value is checked like one in the file") {
  ManifestFolder folder;
  CHECK(folder.fault(kPlain, {"run.sed=1", "training.optimizer.learning_rate=fast"}) ==
        "--set: unknown key \"run.sed\"\n  hint: did you mean \"seed\"?\n"
        "--set: training.optimizer.learning_rate: expected a number in (0, inf), got the text "
        "\"fast\"\n  hint: write it without quotes\n2 errors");
}

TEST_CASE("--set: what comes after a value is not smuggled in as another key") {
  ManifestFolder folder;
  const auto manifest = folder.load(kPlain, {"run.name=1\nseed=2"});

  CHECK(manifest.run.name == "1\nseed=2");
  CHECK(manifest.run.seed == 0);
}
