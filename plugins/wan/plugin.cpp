// SPDX-License-Identifier: Apache-2.0
#include <limbeck/plugin.hpp>

#include "transformer.hpp"

LB_PLUGIN(lb::network<wan::Transformer>(
    "wan",
    "The Wan 2.1 text-to-video transformer.\n\n"
    "Reads and writes the Diffusers layout of `WanTransformer3DModel`; its options are the keys of "
    "that layout's config.json."))
