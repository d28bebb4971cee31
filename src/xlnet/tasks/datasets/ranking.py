"""Queries with BM25 candidates, from a collection of documents, queries and judgments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from xlnet.errors import InputError, MachineError
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


@dataclass(frozen=True)
class Collection:
    """What a retrieval test collection holds.

    Attributes:
        documents: id -> text.
        queries: id -> text.
        judgments: query -> document -> grade, larger is more relevant.
    """

    documents: Texts
    queries: Texts
    judgments: Judgments


def read_collection(folder: Path) -> Collection:
    """Cranfield's SMART files (``cran.all.1400``, ``cran.qry``, ``cranqrel``), or TREC's: one file each that ends in
    ``.trec`` or ``.xml`` and has ``doc`` or ``query``/``topic`` in its name, and one with ``qrel``.

    Raises:
        InputError: files that are not there, or of another form.
    """
    if (folder / "cran.all.1400").is_file():
        return Collection(
            read_smart_documents(folder / "cran.all.1400"),
            read_smart_queries(folder / "cran.qry"),
            read_cranfield_judgments(folder / "cranqrel"),
        )
    if not folder.is_dir():
        raise InputError(f"{folder} is no folder; ranking needs one with documents, queries and judgments.")
    files = sorted(path for path in folder.iterdir() if path.is_file())
    return Collection(
        read_trec_documents(_one(folder, files, ("doc",))),
        read_trec_queries(_one(folder, files, ("query", "queries", "topic"))),
        read_qrels(_one(folder, files, ("qrel",))),
    )


def _one(folder: Path, files: Sequence[Path], words: Sequence[str]) -> Path:
    found = [path for path in files if any(word in path.name.lower() for word in words)]
    if len(found) != 1:
        raise InputError(
            f"{folder} must hold one file with {' or '.join(words)} in its name; it holds "
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
    """Queries that have judgments, with their candidates in the order of the first stage."""
    return [
        RankingExample(
            query,
            text,
            tuple(Document(name, collection.documents[name], score) for name, score in candidates[query]),
            collection.judgments[query],
            f"query {query}",
        )
        for query, text in collection.queries.items()
        if query in collection.judgments
    ]


def read_ranking(folder: Path, split: str, *, candidates: int = 100, fold: int = 0) -> list[RankingExample]:
    """Queries of a collection with BM25 candidates; every fifth query is held out (``dev``), the rest is ``train``.

    Args:
        folder: see :func:`read_collection`.
        split: ``train``, ``dev``, or ``all``.
        candidates: documents a query.
        fold: 0 to 4, which fifth is held out.

    Raises:
        InputError: files that are not there, another split.
    """
    if split not in ("train", "dev", "all"):
        raise InputError(f"There is no split {split!r} of a collection; there are train, dev and all.")
    collection = read_collection(folder)
    examples = ranking_examples(collection, bm25_candidates(collection.documents, collection.queries, candidates))
    if split == "all":
        return examples
    return [e for place, e in enumerate(examples) if (place % FOLDS == fold) == (split == "dev")]
