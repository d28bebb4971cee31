"""A made-up text, settings that cut it into many parts, and what its corpus must hold."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from word_tokenizer import WordTokenizer

from xlnet.pretraining.corpus.prepare import PrepareConfig
from xlnet.pretraining.corpus.token_corpus import TokenCorpus

WORDS = WordTokenizer()
SMALL = PrepareConfig(format="paragraphs", piece_bytes=400, shard_tokens=512, valid_fraction=0.1, workers=1)


def prose(documents: int = 30, seed: int = 0) -> str:
    """Paragraphs of random words in sentences, some of them twice."""
    draw = np.random.default_rng(seed)
    words = [f"w{i}" for i in range(200)]
    lines = []
    for _ in range(documents):
        for _ in range(int(draw.integers(1, 6))):
            sentences = [" ".join(draw.choice(words, 6)).capitalize() + "." for _ in range(int(draw.integers(1, 5)))]
            lines.append(" ".join(sentences))
        if draw.random() < 0.3:
            lines.append(lines[int(draw.integers(len(lines)))])
        lines.append("")
    return "\n".join(lines) + "\n"


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def read_back(folder: Path, split: str) -> list[list[int]]:
    """Documents of a split as lists of ids."""
    corpus = TokenCorpus.open(folder, split, verify=True)
    ends = corpus.document_ends(0, len(corpus)) + 1
    return [part.tolist() for part in np.split(corpus.tokens[:], ends[:-1])]


def expected_documents(text: str) -> list[list[int]]:
    """What the text comes to, the slow and plain way."""
    seen, documents = set(), []
    for document in text.split("\n\n"):
        ids = []
        for line in document.split("\n"):
            if line and line not in seen:
                seen.add(line)
                ids += [WORDS.word_id(word) for word in line.split()]
        if ids:
            documents.append([*ids, WORDS.eod_id])
    return documents
