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

void dispatch(const Options& options) {
  log::setup(options.log_level);
  switch (options.command) {
    case Command::kText:
      std::cout << options.text;
      break;
    case Command::kTrain:
      return train(options);
    case Command::kCheck:
      return check(options);
    case Command::kSchema:
      return schema(options);
    case Command::kSample:
      return sample(options);
    case Command::kInspect:
      return inspect(options);
    case Command::kPluginList:
      return plugin_list(options);
    case Command::kPluginInfo:
      return plugin_info(options);
    case Command::kPluginCheck:
      return plugin_check(options);
    case Command::kPluginNew:
      return plugin_new(options);
  }
}

int run_main(int argc, const char* const* argv) {
  try {
    dispatch(parse_options(argc, argv));
    return 0;
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
