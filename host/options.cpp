// SPDX-License-Identifier: Apache-2.0
#include "host/options.hpp"

#include <algorithm>
#include <charconv>
#include <map>
#include <sstream>

#include <boost/program_options.hpp>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/manifest/toml.hpp"
#include "core/plugin/host_table.hpp"

namespace limbeck::host {
namespace {

namespace po = boost::program_options;

constexpr const char* kOverview =
    "limbeck trains, fine-tunes and distils video diffusion models. One TOML file, the manifest,\n"
    "is the whole experiment; what differs between experiments is in plugins.\n"
    "\n"
    "Usage: limbeck COMMAND ...\n"
    "\n"
    "  train CONFIG                 run the training that a manifest describes\n"
    "  check CONFIG                 say everything that is wrong with a manifest; train nothing\n"
    "  sample CONFIG --prompt TEXT  make pictures for prompts with the trained weights\n"
    "  export CHECKPOINT --role R   weights of a role as a folder that Diffusers opens\n"
    "  import STATE --role R        weights out of the training state of FastVideo or PyTorch\n"
    "  inspect PATH...              what is in checkpoints, weights, data sets, manifests, plugins\n"
    "  plugin list [CONFIG|NAME...] what the plugins offer\n"
    "  plugin info NAME...          a plugin's components with all their options\n"
    "  plugin check PATH...         whether plugins keep the rules\n"
    "  plugin new NAME --kind KIND  a folder to begin a plugin with\n"
    "\n"
    "  --help, --version; `limbeck COMMAND --help` tells the options of a command\n";

// One command's options, and what stands without a name on its command line.
struct Form {
  std::string usage;
  po::options_description named;
  po::options_description hidden;
  po::positional_options_description positions;
};

void add_common(Form& form) {
  form.named.add_options()("help,h", "this text")(
      "log-level", po::value<std::string>()->default_value("info"),
      "least level that is shown: trace, debug, info, warn or error");
}

void add_strict(Form& form) {
  form.named.add_options()("strict", "refuse plugins that other users could replace");
}

void add_config(Form& form) {
  form.named.add_options()("config", po::value<std::string>(),
                           "the manifest, as --config or first")(
      "set", po::value<std::vector<std::string>>()->composing(),
      "key=value: overrides the manifest, may be repeated")(
      "override-output-dir", po::value<std::string>(), "folder for everything the run writes");
  add_strict(form);
  form.positions.add("config", 1);
}

void add_dry_run(Form& form, const std::string& what) {
  const std::string stages =
      what +
      ": parse (the manifest alone), plan (all but weights), load (weights and a batch), step "
      "(one step, nothing is written); plan if not said";
  form.named.add_options()("dry-run", po::value<std::string>()->implicit_value("plan"),
                           stages.c_str());
}

Form train_form() {
  Form form;
  form.usage = "limbeck train CONFIG [options]\n\nRuns the training that CONFIG describes.";
  add_config(form);
  add_dry_run(form, "check instead of training");
  form.named.add_options()(
      "profile", po::value<std::string>()->implicit_value("2-11"),
      "FIRST-LAST: record these steps, 2-11 if not said, and write profile.json "
      "(a trace for ui.perfetto.dev) and profile.txt to the output folder")(
      "resume-from-checkpoint", po::value<std::string>(),
      "go on from this checkpoint, or from the latest of the output folder: PATH, or latest");
  add_common(form);
  return form;
}

Form check_form() {
  Form form;
  form.usage =
      "limbeck check CONFIG [options]\n\nSays everything that is wrong with CONFIG, and what its "
      "run would need. Trains nothing.";
  add_config(form);
  add_dry_run(form, "how far to go");
  form.named.add_options()("print-config", "print every key with its value and where it is from");
  add_common(form);
  return form;
}

Form sample_form() {
  Form form;
  form.usage =
      "limbeck sample CONFIG --prompt TEXT [options]\n\nMakes a picture for every prompt, with the "
      "sampler that validation uses.";
  add_config(form);
  form.named.add_options()("prompt", po::value<std::vector<std::string>>()->composing(),
                           "what to show; may be repeated")(
      "weights", po::value<std::string>(), "folder of exported weights for the trained role")(
      "output", po::value<std::string>()->default_value("samples"), "folder for the pictures");
  add_common(form);
  return form;
}

// What `export` and `import` have in common.
void add_transfer(Form& form, const std::string& role, const std::string& base) {
  form.named.add_options()("role", po::value<std::string>(), role.c_str())(
      "output-dir", po::value<std::string>(), "folder to make")(
      "dtype", po::value<std::string>(), "fp32, bf16 or fp16: what the numbers are rounded to")(
      "base", po::value<std::string>(), base.c_str())(
      "overwrite", "replace what an earlier call wrote to the same folder")(
      "verify", "read everything that was written again and compare every bit");
  form.hidden.add_options()("paths", po::value<std::vector<std::string>>());
  form.positions.add("paths", -1);
}

Form export_form() {
  Form form;
  form.usage =
      "limbeck export CHECKPOINT --role NAME --output-dir DIR [options]\n\nWrites the weights of a "
      "role as Diffusers lays them out. CHECKPOINT is one, or an output folder, of which the newest "
      "complete one is taken.";
  add_transfer(form, "which role",
               "a pipeline whose other components are taken over; if not said, what the role was "
               "loaded from");
  form.named.add_options()("weights", po::value<std::string>()->default_value("live"),
                           "live, or ema for the averaged ones")(
      "merged", "of a role with adapters the whole weights with the adapters in them");
  add_common(form);
  return form;
}

Form import_form() {
  Form form;
  form.usage =
      "limbeck import STATE --role NAME --output-dir DIR [options]\n\nWrites the weights of a role "
      "as a folder that init_from reads. STATE is a distributed checkpoint of PyTorch, such as "
      "FastVideo's training state. Optimizers and the like are left aside.";
  add_transfer(form, "which role of the state: its tensors are roles.NAME.*",
               "a pipeline or component whose config.json is the network's");
  form.named.add_options()("prefix", po::value<std::string>(),
                           "what the names begin with, if it is not roles.NAME.FOLDER.")(
      "type", po::value<std::string>(),
      "the network, as a manifest has it: its plugin turns the names into the published ones");
  add_common(form);
  return form;
}

Form inspect_form() {
  Form form;
  form.usage =
      "limbeck inspect PATH... [options]\n\nSays what is in checkpoints, weights (a file, an index, "
      "a folder), data sets, manifests and plugins.";
  form.named.add_options()("verify", "recompute every digest and sum that was recorded")(
      "diff", "compare the tensors of two paths; the exit code is 1 if something is different")(
      "prefix", po::value<std::string>(),
      "with --diff: compare only what begins with this, and without it, as in "
      "roles.NAME.transformer.")(
      "filter", po::value<std::string>(),
      "of weights: tensors with this text in their names, one line each")(
      "stats",
      "least, greatest and mean value of every tensor of weights, or of all rows of a data set, "
      "and which rows cannot be read")("samples", po::value<int64_t>()->default_value(3),
                                       "of data sets: rows to show")(
      "contact-sheet", po::value<std::string>(),
      "of data sets: a PNG file for the first frames of some clips");
  form.hidden.add_options()("paths", po::value<std::vector<std::string>>());
  form.positions.add("paths", -1);
  add_common(form);
  return form;
}

Form plugin_list_form() {
  Form form;
  form.usage =
      "limbeck plugin list [CONFIG|NAME...] [options]\n\nLists the components of the plugins of a "
      "manifest, of the named ones, or of all in the plugin path.";
  form.hidden.add_options()("plugins", po::value<std::vector<std::string>>());
  form.positions.add("plugins", -1);
  add_strict(form);
  add_common(form);
  return form;
}

Form plugin_form(const char* usage) {
  Form form;
  form.usage = usage;
  form.hidden.add_options()("plugins", po::value<std::vector<std::string>>());
  form.positions.add("plugins", -1);
  return form;
}

Form plugin_info_form() {
  Form form = plugin_form(
      "limbeck plugin info NAME|PATH... [options]\n\nShows a plugin's file and versions, and for "
      "every component what it needs, and its options with type, default and range.");
  add_common(form);
  return form;
}

Form plugin_check_form() {
  Form form = plugin_form(
      "limbeck plugin check NAME|PATH... [options]\n\nChecks a plugin's file and tables, and makes, "
      "uses and destroys every component with its default options, in a process of its own.");
  add_common(form);
  return form;
}

Form plugin_new_form() {
  Form form = plugin_form(
      "limbeck plugin new NAME --kind KIND [options]\n\nWrites a folder with a plugin that builds "
      "against this limbeck.");
  form.named.add_options()("kind", po::value<std::string>(),
                           "loss, prepare, method, callback, tracker, dataset or network")(
      "lang", po::value<std::string>()->default_value("c++"), "c++ or c")(
      "output-dir", po::value<std::string>(), "folder to write; NAME if not said");
  add_common(form);
  return form;
}

Form schema_form() {
  Form form;
  form.usage =
      "limbeck schema [PLUGIN...] [options]\n\nPrints every key of a manifest, with the options of "
      "the named plugins.";
  form.named.add_options()("format", po::value<std::string>()->default_value("markdown"),
                           "markdown, or json for a JSON Schema");
  form.hidden.add_options()("plugins", po::value<std::vector<std::string>>());
  form.positions.add("plugins", -1);
  add_common(form);
  return form;
}

bool parse_format(const std::string& name) {
  if (name != "json" && name != "markdown") {
    throw Error(Fault::kUsage, cat("unknown format '", name, "'"), "formats: markdown, json");
  }
  return name == "json";
}

std::string help_of(const Form& form) {
  std::ostringstream text;
  text << "Usage: " << form.usage << "\n\n" << form.named;
  return text.str();
}

[[noreturn]] void refuse_option(const std::string& option, const Form& form) {
  std::vector<std::string> known;
  for (const auto& one : form.named.options()) {
    known.push_back("--" + one->long_name());
  }
  const std::string near = nearest(option, known);
  throw Error(Fault::kUsage, cat("unknown option '", option, "'"),
              near.empty() ? cat("options: ", join(known)) : cat("did you mean '", near, "'?"));
}

po::variables_map read(const Form& form, const std::vector<std::string>& arguments) {
  po::options_description all;
  all.add(form.named).add(form.hidden);
  // Without allow_guessing: "--se" must not quietly be "--set" of one version and not of another.
  constexpr int kStyle =
      po::command_line_style::default_style & ~po::command_line_style::allow_guessing;
  // An option whose value may be left out would take the manifest for it.
  auto given = arguments;
  std::replace(given.begin(), given.end(), std::string("--dry-run"), std::string("--dry-run=plan"));
  std::replace(given.begin(), given.end(), std::string("--profile"), std::string("--profile=2-11"));
  po::variables_map values;
  try {
    po::store(
        po::command_line_parser(given).options(all).positional(form.positions).style(kStyle).run(),
        values);
  } catch (const po::unknown_option& error) {
    refuse_option(error.get_option_name(), form);
  } catch (const po::too_many_positional_options_error&) {
    throw Error(Fault::kUsage, "more than one manifest was given, expected one",
                "quote what has spaces in it");
  } catch (const po::error& error) {
    throw Error(Fault::kUsage, error.what(), "see `limbeck COMMAND --help`");
  }
  return values;
}

template <class T>
T value_or(const po::variables_map& values, const char* name, T otherwise) {
  return values.count(name) == 0 ? otherwise : values[name].as<T>();
}

log::Level parse_level(const std::string& name) {
  static const std::map<std::string, log::Level> levels = {{"trace", log::Level::kTrace},
                                                           {"debug", log::Level::kDebug},
                                                           {"info", log::Level::kInfo},
                                                           {"warn", log::Level::kWarn},
                                                           {"error", log::Level::kError}};
  const auto found = levels.find(name);
  if (found == levels.end()) {
    throw Error(Fault::kUsage, cat("unknown log level '", name, "'"),
                "levels: trace, debug, info, warn, error");
  }
  return found->second;
}

DryRun parse_stage(const std::string& name) {
  static const std::vector<std::pair<std::string, DryRun>> stages = {{"parse", DryRun::kParse},
                                                                     {"plan", DryRun::kPlan},
                                                                     {"load", DryRun::kLoad},
                                                                     {"step", DryRun::kStep}};
  for (const auto& [known, stage] : stages) {
    if (known == name) {
      return stage;
    }
  }
  throw Error(Fault::kUsage, cat("unknown stage '", name, "' of --dry-run"),
              "stages: parse, plan, load, step");
}

void read_dry_run(const po::variables_map& values, Command command, Options& options) {
  if (values.count("dry-run") != 0) {
    options.dry_run = parse_stage(values["dry-run"].as<std::string>());
  } else if (command == Command::kCheck) {
    options.dry_run = DryRun::kPlan;
  }
  options.prints_config = values.count("print-config") != 0;
  options.manifest.needs_files = options.dry_run != DryRun::kParse;
}

// "2-11", or one step, "5".
StepRange parse_steps(const std::string& text) {
  const auto number = [&](std::string_view part) {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
    return error == std::errc() && end == part.data() + part.size() ? value : 0;
  };
  const auto dash = text.find('-');
  const std::string_view all = text;
  const int64_t first = number(all.substr(0, dash));
  const int64_t last = dash == std::string::npos ? first : number(all.substr(dash + 1));
  if (first < 1 || last < first) {
    throw Error(Fault::kUsage,
                cat("--profile: expected steps as FIRST-LAST, such as 2-11, got '", text, "'"));
  }
  return {first, last};
}

std::string word_of(const po::variables_map& values,
                    const char* option,
                    const std::vector<std::string>& words) {
  auto word = value_or<std::string>(values, option, "");
  if (std::find(words.begin(), words.end(), word) == words.end()) {
    throw Error(
        Fault::kUsage,
        word.empty() ? cat("--", option, " is missing") : cat("--", option, " is '", word, "'"),
        cat("expected one of: ", join(words)));
  }
  return word;
}

void read_plugins(const po::variables_map& values, Command command, Options& options) {
  options.plugins = value_or<std::vector<std::string>>(values, "plugins", {});
  if (options.plugins.empty()) {
    throw Error(Fault::kUsage, "no plugin was given", "see `limbeck plugin --help`");
  }
  if (command != Command::kPluginNew) {
    return;
  }
  if (options.plugins.size() > 1) {
    throw Error(Fault::kUsage, cat("expected one name, got ", join(options.plugins)));
  }
  options.kind = word_of(
      values, "kind", {"loss", "prepare", "method", "callback", "tracker", "dataset", "network"});
  options.language = word_of(values, "lang", {"c++", "c"});
  options.output = value_or<std::string>(values, "output-dir", "");
}

void read_config(const po::variables_map& values, const Form& form, Options& options) {
  options.config = value_or<std::string>(values, "config", "");
  if (options.config.empty()) {
    throw Error(Fault::kUsage, "no manifest was given, expected the path of a TOML file",
                cat("usage: ", form.usage.substr(0, form.usage.find('\n'))));
  }
  options.manifest.set = value_or<std::vector<std::string>>(values, "set", {});
  if (values.count("resume-from-checkpoint") != 0) {
    const auto checkpoint = values["resume-from-checkpoint"].as<std::string>();
    options.manifest.set.push_back("training.checkpoint.resume_from_checkpoint=" +
                                   quoted(checkpoint));
  }
  options.manifest.output_dir = value_or<std::string>(values, "override-output-dir", "");
}

void read_paths(const po::variables_map& values, Options& options) {
  for (const auto& path : value_or<std::vector<std::string>>(values, "paths", {})) {
    options.paths.emplace_back(path);
  }
  options.verifies = values.count("verify") != 0;
  options.prefix = values.count("prefix") == 0 ? "" : values["prefix"].as<std::string>();
}

void read_transfer(const po::variables_map& values, Command command, Options& options) {
  read_paths(values, options);
  const std::string what = command == Command::kExport ? "export" : "import";
  if (options.paths.size() != 1) {
    throw Error(Fault::kUsage,
                cat("expected one folder to ", what, " from, got ", options.paths.size()),
                cat("see `limbeck ", what, " --help`"));
  }
  options.role = value_or<std::string>(values, "role", "");
  options.output = value_or<std::string>(values, "output-dir", "");
  for (const auto& [option, value] :
       {std::pair("role", options.role), std::pair("output-dir", options.output.string())}) {
    if (value.empty()) {
      throw Error(Fault::kUsage, cat("--", option, " is missing"),
                  cat("see `limbeck ", what, " --help`"));
    }
  }
  options.base = value_or<std::string>(values, "base", "");
  options.overwrites = values.count("overwrite") != 0;
  options.merges = values.count("merged") != 0;
  if (values.count("dtype") != 0) {
    options.dtype = word_of(values, "dtype", {"fp32", "bf16", "fp16"});
  }
  if (command == Command::kExport) {
    options.is_averaged = word_of(values, "weights", {"live", "ema"}) == "ema";
  } else {
    options.type = value_or<std::string>(values, "type", "");
  }
}

void read_inspect(const po::variables_map& values, Options& options) {
  read_paths(values, options);
  options.is_diff = values.count("diff") != 0;
  if (options.paths.empty()) {
    throw Error(Fault::kUsage, "nothing to inspect was given",
                "give a file or a folder: a checkpoint, weights, a data set, a manifest, a plugin");
  }
  if (options.is_diff && options.paths.size() != 2) {
    throw Error(Fault::kUsage, cat("--diff compares two paths, got ", options.paths.size()));
  }
  options.filter = value_or<std::string>(values, "filter", "");
  options.has_stats = values.count("stats") != 0;
  options.samples = values["samples"].as<int64_t>();
  if (options.samples < 0) {
    throw Error(Fault::kUsage, cat("--samples is ", options.samples, ", expected at least 0"));
  }
  options.contact_sheet = value_or<std::string>(values, "contact-sheet", "");
}

Options read_command(Command command, const Form& form, const std::vector<std::string>& arguments) {
  const auto values = read(form, arguments);
  Options options;
  if (values.count("help") != 0) {
    options.text = help_of(form);
    return options;
  }
  options.command = command;
  options.log_level = parse_level(values["log-level"].as<std::string>());
  options.manifest.is_strict = values.count("strict") != 0;
  if (command == Command::kPluginInfo || command == Command::kPluginCheck ||
      command == Command::kPluginNew) {
    read_plugins(values, command, options);
    return options;
  }
  if (command == Command::kInspect) {
    read_inspect(values, options);
    return options;
  }
  if (command == Command::kExport || command == Command::kImport) {
    read_transfer(values, command, options);
    return options;
  }
  if (command == Command::kPluginList || command == Command::kSchema) {
    options.plugins = value_or<std::vector<std::string>>(values, "plugins", {});
    options.is_json =
        command == Command::kSchema && parse_format(values["format"].as<std::string>());
    return options;
  }
  read_config(values, form, options);
  read_dry_run(values, command, options);
  if (values.count("profile") != 0) {
    options.profile = parse_steps(values["profile"].as<std::string>());
  }
  if (command == Command::kSample) {
    options.prompts = value_or<std::vector<std::string>>(values, "prompt", {});
    options.weights = value_or<std::string>(values, "weights", "");
    options.output = value_or<std::string>(values, "output", "");
    if (options.prompts.empty()) {
      throw Error(Fault::kUsage, "no prompt was given", "add --prompt \"what to show\"");
    }
  }
  return options;
}

// Commands of the plan of limbeck that are not built.
constexpr const char* kCommandsToCome[] = {"preprocess", "launch", "bench"};

[[noreturn]] void refuse_command(const std::string& word, const std::vector<std::string>& known) {
  if (std::find(std::begin(kCommandsToCome), std::end(kCommandsToCome), word) !=
      std::end(kCommandsToCome)) {
    throw Error(Fault::kUsage, cat("`limbeck ", word, "` is not available in this version"));
  }
  const std::string near = nearest(word, known);
  throw Error(Fault::kUsage, cat("unknown command '", word, "'"),
              near.empty() ? cat("commands: ", join(known)) : cat("did you mean '", near, "'?"));
}

Options read_plugin_command(std::vector<std::string> arguments) {
  if (arguments.empty() || arguments.front() == "--help" || arguments.front() == "-h") {
    Options options;
    for (const auto& form :
         {plugin_list_form(), plugin_info_form(), plugin_check_form(), plugin_new_form()}) {
      options.text += help_of(form) + "\n";
    }
    return options;
  }
  const std::string word = arguments.front();
  arguments.erase(arguments.begin());
  if (word == "list") {
    return read_command(Command::kPluginList, plugin_list_form(), arguments);
  }
  if (word == "info") {
    return read_command(Command::kPluginInfo, plugin_info_form(), arguments);
  }
  if (word == "check") {
    return read_command(Command::kPluginCheck, plugin_check_form(), arguments);
  }
  if (word == "new") {
    return read_command(Command::kPluginNew, plugin_new_form(), arguments);
  }
  refuse_command("plugin " + word, {"plugin list", "plugin info", "plugin check", "plugin new"});
}

Options parse_command_line(int argc, const char* const* argv) {
  std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);
  Options options;
  options.text = kOverview;
  if (arguments.empty()) {
    return options;
  }
  const std::string word = arguments.front();
  arguments.erase(arguments.begin());
  if (word == "--help" || word == "-h" || word == "help") {
    return options;
  }
  if (word == "--version") {
    options.text = cat("limbeck ", version(), " (ABI ", LB_ABI_MAJOR, ".", LB_ABI_MINOR, ", ",
                       host_torch_tag(), ")\n");
    return options;
  }
  if (word == "train") {
    return read_command(Command::kTrain, train_form(), arguments);
  }
  if (word == "check") {
    return read_command(Command::kCheck, check_form(), arguments);
  }
  if (word == "sample") {
    return read_command(Command::kSample, sample_form(), arguments);
  }
  if (word == "export") {
    return read_command(Command::kExport, export_form(), arguments);
  }
  if (word == "import") {
    return read_command(Command::kImport, import_form(), arguments);
  }
  if (word == "schema") {
    return read_command(Command::kSchema, schema_form(), arguments);
  }
  if (word == "inspect") {
    return read_command(Command::kInspect, inspect_form(), arguments);
  }
  if (word == "plugin") {
    return read_plugin_command(arguments);
  }
  refuse_command(word, {"train", "check", "sample", "export", "import", "inspect", "plugin",
                        "schema", "--help", "--version"});
}

}  // namespace

Options parse_options(int argc, const char* const* argv) {
  Options options = parse_command_line(argc, argv);
  options.arguments.assign(argv, argv + argc);
  return options;
}

}  // namespace limbeck::host
