"""``prepare`` as a whole: the same bytes however it is run, and the text that went in."""

from __future__ import annotations

import dataclasses
import io
import itertools
import pickle
import sys

import numpy as np
import pytest
from corpus_helpers import SMALL, WORDS, contents, expected_documents, prose, read_back
from word_tokenizer import WordTokenizer

from xlnet.errors import ConfigurationError, InputError
from xlnet.pretraining.corpus import workers
from xlnet.pretraining.corpus.manifest import CorpusManifest
from xlnet.pretraining.corpus.prepare import PrepareProgress, prepare
from xlnet.pretraining.corpus.token_corpus import TokenCorpus


def test_corpus_is_the_text_without_duplicates(text, tmp_path):
    manifest = prepare(text, WORDS, tmp_path / "out", SMALL)
    train, valid = read_back(tmp_path / "out", "train"), read_back(tmp_path / "out", "valid")
    expected = expected_documents(text.read_text())
    assert sorted(train + valid) == sorted(expected)
    assert train == [document for document in expected if document in train]
    share = sum(map(len, valid)) / sum(map(len, expected))
    assert 0.07 < share < 0.12
    lines = [line for line in text.read_text().split("\n") if line]
    assert manifest.counts["units"] == len(lines)
    assert manifest.counts["duplicates"] == len(lines) - len(set(lines)) > 0
    assert manifest.counts["documents"] == len(expected)
    assert manifest.counts["tokens"] == sum(map(len, expected))
    assert manifest.counts["sentences"] == sum(line.count(".") for line in set(lines))
    assert manifest.counts["input_bytes"] == text.stat().st_size
    assert any("drawn at random" in note for note in manifest.notes)
    assert len(manifest.splits["train"].shards) > 1
    assert CorpusManifest.load(tmp_path / "out") == manifest
    assert sorted(contents(tmp_path / "out"))[-1] == "valid.documents.bin"


def test_nothing_held_out_was_seen_in_training(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text(prose() + prose(seed=1) + prose())
    prepare(text, WORDS, tmp_path / "out", dataclasses.replace(SMALL, split_sentences="never"))
    sides = []
    for split in ("train", "valid"):
        corpus = TokenCorpus.open(tmp_path / "out", split)
        parts = np.split(corpus.tokens[:], np.flatnonzero(corpus.sentence_ends(0, len(corpus)))[:-1] + 1)
        sides.append({tuple(i for i in part.tolist() if i != WORDS.eod_id) for part in parts})
    assert sides[1] and not sides[0] & sides[1]


def test_settings_do_what_they_say(text, tmp_path):
    plain = dataclasses.replace(SMALL, valid_fraction=0.0, use_eod=False, deduplicate=False, split_sentences="never")
    manifest = prepare(text, WORDS, tmp_path / "plain", plain)
    corpus = TokenCorpus.open(tmp_path / "plain")
    words = text.read_text().split()
    assert corpus.tokens[:].tolist() == [WORDS.word_id(word) for word in words]
    lines = [line for line in text.read_text().split("\n") if line]
    assert int(corpus.sentence_ends(0, len(corpus)).sum()) == len(lines) == manifest.counts["sentences"]
    assert manifest.counts["duplicates"] == 0
    prepare(text, WORDS, tmp_path / "eop", dataclasses.replace(plain, use_eop=True))
    with_eop = TokenCorpus.open(tmp_path / "eop")
    assert int((with_eop.tokens[:] == WORDS.eop_id).sum()) == len(lines)
    big = WordTokenizer(vocab_size=100_000)
    prepare(text, big, tmp_path / "big", plain)
    assert TokenCorpus.open(tmp_path / "big").manifest.dtype == "uint32"
    assert TokenCorpus.open(tmp_path / "big").tokens[:].max() > 65535


def test_result_does_not_depend_on_workers(text, tmp_path, monkeypatch):
    alone = prepare(text, WORDS, tmp_path / "one", SMALL)
    monkeypatch.setattr(workers, "_PIECES_BEFORE_HELPERS", 1)
    together = prepare(text, WORDS, tmp_path / "three", dataclasses.replace(SMALL, workers=3))
    assert alone == together
    assert contents(tmp_path / "one") == contents(tmp_path / "three")


def test_sources_may_be_cut_anywhere(text, tmp_path):
    """Two files of whole documents give what one file gives."""
    documents = text.read_text().split("\n\n")
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "1.txt").write_bytes("\r\n\r\n".join(documents[:9]).replace("\n", "\r\n").encode("utf-8-sig"))
    (tmp_path / "parts" / "2.txt").write_text("\n\n".join(documents[9:]))
    prepare(text, WORDS, tmp_path / "one", SMALL)
    prepare(tmp_path / "parts", WORDS, tmp_path / "two", SMALL)
    one, two = contents(tmp_path / "one"), contents(tmp_path / "two")
    assert one.pop("manifest.json") != two.pop("manifest.json")
    assert one == two


def test_standard_input_works_and_says_what_it_cannot(text, tmp_path, monkeypatch):
    def give() -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.read_bytes())))

    give()
    seen: list[PrepareProgress] = []
    manifest = prepare("-", WORDS, tmp_path / "piped", SMALL, seen.append)
    assert any("can be read only once" in note for note in manifest.notes)
    assert seen[0].total_bytes is None and seen[-1].done_bytes == text.stat().st_size
    prepare(text, WORDS, tmp_path / "file", SMALL)
    piped, plain = contents(tmp_path / "piped"), contents(tmp_path / "file")
    del piped["manifest.json"], plain["manifest.json"]
    assert piped == plain
    give()
    with pytest.raises(ConfigurationError, match="came from a stream"):
        prepare("-", WORDS, tmp_path / "piped", SMALL)


def test_progress_is_told(text, tmp_path):
    seen: list[PrepareProgress] = []
    manifest = prepare(text, WORDS, tmp_path / "out", SMALL, seen.append)
    assert [p.stage for p in seen] == ["encode"] * (len(seen) - 1) + ["write"]
    assert seen[-1].done_bytes == seen[-1].total_bytes == text.stat().st_size
    assert seen[-1].tokens == manifest.counts["tokens"]
    assert seen[-1].duplicates == manifest.counts["duplicates"]
    assert all(a.tokens <= b.tokens for a, b in itertools.pairwise(seen))


def test_automatic_format_is_noted(text, tmp_path):
    manifest = prepare(text, WORDS, tmp_path / "out", dataclasses.replace(SMALL, format="auto"))
    assert manifest.settings["format"] == "paragraphs"
    assert any(note.startswith("format paragraphs: chosen because") for note in manifest.notes)


def test_tiny_corpora(tmp_path):
    path = tmp_path / "tiny.txt"
    path.write_text("Only one sentence without end")
    manifest = prepare(path, WORDS, tmp_path / "one", SMALL)
    assert list(manifest.splits) == ["train"] and manifest.counts["tokens"] == 6
    path.write_text(" \n\u00a0\n")
    with pytest.raises(InputError, match=r"There is no text in .*tiny\.txt"):
        prepare(path, WORDS, tmp_path / "none", SMALL)
    with pytest.raises(InputError, match="no corpus"):
        TokenCorpus.open(tmp_path / "none")
    path.write_text("word " * 300_000)
    manifest = prepare(
        path, WORDS, tmp_path / "long", dataclasses.replace(SMALL, format="documents", shard_tokens=1 << 20)
    )
    assert manifest.counts["tokens"] == 300_001


def test_open_corpus_pickles_by_name(text, tmp_path):
    prepare(text, WORDS, tmp_path / "out", SMALL)
    corpus = TokenCorpus.open(tmp_path / "out", "valid")
    packed = pickle.dumps(corpus)
    assert len(packed) < 500
    again = pickle.loads(packed)
    assert again.split == "valid" and again.tokens[:].tolist() == corpus.tokens[:].tolist()
