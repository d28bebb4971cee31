"""TokenCorpus: slices, sentence flags and document ends equal the plain arrays they were made from."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xlnet.errors import InputError
from xlnet.pretraining.corpus.token_corpus import TokenCorpus


def corpus_of(lengths: list[int], documents: list[int]) -> TokenCorpus:
    total = sum(lengths)
    stops = np.cumsum(lengths)
    return TokenCorpus.from_arrays(np.arange(total), stops, stops[sorted({d % len(lengths) for d in documents})])


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=12),
    st.lists(st.integers(0, 50), max_size=4),
    st.integers(0, 60),
    st.integers(0, 60),
)
def test_reading_a_range_equals_slicing_the_whole(lengths, documents, first, second):
    corpus = corpus_of(lengths, documents)
    total = len(corpus)
    start, stop = sorted((first % (total + 1), second % (total + 1)))
    sentence_of = np.repeat(np.arange(len(lengths)), lengths)
    ends = np.append(sentence_of[1:] != sentence_of[:-1], True)
    assert (corpus.tokens[start:stop] == np.arange(total)[start:stop]).all()
    assert (corpus.sentence_ids(start, stop) == (sentence_of % 2 == 0)[start:stop]).all()
    assert (corpus.sentence_ends(start, stop) == ends[start:stop]).all()
    whole = corpus.document_ends(0, total)
    assert whole[-1] == total - 1
    assert (corpus.document_ends(start, stop) == whole[(whole >= start) & (whole < stop)]).all()


def test_token_index_follows_numpy():
    tokens = corpus_of([4, 3], []).tokens
    plain = np.arange(7)
    for index in (slice(None), slice(5, 1, -2), slice(-3, None), slice(4, 2), slice(1, 6, 2), slice(0, 99)):
        assert (tokens[index] == plain[index]).all()
    assert tokens[-1] == 6
    with pytest.raises(IndexError):
        tokens[7]


def test_mask_and_positions_say_the_same():
    mask = np.array([False, True, False, False, True])
    by_mask = TokenCorpus.from_arrays(np.arange(5), mask)
    by_stops = TokenCorpus.from_arrays(np.arange(5), [2])
    assert (by_mask.sentence_ids(0, 5) == by_stops.sentence_ids(0, 5)).all()
    assert by_mask.sentence_ids(0, 5).tolist() == [True, True, False, False, False]


def test_wrong_arrays_are_refused():
    with pytest.raises(InputError, match="ids from 0 to 9"):
        TokenCorpus.from_arrays([0, 9], [2], vocab_size=9)
    with pytest.raises(InputError, match="sentence_ends has 1 entries for 2 tokens"):
        TokenCorpus.from_arrays([0, 1], np.array([True]))
    with pytest.raises(InputError, match="document_ends must increase within 1 to 2"):
        TokenCorpus.from_arrays([0, 1], [2], [3])
    with pytest.raises(IndexError):
        TokenCorpus.from_arrays([0, 1], [2]).sentence_ids(1, 3)


def test_corpus_in_memory_pickles():
    corpus = corpus_of([2, 3], [0])
    again = pickle.loads(pickle.dumps(corpus))
    assert (again.tokens[:] == corpus.tokens[:]).all()
    assert (again.sentence_ids(0, 5) == corpus.sentence_ids(0, 5)).all()
