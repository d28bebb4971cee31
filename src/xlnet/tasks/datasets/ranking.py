"""Queries with BM25 candidates, from a collection of documents, queries and judgments."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from xlnet.errors import InputError, MachineError, did_you_mean
from xlnet.tasks.datasets.collections import (
    Judgments,
    Texts,
    read_cranfield_judgments,
    read_qrels,
    read_smart_documents,
    read_smart_queries,
    read_trec_documents,
    read_trec_queries,
)
from xlnet.tasks.families.ranking import Document, RankingExample

FOLDS = 5
SPLITS = ("train", "dev", "all", "test")
_QRELS = ("qrel", "prel")
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Collection:
    """What a retrieval test collection holds.

    Attributes:
        documents: id -> text.
        queries: id -> text.
        judgments: query -> document -> grade, larger is more relevant; some or all queries may have none.
    """

    documents: Texts
    queries: Texts
    judgments: Judgments


def read_collection(folder: Path, *, judged: bool = True) -> Collection:
    """Cranfield's SMART files (``cran.all.1400``, ``cran.qry``, ``cranqrel``), or TREC's: one file with ``doc`` in its
    name, one with ``query`` or ``topic``, and one with ``qrel`` (or ``prel``).

    Args:
        folder: of the files.
        judged: whether there must be judgments; those that are there are read in any case.

    Raises:
        InputError: files that are not there, or of another form.
    """
    if (folder / "cran.all.1400").is_file():
        judgments = folder / "cranqrel"
        return Collection(
            read_smart_documents(folder / "cran.all.1400"),
            read_smart_queries(folder / "cran.qry"),
            read_cranfield_judgments(judgments) if judged or judgments.is_file() else {},
        )
    if not folder.is_dir():
        raise InputError(f"{folder} is no folder; ranking needs one with documents, queries and judgments.")
    files = sorted(path for path in folder.iterdir() if path.is_file())
    return Collection(
        read_trec_documents(_one(folder, files, ("doc",))),
        read_trec_queries(_one(folder, files, ("query", "queries", "topic"))),
        read_qrels(_one(folder, files, _QRELS)) if judged or _named(files, _QRELS) else {},
    )


def _named(files: Sequence[Path], words: Sequence[str]) -> list[Path]:
    return [path for path in files if any(word in path.name.lower() for word in words)]


def _one(folder: Path, files: Sequence[Path], words: Sequence[str]) -> Path:
    found = _named(files, words)
    if len(found) != 1:
        raise InputError(
            f"{folder} must hold one file with {' or '.join(words)} in its name, as a collection of documents, queries "
            f"and judgments does (or train.jsonl, dev.jsonl, test.jsonl); it holds "
            f"{', '.join(path.name for path in found or files) or 'nothing'}."
        )
    return found[0]


def bm25_candidates(documents: Texts, queries: Texts, count: int) -> dict[str, list[tuple[str, float]]]:
    """The best documents of each query by BM25, with their scores, best first.

    Raises:
        MachineError: the library bm25s is not installed.
    """
    try:
        import bm25s  # type: ignore[import-untyped, unused-ignore]
    except ImportError as error:
        raise MachineError("Candidates for ranking need bm25s: pip install 'xlnet[tasks]'.") from error
    names = list(documents)
    index = bm25s.BM25()
    index.index(bm25s.tokenize([documents[name] for name in names], show_progress=False), show_progress=False)
    asked = bm25s.tokenize(list(queries.values()), show_progress=False)
    places, scores = index.retrieve(asked, k=min(count, len(names)), show_progress=False)
    return {
        query: [(names[int(place)], float(score)) for place, score in zip(own, values, strict=True)]
        for query, own, values in zip(queries, places, scores, strict=True)
    }


def ranking_examples(
    collection: Collection, candidates: Mapping[str, Sequence[tuple[str, float]]]
) -> list[RankingExample]:
    """Every query with its candidates in the order of the first stage, and its judgments, None where it has none."""
    return [
        RankingExample(
            query,
            text,
            tuple(Document(name, collection.documents[name], score) for name, score in candidates[query]),
            collection.judgments.get(query),
            f"query {query}",
        )
        for query, text in collection.queries.items()
    ]


def read_ranking(folder: Path, split: str, *, candidates: int = 100, fold: int = 0) -> list[RankingExample]:
    """Queries of a collection with BM25 candidates. Of those with judgments every fifth is held out (``dev``), the rest
    is ``train``, and both together are ``all``; ``test`` is every query, to predict, and needs no judgments.

    Args:
        folder: see :func:`read_collection`.
        split: ``train``, ``dev``, ``all`` or ``test``.
        candidates: documents a query.
        fold: 0 to 4, which fifth is held out.

    Raises:
        InputError: files that are not there, another split, no query with judgments where they are needed.
    """
    if split not in SPLITS:
        raise InputError(
            f"{folder}: there is no split {split!r} of a collection; there are {', '.join(SPLITS)}."
            + did_you_mean(split, SPLITS)
        )
    collection = read_collection(folder, judged=split != "test")
    examples = ranking_examples(collection, bm25_candidates(collection.documents, collection.queries, candidates))
    if split == "test":
        return examples
    judged = [example for example in examples if example.label is not None]
    if not judged:
        raise InputError(
            f"{folder}: no query has judgments. Queries are called {_some(collection.queries)}, those of the judgments "
            f"{_some(collection.judgments)}."
        )
    if len(judged) < len(examples):
        _log.warning(
            "%s: %d of %d queries have no judgments and are left out of %s: %s.", folder,
            len(examples) - len(judged), len(examples), split, _some([e.id for e in examples if e.label is None]),
        )  # fmt: skip
    if split == "all":
        return judged
    return [e for place, e in enumerate(judged) if (place % FOLDS == fold) == (split == "dev")]


def _some(names: Iterable[str], most: int = 5) -> str:
    shown = list(names)
    return ", ".join(map(repr, shown[:most])) + (" ..." if len(shown) > most else "") if shown else "nothing"
