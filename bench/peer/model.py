# SPDX-License-Identifier: Apache-2.0
"""diffusers' Wan transformer with hash-filled parameters."""

import torch
from diffusers import WanTransformer3DModel

from . import fill
from .sizes import Size


@torch.no_grad()
def build(size: Size, role: str = "student") -> WanTransformer3DModel:
    model = WanTransformer3DModel(**size.config())
    named = dict(model.named_parameters())
    for key, name in enumerate(sorted(named)):
        value = fill.parameter(name, tuple(named[name].shape), fill.ROLES[role] + key, size.width)
        named[name].copy_(torch.from_numpy(value))
    return model.train()
