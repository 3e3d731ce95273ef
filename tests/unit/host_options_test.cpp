// SPDX-License-Identifier: Apache-2.0
#include "host/options.hpp"

#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "core/base/error.hpp"

using limbeck::host::Command;
using limbeck::host::DryRun;
using limbeck::host::Options;

namespace {

Options parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "limbeck");
  return limbeck::host::parse_options(static_cast<int>(arguments.size()), arguments.data());
}

std::string message_of(const std::vector<const char*>& arguments) {
  try {
    parse(arguments);
  } catch (const limbeck::Error& error) {
    CHECK(error.fault() == limbeck::Fault::kUsage);
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("options: train takes its manifest by position or by name, and overrides") {
  const auto options = parse({"train", "x.toml", "--set", "run.seed=1", "--set=a=b",
                              "--override-output-dir", "out", "--log-level", "debug"});

  CHECK(options.command == Command::kTrain);
  CHECK(options.config == "x.toml");
  CHECK(options.manifest.set == std::vector<std::string>{"run.seed=1", "a=b"});
  CHECK(options.manifest.output_dir == "out");
  CHECK(options.log_level == limbeck::log::Level::kDebug);
  CHECK(options.dry_run == DryRun::kNone);
  CHECK(parse({"train", "--config", "y.toml", "--dry-run"}).config == "y.toml");
}

TEST_CASE("options: a dry run has a stage, and does not take the manifest for one") {
  CHECK(parse({"train", "x.toml", "--dry-run"}).dry_run == DryRun::kPlan);
  CHECK(parse({"train", "x.toml", "--dry-run=parse"}).dry_run == DryRun::kParse);
  CHECK(parse({"train", "x.toml", "--dry-run=load"}).dry_run == DryRun::kLoad);
  CHECK(parse({"check", "x.toml", "--dry-run=step"}).dry_run == DryRun::kStep);
  CHECK(parse({"check", "x.toml"}).dry_run == DryRun::kPlan);
  CHECK(parse({"train", "--dry-run", "x.toml"}).config == "x.toml");
  CHECK(parse({"check", "x.toml", "--print-config"}).prints_config);
  CHECK(message_of({"train", "x.toml", "--dry-run=plant"}) ==
        "unknown stage 'plant' of --dry-run\n  hint: stages: parse, plan, load, step");

  // Files are looked for unless the manifest alone is asked about.
  CHECK(parse({"train", "x.toml"}).manifest.needs_files);
  CHECK(parse({"check", "x.toml"}).manifest.needs_files);
  CHECK_FALSE(parse({"check", "x.toml", "--dry-run=parse"}).manifest.needs_files);
}

TEST_CASE("options: a checkpoint to go on from is a setting that comes last") {
  const auto set = parse({"train", "x.toml", "--resume-from-checkpoint", "out/a \"b\"", "--set",
                          "training.checkpoint.resume_from_checkpoint=latest"})
                       .manifest.set;
  REQUIRE(set.size() == 2);
  CHECK(set[1] == "training.checkpoint.resume_from_checkpoint=\"out/a \\\"b\\\"\"");
}

TEST_CASE("options: what users know and this version does not have is told, not swallowed") {
  CHECK(message_of({"launch", "x.toml"}) == "`limbeck launch` is not available in this version");
}

TEST_CASE("options: steps to profile") {
  CHECK(parse({"train", "x.toml"}).profile.last < 1);
  const auto usual = parse({"train", "--profile", "x.toml"});
  CHECK(usual.config == "x.toml");
  CHECK(usual.profile.first == 2);
  CHECK(usual.profile.last == 11);
  CHECK(parse({"train", "x.toml", "--profile=7"}).profile.first == 7);
  CHECK(parse({"train", "x.toml", "--profile=7"}).profile.last == 7);
  CHECK(parse({"train", "x.toml", "--profile=10-200"}).profile.last == 200);
  for (const char* bad : {"--profile=0", "--profile=5-4", "--profile=x", "--profile=3-",
                          "--profile=-3", "--profile=1-2-3", "--profile=1.5"}) {
    CHECK(message_of({"train", "x.toml", bad})
              .starts_with("--profile: expected steps as FIRST-LAST, such as 2-11, got '"));
  }
}

TEST_CASE("options: sample takes prompts, and needs one") {
  const auto options = parse({"sample", "x.toml", "--prompt", "a digit 3", "--prompt", "-7",
                              "--weights", "w", "--output", "o"});

  CHECK(options.prompts == std::vector<std::string>{"a digit 3", "-7"});
  CHECK(options.weights == "w");
  CHECK(options.output == "o");
  CHECK(message_of({"sample", "x.toml"}).starts_with("no prompt was given"));
}

TEST_CASE("options: plugin list takes any number of names") {
  CHECK(parse({"plugin", "list"}).command == Command::kPluginList);
  CHECK(parse({"plugin", "list", "a", "b"}).plugins == std::vector<std::string>{"a", "b"});
  CHECK(message_of({"plugin", "lst"}) ==
        "unknown command 'plugin lst'\n  hint: did you mean 'plugin list'?");
}

TEST_CASE("options: what is misspelt is told with the nearest there is") {
  CHECK(message_of({"trian"}) == "unknown command 'trian'\n  hint: did you mean 'train'?");
  CHECK(message_of({"teach"}).starts_with("unknown command 'teach'\n  hint: commands: train, "));
  CHECK(message_of({"train", "x.toml", "--dryrun"}) ==
        "unknown option '--dryrun'\n  hint: did you mean '--dry-run'?");
  CHECK(message_of({"train", "x.toml", "--se", "a=b"}) ==
        "unknown option '--se'\n  hint: did you mean '--set'?");
}

TEST_CASE("options: what is missing or too much is told") {
  CHECK(message_of({"train"}) ==
        "no manifest was given, expected the path of a TOML file\n"
        "  hint: usage: limbeck train CONFIG [options]");
  CHECK(message_of({"train", "a.toml", "b.toml"}).starts_with("more than one manifest"));
  CHECK(message_of({"train", "a.toml", "--log-level", "loud"}) ==
        "unknown log level 'loud'\n  hint: levels: trace, debug, info, warn, error");
  CHECK_FALSE(message_of({"train", "a.toml", "--set"}).empty());
}

TEST_CASE("options: help is text, for every command") {
  CHECK(parse({}).text.find("train CONFIG") != std::string::npos);
  CHECK(parse({"--help"}).command == Command::kText);
  CHECK(parse({"train", "--help"}).text.find("--override-output-dir") != std::string::npos);
  CHECK(parse({"plugin", "--help"}).text.find("plugin list") != std::string::npos);
  CHECK(parse({"--version"}).text.starts_with("limbeck 0."));
}
