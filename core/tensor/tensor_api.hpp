// SPDX-License-Identifier: Apache-2.0
// The services "limbeck.tensor/1" and "limbeck.dispatch/1".
#pragma once

#include <ATen/ATen.h>

#include <limbeck/abi.h>

namespace limbeck {

// Where LB_DEVICE tensors live. Set once per process, before plugins run. [control]
void set_run_device(at::Device device);
at::Device run_device();

const lb_tensor_api& tensor_api();
const lb_dispatch_api& dispatch_api();

}  // namespace limbeck
