"""Which tokens are held out for validation: whole documents, or stretches where documents are few and long."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_NEAR_ENOUGH = 0.75
_STRETCH_TOKENS = 4096
_MOST_STRETCHES = 8


def choose_held_out(
    document_stops: NDArray[np.int64], total: int, fraction: float, seed: int
) -> tuple[NDArray[np.int64], str]:
    """Ranges of tokens to hold out.

    Documents are drawn at random until the fraction is reached; none may overshoot it by more than a tenth of it. Where
    that finds less than three quarters of the fraction (documents are too few or too long), evenly spaced stretches
    are taken instead: at most 8, of at least 4,096 tokens each where the fraction allows.

    Args:
        document_stops: increasing positions just after each document, the last one ``total``.
        total: number of tokens.
        fraction: share of tokens to hold out, 0 for none.
        seed: of the draw.

    Returns:
        ``[n, 2]`` int64 disjoint increasing ranges, and a sentence that says how they were chosen.
    """
    target = fraction * total
    if target < 1:
        return np.zeros((0, 2), np.int64), ""
    starts = np.concatenate([[0], document_stops[:-1]]).astype(np.int64)
    chosen = _draw_documents(document_stops - starts, target, seed)
    held = int((document_stops - starts)[chosen].sum())
    if held >= _NEAR_ENOUGH * target:
        ranges = np.stack([starts[chosen], document_stops[chosen]], axis=1)
        return ranges, f"Held out: {len(chosen)} whole documents of {len(starts)}, drawn at random."
    count = int(np.clip(target // _STRETCH_TOKENS, 1, _MOST_STRETCHES))
    ends = np.round(np.arange(1, count + 1) * (total / count)).astype(np.int64)
    ranges = np.stack([ends - round(target / count), ends], axis=1)
    stretches = "a stretch at the end" if count == 1 else f"{count} evenly spaced stretches"
    documents = "one document" if len(starts) == 1 else f"{len(starts)} documents"
    return ranges, (
        f"Held out: {stretches}, cut at sentence ends, since whole documents do not come to the share asked for "
        f"({documents})."
    )


def _draw_documents(lengths: NDArray[np.int64], target: float, seed: int) -> NDArray[np.int64]:
    if len(lengths) < 2:
        return np.zeros(0, np.int64)
    found, held = [], 0
    for document in np.random.Generator(np.random.PCG64(seed)).permutation(len(lengths)).tolist():
        length = int(lengths[document])
        if held + length <= 1.1 * target:
            found.append(document)
            held += length
        if held >= 0.95 * target:
            break
    return np.sort(np.array(found, dtype=np.int64))
