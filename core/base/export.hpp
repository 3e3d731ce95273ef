// SPDX-License-Identifier: Apache-2.0
// Which symbols leave liblimbeck_base.so and liblimbeck.so. Plugins see neither: they talk to
// the host through limbeck/abi.h only.
#pragma once

#define LIMBECK_API __attribute__((visibility("default")))
