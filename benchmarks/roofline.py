"""How many operations the matrix products of a training step need, so that its speed can be held against the machine's.

Counted are the products of a step that computes nothing twice: a multiplication and an addition for each pair of
entries, once forward, once for the gradient of each factor that has one. Not counted: the second run through the scores
in the backward pass of the fast attention, padding, and all that is no product. So a step that spent its whole time in
square products of full speed, and computed nothing twice, would reach 100 %.
"""

from __future__ import annotations

from contenders import Shape


def pretraining_products(shape: Shape) -> float:
    """Floating-point operations of the products of :func:`contenders.pretraining_step`."""
    d, length, memory = shape.d_model, shape.length, shape.memory
    keys = length + memory
    total = 0.0
    for layer in range(shape.n_layer):
        rows = shape.targets if layer == shape.n_layer - 1 else length + shape.targets
        # Query, output and feed-forward of every row; content, position and value products of every pair.
        by_rows = shape.batch * rows * (2 * d * d + 2 * d * shape.d_inner + 3 * keys * d)
        # Keys and values; what was remembered takes no gradient. One table of distances for the whole batch.
        by_keys = 2 * d * d * shape.batch * (3 * length + 2 * memory)
        total += 2 * (3 * by_rows + by_keys + 2 * d * d * (2 * length + memory))
    return total + 2 * 3 * shape.batch * shape.targets * shape.vocab_size * d


def finetuning_products(shape: Shape, lengths: list[int]) -> float:
    """Those of :func:`contenders.finetuning_step`, padding left out."""
    d, tokens, pairs = shape.d_model, sum(lengths), sum(length * length for length in lengths)
    layer = 3 * (tokens * (4 * d * d + 2 * d * shape.d_inner) + 3 * pairs * d) + 2 * d * d * 2 * max(lengths)
    return 2.0 * (shape.n_layer * layer + 3 * len(lengths) * d * d)
