"""The steps between text and shards, one by one: duplicates, sentence ends, pieces, held-out ranges, shards."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from word_tokenizer import OutOfRange, WordTokenizer

from xlnet.errors import ConfigurationError, InputError
from xlnet.pretraining.corpus.deduplicate import DuplicateCounts, HashSet, drop_duplicates
from xlnet.pretraining.corpus.holdout import choose_held_out
from xlnet.pretraining.corpus.manifest import MANIFEST_NAME, CorpusManifest
from xlnet.pretraining.corpus.pieces import EncodedPiece, Piece, PieceEncoder, PieceStore, cut_pieces
from xlnet.pretraining.corpus.sentences import SentenceSplitter
from xlnet.pretraining.corpus.shards import write_splits
from xlnet.pretraining.corpus.token_corpus import TokenCorpus

WORDS = WordTokenizer()


@settings(deadline=None, max_examples=60)
@given(st.lists(st.lists(st.integers(0, 40), max_size=30), max_size=8), st.booleans())
def test_hash_set_equals_a_python_set(batches, close):
    # keys that fall into neighbouring slots, so that they collide; 0 and 1 share a key by design
    table, seen = HashSet(slots=8), set()
    for batch in batches:
        keys = [max(1, key if close else key * 8) for key in batch]
        expected = []
        for key in keys:
            expected.append(key not in seen)
            seen.add(key)
        assert table.add(np.array(keys, dtype=np.uint64)).tolist() == expected
    assert len(table) == len(seen)


def test_hash_set_moves_to_a_file_when_it_grows(tmp_path):
    keys = np.random.default_rng(0).integers(0, 2**64, 5000, dtype=np.uint64)
    table = HashSet(tmp_path, slots=8, in_memory=256)
    assert table.add(keys).all()
    assert not table.add(keys).any()
    (left,) = tmp_path.iterdir()  # smaller ones are gone
    assert left.name == f"hashes-{left.stat().st_size // 8}.tmp"


@settings(deadline=None, max_examples=60)
@given(st.lists(st.sampled_from([b"", b"a", b"b", b"c", b"d"]), max_size=40))
def test_first_occurrences_stay(units):
    counts = DuplicateCounts()
    kept = list(drop_duplicates(units, HashSet(), counts))
    text = [unit for unit in kept if unit]
    assert text == list(dict.fromkeys(unit for unit in units if unit))
    assert kept.count(b"") == units.count(b"")
    assert counts.duplicates == len([u for u in units if u]) - len(text) == counts.duplicate_bytes
    assert list(drop_duplicates(units, None, DuplicateCounts())) == units


SENTENCES = ["Mr. Smith went home.", "He was tired!", '"Why?" she asked.', "It was 3.5 miles.", "No end"]


def test_sentences_of_plain_prose():
    assert SentenceSplitter("en").split(" ".join(SENTENCES[:4])) == SENTENCES[:4]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from([*SENTENCES, '"', "«", "。你好", "word " * 3000, "x" * 9000, "\u0085", ". "]), max_size=12)
)
def test_splitting_loses_nothing_but_space(parts):
    text = " ".join(parts)
    found = SentenceSplitter("en").split(text)
    assert "".join("".join(found).split()) == "".join(text.split())
    assert all(sentence == sentence.strip() != "" for sentence in found)


def test_long_text_is_split_in_linear_time_and_past_an_open_quote():
    text = '" ' + "This is a plain sentence. " * 20_000
    found = SentenceSplitter("en").split(text)
    assert len(found) > 19_000
    assert SentenceSplitter("en").split("word " * 100_000) != []


@pytest.mark.parametrize("language", ["english", "EN", "", "e", "en-US"])
def test_language_must_be_a_code(language):
    with pytest.raises(ConfigurationError, match="must be an ISO 639 code"):
        SentenceSplitter(language)


UNITS = st.lists(st.sampled_from([b"", b"one", b"two words", b"three more words"]), max_size=25)


@settings(deadline=None, max_examples=60)
@given(UNITS, st.integers(1, 40))
def test_pieces_put_together_are_the_text(units, size):
    pieces = list(cut_pieces(units, size, lambda: 0))
    tidy = [u for i, u in enumerate(units) if u or (i and units[i - 1])]
    found = [line for piece in pieces for line in piece.text.split(b"\n")]
    assert found == tidy
    assert all(piece.text.split(b"\n")[0] for piece in pieces)
    opened = [not piece.text.endswith(b"\n") for piece in pieces]
    assert [piece.continues for piece in pieces[1:]] == opened[:-1]


@settings(deadline=None, max_examples=60)
@given(UNITS, st.integers(1, 40), st.booleans(), st.booleans())
def test_where_pieces_are_cut_does_not_show(units, size, eod, eop):
    encoder = PieceEncoder(WORDS, "uint16", None, 7 if eod else None, 8 if eop else None)

    def together(piece_bytes):
        encoded = [encoder.encode(piece) for piece in cut_pieces(units, piece_bytes, lambda: 0)]
        offsets = np.cumsum([0, *(len(e.tokens) for e in encoded)])
        return (
            [int(t) for e in encoded for t in e.tokens],
            [int(n) for e in encoded for n in e.sentence_lengths],
            [int(s + o) for e, o in zip(encoded, offsets, strict=False) for s in e.document_stops],
        )

    assert together(size) == together(1 << 20)


def test_marks_belong_to_the_sentence_before_them():
    text = b"One cat. Two big dogs.\nThree.\n\nFour birds.\n"
    encoded = PieceEncoder(WORDS, "uint16", "en", 7, 8).encode(Piece(0, text, False, 0))
    marked = "One cat. Two big dogs. <eop> Three. <eop> <eod> Four birds. <eop> <eod>"
    expected = [{"<eop>": 8, "<eod>": 7}.get(word) or WORDS.word_id(word) for word in marked.split()]
    assert encoded.tokens.tolist() == expected
    assert encoded.sentence_lengths.tolist() == [2, 4, 3, 4]
    assert encoded.document_stops.tolist() == [9, 13]


def test_units_without_tokens_vanish():
    class Nothing(WordTokenizer):
        def encode_lines(self, texts, num_threads=None):
            return [
                np.zeros(0, np.int32) if text == "odd" else ids
                for text, ids in zip(texts, super().encode_lines(texts), strict=True)
            ]

    encoded = PieceEncoder(Nothing(), "uint16", None, 7, 8).encode(Piece(0, b"odd\n\none\nodd\n\nodd\n", False, 0))
    assert encoded.tokens.tolist() == [WORDS.word_id("one"), 8, 7]
    assert encoded.document_stops.tolist() == [3]
    assert PieceEncoder(Nothing(), "uint16", None, 7, 8).encode(Piece(0, b"odd\n", True, 0)).tokens.tolist() == [7]


def test_ids_outside_the_vocabulary_are_refused():
    with pytest.raises(InputError, match="gave the id 4096, but its vocabulary has 4096"):
        PieceEncoder(OutOfRange(), "uint16", None, 7, None).encode(Piece(0, b"word", False, 0))


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_a_damaged_piece_is_never_read(tmp_path_factory, data):
    store = PieceStore(tmp_path_factory.mktemp("pieces"), "uint16")
    piece = Piece(3, b"some text\n", False, 10)
    encoded = PieceEncoder(WORDS, "uint16", None, 7, None).encode(piece)
    store.save(piece, encoded)
    again = store.load(3, piece.digest)
    assert again is not None and again.tokens.tolist() == encoded.tokens.tolist()
    assert store.load(3, Piece(3, piece.text, True, 10).digest) is None
    assert store.load(2) is None
    whole = store.path(3).read_bytes()
    if data.draw(st.booleans()):
        damaged = whole[: data.draw(st.integers(0, len(whole) - 1))]
    else:
        place = data.draw(st.integers(0, len(whole) - 1))
        damaged = whole[:place] + bytes([whole[place] ^ (1 << data.draw(st.integers(0, 7)))]) + whole[place + 1 :]
    store.path(3).write_bytes(damaged)
    found = store.load(3, piece.digest)
    assert found is None or found.tokens.tolist() == encoded.tokens.tolist()


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.integers(1, 300), min_size=1, max_size=200), st.sampled_from([0.0, 0.01, 0.1, 0.3]), st.integers(0, 3)
)
def test_held_out_share_is_near_the_fraction(lengths, fraction, seed):
    stops = np.cumsum(lengths)
    total = int(stops[-1])
    ranges, note = choose_held_out(stops, total, fraction, seed)
    held = int((ranges[:, 1] - ranges[:, 0]).sum())
    if fraction * total < 1:
        assert held == 0 and not note
        return
    assert 0.7 * fraction * total <= held <= 1.15 * fraction * total + 1
    assert (ranges[:, 0] < ranges[:, 1]).all() and (ranges[1:, 0] >= ranges[:-1, 1]).all()
    if "drawn at random" in note:
        assert set(ranges[:, 1].tolist()) <= set(stops.tolist())
        assert set(ranges[:, 0].tolist()) <= {0, *stops.tolist()}


def test_long_documents_give_stretches():
    stops = np.array([1_000_000, 2_000_000])
    ranges, note = choose_held_out(stops, 2_000_000, 0.01, 0)
    assert len(ranges) == 4 and "stretches" in note
    assert (ranges[:, 1] - ranges[:, 0] == 5000).all()
    assert ranges[-1, 1] == 2_000_000


@st.composite
def piece_lists(draw):
    """Pieces with random sentences and documents, and what they come to."""
    pieces, next_id = [], 0
    for _ in range(draw(st.integers(1, 4))):
        lengths = draw(st.lists(st.integers(1, 6), max_size=6))
        total = sum(lengths)
        stops = np.cumsum(lengths)[[i for i in range(len(lengths)) if draw(st.booleans())]] if lengths else []
        tokens = np.arange(next_id, next_id + total, dtype=np.uint16)
        pieces.append(EncodedPiece(tokens, np.array(lengths, np.uint32), np.array(stops, np.uint64)))
        next_id += total
    return pieces


@settings(max_examples=40, deadline=None)
@given(piece_lists(), st.sampled_from([8, 16, 1 << 20]), st.data())
def test_splits_hold_every_sentence_once(tmp_path_factory, pieces, shard_tokens, data):
    folder = tmp_path_factory.mktemp("shards")
    total = sum(len(piece.tokens) for piece in pieces)
    borders = sorted(data.draw(st.sets(st.integers(0, total), max_size=6)))
    ranges = np.array(borders[: len(borders) // 2 * 2], np.int64).reshape(-1, 2)
    splits = write_splits(pieces, ranges, folder, shard_tokens)
    (folder / MANIFEST_NAME).write_text(
        CorpusManifest(tokenizer_fingerprint="x", vocab_size=9999, splits=splits).to_json()
    )
    lengths = np.concatenate([piece.sentence_lengths for piece in pieces]).astype(int)
    sentence_of = np.repeat(np.arange(len(lengths)), lengths)
    last = np.cumsum(lengths) - 1
    offsets = np.cumsum([0, *(len(piece.tokens) for piece in pieces)])
    stops = {int(s + o) for piece, o in zip(pieces, offsets, strict=False) for s in piece.document_stops}
    for name in splits:
        corpus = TokenCorpus.open(folder, name, verify=True)
        inside = np.array([any(a <= p < b for a, b in ranges) for p in last], bool)
        mine = inside if name == "valid" else ~inside
        tokens = np.flatnonzero(mine[sentence_of]) if total else np.zeros(0, int)
        assert corpus.tokens[:].tolist() == tokens.tolist()
        own = sentence_of[tokens]
        ends = np.append(own[1:] != own[:-1], True)[: len(own)]
        assert corpus.sentence_ends(0, len(corpus)).tolist() == ends.tolist()
        assert len(corpus) == 0 or bool(corpus.sentence_ids(0, 1)[0])
        jumps = [i for i in range(len(own)) if ends[i] and (i + 1 == len(own) or own[i + 1] != own[i] + 1)]
        documents = sorted({i for i in range(len(own)) if int(tokens[i]) + 1 in stops} | set(jumps))
        assert corpus.document_ends(0, len(corpus)).tolist() == documents
        counts = splits[name]
        assert (counts.token_count, counts.document_count) == (len(tokens), len(documents))
        assert counts.sentence_count == int(ends.sum())
        start, stop = sorted(data.draw(st.tuples(*[st.integers(0, len(corpus))] * 2)))
        assert corpus.sentence_ids(start, stop).tolist() == corpus.sentence_ids(0, len(corpus))[start:stop].tolist()
        assert corpus.sentence_ends(start, stop).tolist() == ends[start:stop].tolist()
        assert corpus.tokens[start:stop].tolist() == tokens[start:stop].tolist()
