// SPDX-License-Identifier: Apache-2.0
// The only file of the host's torch-free half that sees libtorch's headers: it reads their
// version macros and links nothing.
#include <limbeck/torch_tag.h>

#include "core/plugin/host_table.hpp"

namespace limbeck {

const char* host_torch_tag() { return LB_TORCH_TAG; }

}  // namespace limbeck
