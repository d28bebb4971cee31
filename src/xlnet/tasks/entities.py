"""Entities in tags of the B-I-O kind, and their F1, as the CoNLL-2000/2003 scorer ``conlleval`` counts them."""

from __future__ import annotations

from collections.abc import Sequence


def has_entities(tags: Sequence[str]) -> bool:
    """Whether these tags mark spans: ``O``, and all others start with ``B-`` or ``I-``."""
    return any(tag.startswith(("B-", "I-")) for tag in tags) and all(
        tag == "O" or tag.startswith(("B-", "I-")) for tag in tags
    )


def entities(tags: Sequence[str]) -> set[tuple[int, int, str]]:
    """(first word, word after the last, kind) of each entity.

    An entity begins at ``B-X``, and at ``I-X`` where no X is open (both IOB1 and IOB2 are understood).
    """
    found = set()
    start, kind = 0, ""
    for place, tag in enumerate([*tags, "O"]):
        prefix, _, name = tag.partition("-")
        if kind and (prefix != "I" or name != kind):
            found.add((start, place, kind))
            kind = ""
        if prefix in ("B", "I") and not kind:
            start, kind = place, name
    return found


def entity_f1(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> dict[str, float]:
    """``precision``, ``recall`` and ``f1`` of whole entities over all sentences; 0 where there are none."""
    right = wanted = given = 0
    for gold_tags, predicted_tags in zip(gold, predicted, strict=True):
        true, found = entities(gold_tags), entities(predicted_tags)
        right += len(true & found)
        wanted += len(true)
        given += len(found)
    precision = right / given if given else 0.0
    recall = right / wanted if wanted else 0.0
    f1 = 2 * precision * recall / (precision + recall) if right else 0.0
    return {"precision": precision, "recall": recall, "f1": f1}
