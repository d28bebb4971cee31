"""QNLI, WNLI and WSC as rankings of candidates, as the paper submitted them to GLUE: the same files, another loss."""

from __future__ import annotations

from dataclasses import fields, replace

from xlnet.tasks.datasets.benchmark import Benchmark
from xlnet.tasks.datasets.glue import GLUE
from xlnet.tasks.datasets.superglue import SUPERGLUE
from xlnet.tasks.families.classification import TextClassification
from xlnet.tasks.families.pairwise import PairwiseClassification

PLAIN = {"qnli-ranking": "qnli", "wnli-ranking": "wnli", "wsc-ranking": "wsc"}
"""The benchmark each is made from."""


def compared(name: str, found: Benchmark, positive: str, margin_weight: float = 0.0) -> Benchmark:
    """A benchmark of pairs of texts whose candidates compete.

    Args:
        name: what to call it.
        found: one of two labels.
        positive: the label of the right candidate.
        margin_weight: see :class:`PairwiseClassification`.
    """
    settings = {item.name: getattr(found.task, item.name) for item in fields(TextClassification)}
    task = PairwiseClassification(**{**settings, "name": name}, positive=positive, margin_weight=margin_weight)
    return replace(found, task=task, summary=f"{found.summary}; candidates for one text compete")


COMPARISONS: dict[str, Benchmark] = {
    "qnli-ranking": compared("qnli-ranking", GLUE["qnli"], "entailment"),
    "wnli-ranking": compared("wnli-ranking", GLUE["wnli"], "1", margin_weight=5.0),
    "wsc-ranking": compared("wsc-ranking", SUPERGLUE["wsc"], "true", margin_weight=5.0),
}
