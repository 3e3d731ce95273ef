// SPDX-License-Identifier: Apache-2.0
// The only place that turns an error into text and an exit code.
#include <unistd.h>

#include <exception>
#include <iostream>

#include "core/base/error.hpp"
#include "host/commands.hpp"
#include "host/signals.hpp"

namespace limbeck::host {
namespace {

// Returns the exit code.
int dispatch(const Options& options) {
  log::setup(options.log_level);
  switch (options.command) {
    case Command::kText:
      std::cout << options.text;
      break;
    case Command::kTrain:
      train(options);
      break;
    case Command::kCheck:
      check(options);
      break;
    case Command::kSchema:
      schema(options);
      break;
    case Command::kSample:
      sample(options);
      break;
    case Command::kExport:
      export_weights(options);
      break;
    case Command::kImport:
      import_weights(options);
      break;
    case Command::kInspect:
      return inspect(options);
    case Command::kPluginList:
      plugin_list(options);
      break;
    case Command::kPluginInfo:
      plugin_info(options);
      break;
    case Command::kPluginCheck:
      plugin_check(options);
      break;
    case Command::kPluginNew:
      plugin_new(options);
      break;
  }
  return 0;
}

int run_main(int argc, const char* const* argv) {
  try {
    return dispatch(parse_options(argc, argv));
  } catch (const Error& error) {
    std::cerr << "limbeck: " << error.what() << '\n';
    return exit_code(error.fault());
  } catch (const std::exception& error) {
    std::cerr << "limbeck: internal error: " << error.what() << '\n';
  } catch (...) {
    std::cerr << "limbeck: internal error: an exception that is not a std::exception\n";
  }
  return exit_code(Fault::kInternal);
}

}  // namespace
}  // namespace limbeck::host

int main(int argc, char** argv) {
  limbeck::host::ignore_broken_pipes();
  const int code = limbeck::host::run_main(argc, argv);
  std::cout.flush();
  // Without destructors: libtorch, plugins and their threads depend on no order of them.
  _exit(code);
}
