"""Training vocabularies: symbols, sizes, languages, errors."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from xlnet.errors import InputError
from xlnet.text import XLNetTokenizer, sentencepiece_training, symbols, train_tokenizer

ENGLISH = [f"The {a} {b} the {c} in {n},{n}00 (or \"so\")." for n in range(1, 9) for a in ("red", "old", "big") for b in
           ("cat saw", "dog bit", "man met") for c in ("house", "river", "café")]  # fmt: skip
GERMAN = ["Zwei Männer hören Musik auf der Straße.", "Drei Frauen gehen über die Brücke.", "Ein Hund läuft."] * 9
CHINESE = ["我们在北京，吃了很多好吃的东西。", "他们在上海发布了新的模型。", "北京的东西很好吃。"] * 9


def test_symbols_and_quiet(capfd: pytest.CaptureFixture[str]) -> None:
    said: list[str] = []
    tokenizer = train_tokenizer(ENGLISH, 48, progress=said.append)
    assert tokenizer.vocab_size == 48
    assert tokenizer.pieces[:17] == (*symbols.SYMBOLS, *symbols.USER_DEFINED_SYMBOLS[1:])
    assert said and "48 pieces" in said[-1]
    assert capfd.readouterr() == ("", "")
    text = 'The old cat saw "the" river in 8,800 (or so).'
    assert tokenizer.decode(tokenizer.encode(text).input_ids) == text


def test_the_default_size_is_what_the_text_supports() -> None:
    tokenizer = train_tokenizer(ENGLISH)
    assert 40 < tokenizer.vocab_size < 2_000
    with pytest.raises(InputError, match=r"vocab_size=5000 is too large: this text supports at most (\d+)") as caught:
        train_tokenizer(ENGLISH, 5000)
    most = int(str(caught.value).split("at most ")[1].split()[0])
    assert train_tokenizer(ENGLISH, most).vocab_size == most
    with pytest.raises(InputError, match="at most"):
        train_tokenizer(ENGLISH, most + 1)
    with pytest.raises(InputError, match=r"vocab_size=20 is too small.*already need (\d+)"):
        train_tokenizer(ENGLISH, 20)


@pytest.mark.parametrize("lines", [["hello"], ["a"], ["The cat sat.", "It ran (fast)."], ["x" * 5_000], ["中"]])
def test_tiny_texts(lines: list[str]) -> None:
    tokenizer = train_tokenizer(lines)
    for line in lines:
        assert tokenizer.decode(tokenizer.encode(line).input_ids) == line


def test_other_languages() -> None:
    german = train_tokenizer(GERMAN, keep_accents=True)
    assert german.decode(german.encode(GERMAN[0]).input_ids) == GERMAN[0]
    plain = train_tokenizer(GERMAN, lower=True)
    assert plain.decode(plain.encode(GERMAN[0]).input_ids) == "zwei manner horen musik auf der straße."
    assert not any(c in piece for piece in plain.pieces for c in "äöüÄÖÜMZ")
    chinese = train_tokenizer(CHINESE, keep_accents=True)
    assert 0 not in chinese.encode(CHINESE[0]).input_ids
    assert chinese.starts_word[17:].mean() > 0.8


def test_files(tmp_path: Path) -> None:
    text = "\ufeff" + "\r\n".join(ENGLISH)
    (tmp_path / "a.txt").write_bytes(text.encode("utf-8"))
    with gzip.open(tmp_path / "b.txt.gz", "wb") as file:
        file.write(text.encode("utf-8"))
    one = train_tokenizer(ENGLISH, 48)
    assert train_tokenizer(tmp_path / "a.txt", 48).fingerprint == one.fingerprint
    assert train_tokenizer(str(tmp_path / "b.txt.gz"), 48).fingerprint == one.fingerprint
    (tmp_path / "c.txt").write_bytes(b"fine\nfi\xffne\n")
    with pytest.raises(InputError, match=r"c\.txt line 2 is not UTF-8: byte 0xFF at byte 7"):
        train_tokenizer([tmp_path / "c.txt"])
    (tmp_path / "d.gz").write_bytes(b"no gzip")
    for path, what in ((tmp_path / "no.txt", "does not exist"), (tmp_path, "is a folder"), (tmp_path / "d.gz", "read")):
        with pytest.raises(InputError, match=what):
            train_tokenizer([path])


def test_bad_input() -> None:
    for empty in ([], [""], [" \n", "\t"]):
        with pytest.raises(InputError, match="no text"):
            train_tokenizer(empty)
    for wrong in ([None], [b"x"], ["a\ud800"]):
        with pytest.raises(InputError, match="text 0"):
            train_tokenizer(wrong)
    for options in ({"vocab_size": 0}, {"character_coverage": 0.0}, {"max_characters": 5}):
        with pytest.raises(InputError, match=next(iter(options))):
            train_tokenizer(["a"], **options)


def test_reserved_characters_do_not_lose_their_line() -> None:
    tokenizer = train_tokenizer(["zebra\u2581quux\u2585\tand\x00others"] * 3)
    assert {"z", "q"} <= set("".join(tokenizer.pieces[17:]))


def test_samples_are_even_and_bounded() -> None:
    units = [f"{i:06d}" for i in range(20_000)]
    kept = sentencepiece_training._sample(units, 12_000, seed=1)
    assert 6_000 / 1.3 < sum(map(len, kept)) <= 12_000
    places = [int(unit) for unit in kept]
    assert places == sorted(places) and 8_500 < sum(places) / len(places) < 11_500
    assert kept == sentencepiece_training._sample(units, 12_000, seed=1)
    assert sentencepiece_training._sample(units[:10], 12_000, seed=1) == units[:10]


def test_training_twice_gives_the_same() -> None:
    assert train_tokenizer(ENGLISH, 48).fingerprint == train_tokenizer(iter(ENGLISH), 48).fingerprint


def test_a_trained_tokenizer_travels(tmp_path: Path) -> None:
    tokenizer = train_tokenizer(GERMAN, lower=True, keep_accents=True)
    tokenizer.save_pretrained(tmp_path)
    again = XLNetTokenizer.from_pretrained(tmp_path)
    assert again.fingerprint == tokenizer.fingerprint and again.normalization == tokenizer.normalization
