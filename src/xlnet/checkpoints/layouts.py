"""How one array is laid out here and elsewhere: five reversible changes of shape.

Letters: N heads, H head size, D model width. "Ours" is the layout of this library, "theirs" that of a foreign format.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from xlnet.errors import CheckpointError

Layout = Literal["same", "kernel", "heads_in", "heads_out", "row"]
"""
* ``same``: equal.
* ``kernel``: theirs ``[in, out]``, ours ``[out, in]``.
* ``heads_in``: theirs ``[D, N, H]``, ours ``[N * H, D]`` (a projection into heads).
* ``heads_out``: theirs ``[D, N, H]``, ours ``[D, N * H]`` (a projection out of heads).
* ``row``: theirs ``[1, 1, D]``, ours ``[D]``.
"""

Shape = tuple[int, ...]


def to_ours(theirs: Tensor, layout: Layout) -> Tensor:
    """A foreign array in our layout; a view where possible."""
    our_shape(tuple(theirs.shape), layout)
    if layout == "kernel":
        return theirs.t()
    if layout == "heads_in":
        return theirs.flatten(1).t()
    if layout == "heads_out":
        return theirs.flatten(1)
    if layout == "row":
        return theirs.reshape(-1)
    return theirs


def to_theirs(ours: Tensor, layout: Layout, n_head: int) -> Tensor:
    """The inverse of :func:`to_ours`; ``n_head`` tells the heads apart."""
    if layout == "kernel":
        return ours.t()
    if layout == "heads_in":
        return ours.t().unflatten(1, (n_head, -1))
    if layout == "heads_out":
        return ours.unflatten(1, (n_head, -1))
    if layout == "row":
        return ours.reshape(1, 1, -1)
    return ours


def our_shape(theirs: Shape, layout: Layout) -> Shape:
    """The shape :func:`to_ours` gives.

    Raises:
        CheckpointError: if the foreign array does not have as many dimensions as the layout asks for.
    """
    dimensions = {"same": len(theirs), "kernel": 2, "heads_in": 3, "heads_out": 3, "row": 3}[layout]
    if len(theirs) != dimensions:
        raise CheckpointError(f"shape {list(theirs)} has {len(theirs)} dimensions where {dimensions} are expected.")
    if layout == "kernel":
        return theirs[1], theirs[0]
    if layout == "heads_in":
        return theirs[1] * theirs[2], theirs[0]
    if layout == "heads_out":
        return theirs[0], theirs[1] * theirs[2]
    if layout == "row":
        return (theirs[0] * theirs[1] * theirs[2],)
    return theirs


def their_shape(ours: Shape, layout: Layout, n_head: int) -> Shape:
    """The shape :func:`to_theirs` gives."""
    if layout == "kernel":
        return ours[1], ours[0]
    if layout == "heads_in":
        return ours[1], n_head, ours[0] // n_head
    if layout == "heads_out":
        return ours[0], n_head, ours[1] // n_head
    if layout == "row":
        return 1, 1, ours[0]
    return ours
