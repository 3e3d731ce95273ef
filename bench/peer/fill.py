# SPDX-License-Identifier: Apache-2.0
"""Numbers without a generator: the same in every language and every version of every library.

    u(j, k) in [-1, 1): a hash of the element's row-major index j and the tensor's key k
    parameters: k is the place of the name in the ASCII-sorted list of all names, plus that of
                the role
    data:       1.7 u(j, k) with k = 1 000 000 + 100 * group + purpose, j over the whole batch;
                the group is the number of the step, from 0; of DMD2 that of the round, two a step
"""

import numpy as np

from .sizes import Size

LATENTS, TEXT, NOISE, TIMESTEP = range(4)  # purposes
ROLLOUT = 10  # ROLLOUT + i: noise number i of a rollout
ROLES = {"student": 0, "teacher": 10_000, "critic": 20_000}  # first keys of their parameters
_NEGATIVE_TEXT_KEY = 900_000
_DATA_KEY = 1_000_000
_DATA_SCALE = 1.7


def uniform(numel: int, key: int) -> np.ndarray:
    """u(0 ... numel - 1, key) as float64; the arithmetic is uint32 and wraps."""
    h = np.arange(numel, dtype=np.uint32) * np.uint32(2654435761)
    h += np.uint32((key + 1) * 2246822519 & 0xFFFFFFFF)
    h ^= h >> 16
    h *= np.uint32(0x85EBCA6B)
    h ^= h >> 13
    h *= np.uint32(0xC2B2AE35)
    h ^= h >> 16
    return h / 2.0**31 - 1.0


def parameter(name: str, shape: tuple, key: int, width: int) -> np.ndarray:
    """The value of one parameter, float32: about as large as a usual initialisation."""
    numel = int(np.prod(shape))
    u = uniform(numel, key)
    last = name.rsplit(".", 1)[-1]
    if last == "scale_shift_table":
        u /= width**0.5
    elif last == "bias":
        u *= 0.05
    elif len(shape) == 1:
        u = 1.0 + 0.1 * u
    else:
        u *= (3.0 * shape[0] / numel) ** 0.5
    return u.reshape(shape).astype(np.float32)


def _key(group: int, purpose: int) -> int:
    return _DATA_KEY + 100 * group + purpose


def data(shape: tuple, group: int, purpose: int) -> np.ndarray:
    """Latents, text or noise of one batch, float32."""
    u = uniform(int(np.prod(shape)), _key(group, purpose))
    return (_DATA_SCALE * u).reshape(shape).astype(np.float32)


def places(size: Size, group: int) -> np.ndarray:
    """U in [0, 1) of each sample: where its noise level lies on the grid."""
    return (uniform(size.batch, _key(group, TIMESTEP)) + 1.0) / 2.0


def timesteps(size: Size, group: int) -> np.ndarray:
    """1000 S((1000 - floor(1000 U)) / 1000) with S(x) = s x / (1 + (s - 1) x), float32."""
    n, s = size.common["levels"], size.common["flow_shift"]
    x = (n - np.floor(places(size, group) * n)) / n
    return (n * s * x / (1.0 + (s - 1.0) * x)).astype(np.float32)


def score_timesteps(size: Size, group: int) -> np.ndarray:
    """clamp(1000 S(floor(1000 U) / 1000), t_min, t_max), float32."""
    n, s, dmd2 = size.common["levels"], size.common["flow_shift"], size.common["dmd2"]
    x = np.floor(places(size, group) * n) / n
    t = n * s * x / (1.0 + (s - 1.0) * x)
    return np.clip(t, dmd2["t_min"], dmd2["t_max"]).astype(np.float32)


def few_steps(size: Size) -> list[float]:
    """The timesteps of the student's sampler, on the shifted schedule."""
    n, s = size.common["levels"], size.common["flow_shift"]
    return [n * s * (t / n) / (1.0 + (s - 1.0) * (t / n)) for t in size.common["dmd2"]["steps"]]


def negative_text(size: Size) -> np.ndarray:
    """The text that guidance leads away from, [tokens, width], float32."""
    shape = (size.text_len, size.text_dim)
    u = uniform(int(np.prod(shape)), _NEGATIVE_TEXT_KEY)
    return (_DATA_SCALE * u).reshape(shape).astype(np.float32)
