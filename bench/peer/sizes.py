# SPDX-License-Identifier: Apache-2.0
"""Named sizes of the compared model. Imports nothing heavy: the driver uses it too."""

import json
from dataclasses import dataclass
from pathlib import Path

_FILE = Path(__file__).with_name("sizes.json")


@dataclass(frozen=True)
class Size:
    """One entry of sizes.json, with what all of them share in `common`."""

    name: str
    common: dict
    heads: int
    head_dim: int
    layers: int
    ffn_dim: int
    text_dim: int
    text_len: int
    latents: tuple  # channels, frames, height, width
    batch: int
    steps: int  # timed steps of a run, when the command line does not say

    @property
    def width(self) -> int:
        return self.heads * self.head_dim

    @property
    def latents_shape(self) -> tuple:
        return (self.batch, *self.latents)

    @property
    def text_shape(self) -> tuple:
        return (self.batch, self.text_len, self.text_dim)

    def config(self) -> dict:
        """Arguments of diffusers.WanTransformer3DModel."""
        common = self.common
        return dict(
            patch_size=tuple(common["patch_size"]), num_attention_heads=self.heads,
            attention_head_dim=self.head_dim, in_channels=self.latents[0],
            out_channels=self.latents[0], text_dim=self.text_dim, freq_dim=common["freq_dim"],
            ffn_dim=self.ffn_dim, num_layers=self.layers, cross_attn_norm=True, eps=common["eps"],
            rope_max_seq_len=common["rope_max_seq_len"],
        )


def names() -> list[str]:
    return list(json.loads(_FILE.read_text())["sizes"])


def load(name: str) -> Size:
    spec = json.loads(_FILE.read_text())
    own = dict(spec["sizes"][name])
    own["latents"] = tuple(own["latents"])
    return Size(name=name, common=spec["common"], **own)
