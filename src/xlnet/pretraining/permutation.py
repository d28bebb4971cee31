"""The factorization order of a sequence: one integer per token that stands for every attention mask (paper, 2.2).

Content row i sees j iff ``order[j] <= order[i]``; query row i sees j iff ``order[j] < order[i]``. A sequence has a
reused and a new part, and the new part lies above the whole reused part: nothing reused ever depends on what is new,
which the next sequence meets again as targets. Within a part, by ``OrderKind``:

* ``permutation`` (the paper, as released): the context shares the lowest place; targets and functional tokens take
  sampled places above it, permuted inside blocks of ``perm_size``.
* ``lattice``: functional tokens are context; targets follow from left to right (arXiv 2504.20456).
* ``left_to_right``: every token takes the place of its position; everything is predicted.
* ``masked``: functional tokens are context; all targets share one place, so each is predicted from the context alone,
  as a masked (denoising) model does. The content rows of targets do see each other. No query row of their part can
  see those rows, so nothing leaks; later parts and the memory see them as they see any past text.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from xlnet.pretraining.draws import Draws

OrderKind = Literal["permutation", "lattice", "left_to_right", "masked"]
Flags = NDArray[np.bool_]
Ids = NDArray[np.int64]


def sample_places(length: int, perm_size: int, draws: Draws) -> Ids:
    """Places 0 ... ``length`` - 1 permuted inside consecutive blocks of ``perm_size`` (the last one may be shorter).

    A ``perm_size`` of 0, or of at least ``length``, is one block.
    """
    if perm_size == 0 or perm_size >= length:
        return draws.permutation(length)
    blocks = range(0, length, perm_size)
    return np.concatenate([begin + draws.permutation(min(perm_size, length - begin)) for begin in blocks])


def order_of_part(is_target: Flags, is_functional: Flags, places: Ids, kind: OrderKind, base: int = 0) -> Ids:
    """Order of one part of L tokens.

    Args:
        is_target: bool ``[L]``.
        is_functional: bool ``[L]``, the ``<sep>`` and ``<cls>`` of the part; never targets.
        places: int64 ``[L]``, distinct places from 0 on, used by ``permutation`` only.
        kind: see the module's text.
        base: order of the part's context.

    Returns:
        int64 ``[L]``, from ``base`` to at most ``base + L``.
    """
    if kind == "left_to_right":
        return base + np.arange(len(is_target), dtype=np.int64)
    if kind == "masked":
        return base + is_target.astype(np.int64)
    if kind == "lattice":
        return base + np.where(is_target, np.cumsum(is_target), 0).astype(np.int64)
    return base + np.where(is_target | is_functional, places + 1, 0)


def draw_order(
    is_target: Flags, is_functional: Flags, reuse_len: int, perm_size: int, kind: OrderKind, draws: Draws
) -> Ids:
    """Order of a whole sequence: the reused part ``[:reuse_len]`` below the new part.

    Args:
        is_target: bool ``[L]``.
        is_functional: bool ``[L]``.
        reuse_len: length of the reused part, 0 for none.
        perm_size: block within which places are permuted, 0 for one block per part.
        kind: see the module's text.
        draws: source of random numbers.

    Returns:
        int64 ``[L]``.
    """
    parts = []
    for start, stop, base in ((0, reuse_len, 0), (reuse_len, len(is_target), reuse_len + 1 if reuse_len else 0)):
        target, functional = is_target[start:stop], is_functional[start:stop]
        places = sample_places(stop - start, perm_size, draws) if kind == "permutation" else np.zeros(0, np.int64)
        parts.append(order_of_part(target, functional, places, kind, base))
    return np.concatenate(parts)
