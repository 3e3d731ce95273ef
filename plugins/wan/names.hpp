// SPDX-License-Identifier: Apache-2.0
// Names of parameters in published weights.
#pragma once

#include <string>
#include <string_view>

namespace wan {

// The name that diffusers gives a parameter, for any spelling that weights of this family are
// published or trained in: diffusers' own; the original's ("blocks.0.self_attn.q.weight"); the
// training names of FastVideo ("blocks.0.to_q.weight"); each also behind "model.",
// "diffusion_model.", "transformer.", "module." and what FSDP and torch.compile put between. A name
// of another kind comes back without such prefixes.
std::string canonical_name(std::string_view foreign);

}  // namespace wan
