// SPDX-License-Identifier: Apache-2.0
// One function per command, each in a file of its name. Results go to standard output; errors
// are thrown.
#pragma once

#include "host/options.hpp"

namespace limbeck::host {

void train(const Options& options);
void check(const Options& options);
void sample(const Options& options);
void export_weights(const Options& options);
void import_weights(const Options& options);
// The exit code: 1 if --diff found differences.
int inspect(const Options& options);
void schema(const Options& options);
void plugin_list(const Options& options);
void plugin_info(const Options& options);
void plugin_check(const Options& options);
void plugin_new(const Options& options);

}  // namespace limbeck::host
