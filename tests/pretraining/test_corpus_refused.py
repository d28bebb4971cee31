"""What ``prepare`` and an opened corpus refuse: other runs, other settings, damage."""

from __future__ import annotations

import dataclasses
import json

import pytest
from corpus_helpers import SMALL, WORDS, contents, prose
from word_tokenizer import OutOfRange, WithoutEod, WordTokenizer

from xlnet.errors import ConfigurationError, InputError
from xlnet.pretraining.corpus.prepare import PrepareConfig, PrepareProgress, prepare
from xlnet.pretraining.corpus.token_corpus import TokenCorpus


def test_output_folder_is_never_overwritten(text, tmp_path):
    output = tmp_path / "out"
    first = prepare(text, WORDS, output, SMALL)
    before = contents(output)
    assert prepare(text, WORDS, output, dataclasses.replace(SMALL, workers=2)) == first
    with pytest.raises(ConfigurationError, match=r"already holds another corpus: its seed is 0, yours 5"):
        prepare(text, WORDS, output, dataclasses.replace(SMALL, seed=5))
    with pytest.raises(ConfigurationError, match=r"its tokenizer is words-4096, yours words-500"):
        prepare(text, WordTokenizer(500), output, SMALL)
    other = tmp_path / "other.txt"
    other.write_text("Other text.")
    with pytest.raises(ConfigurationError, match=r"its input is .*text\.txt, yours .*other\.txt"):
        prepare(other, WORDS, output, SMALL)
    text.write_text(prose(seed=3))
    with pytest.raises(ConfigurationError, match=r"its input has changed since"):
        prepare(text, WORDS, output, SMALL)
    assert contents(output) == before
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "thesis.doc").write_text("mine")
    with pytest.raises(ConfigurationError, match=r"is not empty and holds no corpus \(but thesis\.doc\)"):
        prepare(text, WORDS, foreign, SMALL)
    with pytest.raises(ConfigurationError, match="is a file"):
        prepare(text, WORDS, other, SMALL)


def test_unfinished_run_of_another_kind_is_refused_but_a_repaired_text_goes_on(tmp_path):
    good = prose()
    text, output = tmp_path / "text.txt", tmp_path / "out"
    text.write_bytes(good.encode() + b"bad \xff byte\n")
    with pytest.raises(InputError, match=r"text\.txt, byte offset \d+ \(line \d+\): byte 0xff is not valid UTF-8"):
        prepare(text, WORDS, output, SMALL)
    text.write_bytes(good.encode() * 20 + b"bad \xff byte\n")
    config = dataclasses.replace(SMALL, deduplicate=False, shard_tokens=1 << 20, piece_bytes=9000)
    with pytest.raises(InputError, match="0xff"):
        prepare(text, WORDS, tmp_path / "none", dataclasses.replace(SMALL, format="jsonl"))
    with pytest.raises(InputError):
        _with_small_blocks(lambda: prepare(text, WORDS, output, config))
    assert list((output / ".partial" / "pieces").glob("*.piece"))
    with pytest.raises(
        ConfigurationError, match=r"unfinished preparation of another kind: its use_eop is False, yours True"
    ):
        prepare(text, WORDS, output, dataclasses.replace(config, use_eop=True))
    text.write_text(good * 20)
    prepare(text, WORDS, output, config)
    prepare(text, WORDS, tmp_path / "whole", config)
    assert contents(output) == contents(tmp_path / "whole")


def _with_small_blocks(action):
    from xlnet.pretraining.corpus import sources

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "BLOCK_BYTES", 512)
        return action()


def test_two_runs_in_one_folder_are_refused(text, tmp_path):
    def again(_: PrepareProgress) -> None:
        with pytest.raises(ConfigurationError, match="is being prepared by another process"):
            prepare(text, WORDS, tmp_path / "out", SMALL)

    prepare(text, WORDS, tmp_path / "out", SMALL, again)


def test_tokenizer_must_fit(text, tmp_path):
    with pytest.raises(ConfigurationError, match="the tokenizer has no <eod>"):
        prepare(text, WithoutEod(), tmp_path / "out", SMALL)
    assert not (tmp_path / "out").exists()
    with pytest.raises(InputError, match="the tokenizer is damaged"):
        prepare(text, OutOfRange(), tmp_path / "out", SMALL)
    prepare(text, WORDS, tmp_path / "out", SMALL)
    corpus = TokenCorpus.open(tmp_path / "out")
    corpus.check_tokenizer(WORDS)
    with pytest.raises(InputError, match=r"words-4096 \(4096 pieces\).*other-50 \(50 pieces\)"):
        corpus.check_tokenizer(WordTokenizer(50, "other"))


def test_damage_is_found_when_opening(text, tmp_path):
    output = tmp_path / "out"
    prepare(text, WORDS, output, SMALL)
    with pytest.raises(InputError, match=r"no split 'vald'; it has train, valid\. Did you mean 'valid'"):
        TokenCorpus.open(output, "vald")
    shard = output / "train-00000.tokens.bin"
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    TokenCorpus.open(output)
    with pytest.raises(InputError, match=r"train-00000\.tokens\.bin is damaged: its SHA-256"):
        TokenCorpus.open(output, verify=True)
    shard.write_bytes(whole[:-1])
    with pytest.raises(InputError, match=r"has 1023 bytes, but the manifest says 1024"):
        TokenCorpus.open(output)
    shard.unlink()
    with pytest.raises(InputError, match="is missing"):
        TokenCorpus.open(output)
    values = json.loads((output / "manifest.json").read_text())
    for damaged in (json.dumps({**values, "version": 9}), "{", "[]", json.dumps({"version": 1})):
        (output / "manifest.json").write_text(damaged)
        with pytest.raises(InputError, match="is damaged or written by another version"):
            TokenCorpus.open(output)
    with pytest.raises(InputError, match="no such folder"):
        TokenCorpus.open(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "paragrafs"}, "Did you mean 'paragraphs'"),
        ({"split_sentences": "maybe"}, "must be one of auto, always, never"),
        ({"valid_fraction": 0.9}, "must lie in 0 to 0.5"),
        ({"valid_fraction": -0.1}, "must lie in 0 to 0.5"),
        ({"valid_fraction": float("nan")}, "must lie in 0 to 0.5"),
        ({"language": "english"}, "ISO 639"),
        ({"piece_bytes": 0}, "must be positive"),
        ({"shard_tokens": 12}, "multiple of 8"),
        ({"workers": -1}, "0 takes every core"),
        ({"seed": -1}, "must not be negative"),
        ({"seed": 2**63}, r"below 2\^63"),
    ],
)
def test_settings_out_of_range_are_refused(change, message):
    with pytest.raises(ConfigurationError, match=message):
        PrepareConfig(**change)
