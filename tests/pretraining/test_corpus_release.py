"""The stream of tokens and sentence flags equals what the official ``create_data`` made of the same files."""

from __future__ import annotations

import numpy as np
import pytest

from xlnet.pretraining.corpus.prepare import PrepareConfig, prepare
from xlnet.pretraining.corpus.token_corpus import TokenCorpus
from xlnet.text import Normalization, XLNetTokenizer

AS_RELEASED = PrepareConfig(format="sentences", valid_fraction=0.0, deduplicate=False, workers=1)


def tokenizer_of(golden, lower: bool = False) -> XLNetTokenizer:
    model = golden / "text" / "spiece.model"
    return XLNetTokenizer(model.read_bytes(), Normalization(lower=lower))


def test_one_file_with_document_ends(golden, tmp_path):
    recorded = np.load(golden / "corpus" / "streams.npz")
    prepare(golden / "corpus" / "doc1.txt", tokenizer_of(golden), tmp_path / "out", AS_RELEASED)
    corpus = TokenCorpus.open(tmp_path / "out", verify=True)
    ids = recorded["uni_pass1_2files_bsz2/stream_data"]
    flags = recorded["uni_pass1_2files_bsz2/stream_sent_ids"]
    # The end of a file ends a document here; the release asks for a blank line.
    assert corpus.tokens[:].tolist() == [*ids.tolist(), corpus.manifest.special_ids["eod"]]
    assert corpus.sentence_ids(0, len(corpus)).tolist() == [*flags.tolist(), bool(flags[-1])]
    assert corpus.document_ends(0, len(ids)).tolist() == np.flatnonzero(ids == 7).tolist()


def test_several_files_lower_case_without_document_ends(golden, tmp_path):
    recorded = np.load(golden / "corpus" / "streams.npz")
    ids = recorded["bi_uncased_noeod_fnpNone/stream_data"]
    flags = recorded["bi_uncased_noeod_fnpNone/stream_sent_ids"]
    tokenizer = tokenizer_of(golden, lower=True)
    streams, changes = {}, {}
    for name in ("doc0", "doc1", "doc2"):
        config = PrepareConfig(**{**AS_RELEASED.__dict__, "use_eod": False})
        prepare(golden / "corpus" / f"{name}.txt", tokenizer, tmp_path / name, config)
        corpus = TokenCorpus.open(tmp_path / name)
        streams[name] = corpus.tokens[:].tolist()
        changes[name] = corpus.sentence_ids(0, len(corpus)).tolist()
    # The release shuffles the files; each starts anew with a sentence flag of True.
    place = 0
    while place < len(ids):
        (name,) = [n for n, stream in streams.items() if ids[place : place + len(stream)].tolist() == stream]
        assert flags[place : place + len(streams[name])].tolist() == changes.pop(name)
        place += len(streams.pop(name))
    assert not streams


@pytest.mark.parametrize("piece_bytes", [1, 700])
def test_pieces_do_not_show_in_the_stream(golden, tmp_path, piece_bytes):
    tokenizer = tokenizer_of(golden)
    config = PrepareConfig(**{**AS_RELEASED.__dict__, "piece_bytes": piece_bytes})
    prepare(golden / "corpus" / "doc0.txt", tokenizer, tmp_path / "many", config)
    prepare(golden / "corpus" / "doc0.txt", tokenizer, tmp_path / "one", AS_RELEASED)
    many, one = TokenCorpus.open(tmp_path / "many"), TokenCorpus.open(tmp_path / "one")
    assert many.tokens[:].tolist() == one.tokens[:].tolist()
    assert many.sentence_ids(0, len(many)).tolist() == one.sentence_ids(0, len(one)).tolist()
