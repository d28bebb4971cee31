"""Tokenizer folders: saving, loading, Hugging Face's files, missing and damaged ones."""

from __future__ import annotations

import functools
import json
import re
import shutil
import warnings
from pathlib import Path

import pytest
from text_samples import records

from xlnet import checkpoints
from xlnet.errors import CheckpointError
from xlnet.text import Normalization, XLNetTokenizer

SAMPLES = [record["text"] for record in records("tokenization.json")]


@pytest.mark.parametrize("normalization", [Normalization(), Normalization(True, True, False)])
def test_save_and_load(tmp_path: Path, model_bytes: bytes, normalization: Normalization) -> None:
    tokenizer = XLNetTokenizer(model_bytes, normalization).with_tokens(["[ENT]"])
    tokenizer.save_pretrained(tmp_path / "new" / "folder")
    for path in (tmp_path / "new" / "folder", str(tmp_path / "new" / "folder" / "spiece.model")):
        again = XLNetTokenizer.from_pretrained(path)
        assert again.fingerprint == tokenizer.fingerprint and again.added_tokens == tokenizer.added_tokens
        assert all(again.tokenize(text) == tokenizer.tokenize(text) for text in SAMPLES)
    assert sorted(p.name for p in (tmp_path / "new" / "folder").iterdir()) == ["spiece.model", "tokenizer_config.json"]


def test_switches_come_from_the_files_unless_given(tmp_path: Path, model_bytes: bytes) -> None:
    (tmp_path / "spiece.model").write_bytes(model_bytes)
    assert XLNetTokenizer.from_pretrained(tmp_path).normalization == Normalization()
    (tmp_path / "config.json").write_text('{"do_lower_case": true, "keep_accents": true}')
    assert XLNetTokenizer.from_pretrained(tmp_path).normalization == Normalization(lower=True, keep_accents=True)
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false, "remove_space": false}')
    expected = Normalization(lower=False, keep_accents=True, remove_space=False)
    assert XLNetTokenizer.from_pretrained(tmp_path).normalization == expected
    assert XLNetTokenizer.from_pretrained(tmp_path, lower=True, remove_space=True).normalization == Normalization(
        True, True
    )
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": "yes"}')
    with pytest.raises(CheckpointError, match="do_lower_case='yes' must be true or false"):
        XLNetTokenizer.from_pretrained(tmp_path)


def test_added_tokens_of_hugging_face_folders(tmp_path: Path, model_bytes: bytes) -> None:
    (tmp_path / "spiece.model").write_bytes(model_bytes)
    decoder = {"5": {"content": "<pad>"}, "2001": {"content": "<b>"}, "2000": {"content": "<a>"}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": decoder}))
    (tmp_path / "added_tokens.json").write_text('{"<a>": 2000, "<c>": 2002}')
    assert XLNetTokenizer.from_pretrained(tmp_path).pieces[2000:] == ("<a>", "<b>", "<c>")
    (tmp_path / "added_tokens.json").write_text('{"<c>": 2009}')
    with pytest.raises(CheckpointError, match="without a gap, from id 2000"):
        XLNetTokenizer.from_pretrained(tmp_path)


def declare(folder: Path, model: bytes, tokens: dict[str, int], **config: object) -> Path:
    """A folder whose tokenizer_config.json adds tokens."""
    (folder / "spiece.model").write_bytes(model)
    decoder = {str(number): {"content": text} for text, number in tokens.items()}
    (folder / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": decoder, **config}))
    return folder


@pytest.mark.parametrize(
    ("tokens", "lower", "lost", "text", "ids"),
    [
        ({"Zoë": 2000, "Zoe": 2001, "[E1]": 2002}, False, "Zoë", "Zoe Zoë [E1]", [2001, 2001, 2002]),
        ({"Zoe": 2000, "Zoë": 2001, "[E1]": 2002}, False, "Zoë", "Zoe Zoë [E1]", [2000, 2000, 2002]),
        ({"Zöe": 2000, "Zoë": 2001, "[E1]": 2002}, False, "Zoë", "Zoë Zöe [E1]", [2000, 2000, 2002]),
        ({"[A]": 2000, "[B]": 2001, "[a]": 2002}, True, "[A]", "[A] [B] [a]", [2002, 2001, 2002]),
        ({"thé": 2000, "[B]": 2001}, False, "thé", "[B]", [2001]),
    ],
)
def test_declared_tokens_keep_their_ids(
    tmp_path: Path, model_bytes: bytes, tokens: dict[str, int], lower: bool, lost: str, text: str, ids: list[int]
) -> None:
    """Where normalization makes one text of two tokens, the ones behind them stay where they are, and it is said."""
    with pytest.warns(UserWarning, match=re.escape(f"'{lost}' ({tokens[lost]}) as")):
        loaded = XLNetTokenizer.from_pretrained(declare(tmp_path, model_bytes, tokens, do_lower_case=lower))
    assert loaded.vocab_size == max(tokens.values()) + 1
    for token, number in tokens.items():
        assert loaded.pieces[number] in (token, loaded.normalize(token))
    assert loaded.convert_tokens_to_ids([lost]) == [tokens[lost]] and lost not in loaded.added_tokens
    found = loaded.encode(text, special_tokens=False).input_ids
    assert [number for number in found if number >= 2000] == ids
    assert loaded.encode_lines([text])[0].tolist() == found
    loaded.save_pretrained(tmp_path / "again")
    assert XLNetTokenizer.from_pretrained(tmp_path / "again").fingerprint == loaded.fingerprint


def test_tokens_that_stay_apart_are_not_warned_of(tmp_path: Path, model_bytes: bytes) -> None:
    tokens = {"<pad>": 5, "Zoë": 2000, "Zoe": 2001, "[E1]": 2002}
    folder = declare(tmp_path, model_bytes, tokens, keep_accents=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded = XLNetTokenizer.from_pretrained(folder)
    assert loaded.convert_tokens_to_ids(tokens) == list(tokens.values())
    assert [i for i in loaded.encode("Zoë, Zoe").input_ids if i >= 2000] == [2000, 2001]


@pytest.mark.parametrize(
    ("tokens", "told"),
    [
        ({"▁the": 2000}, r"'▁the' is declared with id 2000, but the vocabulary has it with id 19"),
        ({"<pad>": 2000}, r"'<pad>' is declared with id 2000, but the vocabulary has it with id 5"),
        ({"[PAD]": 5}, r"'\[PAD\]' is declared with id 5, but the vocabulary has '<pad>' there"),
        ({"[PAD]": -1}, "ids begin at 0"),
        ({"two words": 2000}, "must hold visible characters"),
        ({"<PAD>": 2000}, "is a symbol of XLNet"),
    ],
)
def test_declared_ids_that_cannot_hold_are_told(
    tmp_path: Path, model_bytes: bytes, tokens: dict[str, int], told: str
) -> None:
    with pytest.raises(CheckpointError, match=told) as caught:
        XLNetTokenizer.from_pretrained(declare(tmp_path, model_bytes, tokens, do_lower_case="<PAD>" in tokens))
    assert str(tmp_path / "spiece.model") in str(caught.value)


def test_lists_that_disagree_are_told(tmp_path: Path, model_bytes: bytes) -> None:
    declare(tmp_path, model_bytes, {"<a>": 2000, "<b>": 2001})
    (tmp_path / "added_tokens.json").write_text('{"<a>": 2002}')
    with pytest.raises(CheckpointError, match="'<a>' has id 2000 in one list and 2002 in another"):
        XLNetTokenizer.from_pretrained(tmp_path)
    (tmp_path / "added_tokens.json").write_text('{"<c>": 2001}')
    with pytest.raises(CheckpointError, match="each with an id of its own"):
        XLNetTokenizer.from_pretrained(tmp_path)


def test_a_byte_order_mark_is_passed_over(tmp_path: Path, model_bytes: bytes) -> None:
    folder = declare(tmp_path, model_bytes, {"<a>": 2000}, do_lower_case=True)
    (folder / "tokenizer.json").write_text('{"added_tokens": [{"content": "<a>", "id": 2000}]}')
    for name in ("tokenizer_config.json", "tokenizer.json"):
        (folder / name).write_bytes(b"\xef\xbb\xbf" + (folder / name).read_bytes())
    loaded = XLNetTokenizer.from_pretrained(folder)
    assert loaded.normalization == Normalization(lower=True) and loaded.added_tokens == ("<a>",)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "spiece.model is missing"),
        ({"other.txt": ""}, r"It holds other\.txt"),
        ({"spiece.model": ""}, "is empty"),
        ({"spiece.model": "not a model"}, "no SentencePiece model"),
        ({"tokenizer.json": "{"}, "not valid JSON"),
        ({"tokenizer.json": "[]"}, "must hold a JSON object"),
        ({"tokenizer.json": "{}"}, "no unigram vocabulary"),
        ({"tokenizer.json": '{"model": {"type": "BPE", "vocab": {"a": 1}}}'}, "no unigram vocabulary"),
        ({"tokenizer.json": '{"model": {"vocab": [["<unk>", 0.0]]}}'}, "spiece.model"),
        ({"tokenizer_config.json": "{", "spiece.model": "x"}, "not valid JSON"),
        ({"added_tokens.json": '{"a": "b"}', "spiece.model": "x"}, "added tokens cannot be read"),
    ],
)
def test_missing_and_damaged_files(tmp_path: Path, files: dict[str, str], message: str) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    with pytest.raises(CheckpointError, match=message):
        XLNetTokenizer.from_pretrained(tmp_path)


def test_a_path_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="nowhere"):
        XLNetTokenizer.from_pretrained(tmp_path / "nowhere")


def test_a_weights_file_stands_for_its_folder(tmp_path: Path, tokenizer: XLNetTokenizer) -> None:
    tokenizer.save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"")
    assert XLNetTokenizer.from_pretrained(tmp_path / "model.safetensors").fingerprint == tokenizer.fingerprint


@pytest.mark.data
def test_tokenizer_json_alone_gives_equal_pieces(tmp_path: Path, shared_data: Path) -> None:
    folder = shared_data / "tokenizers" / "xlnet-base-cased"
    shutil.copyfile(folder / "tokenizer.json", tmp_path / "tokenizer.json")
    real, rebuilt = XLNetTokenizer.from_pretrained(folder), XLNetTokenizer.from_pretrained(tmp_path)
    assert rebuilt.pieces == real.pieces and rebuilt.normalization == real.normalization
    scores = [t._processor.get_score(list(range(t.vocab_size))) for t in (real, rebuilt)]
    assert scores[0] == scores[1]
    assert [rebuilt.encode(t) for t in SAMPLES] == [real.encode(t) for t in SAMPLES]
    lines = (shared_data / "race" / "dev").rglob("*.txt")
    texts = [path.read_text(encoding="utf-8") for path in sorted(lines)[:10]]
    assert [i.tolist() for i in rebuilt.encode_lines(texts)] == [i.tolist() for i in real.encode_lines(texts)]


@pytest.mark.slow
def test_transformers_reads_our_folder_and_we_read_its(tmp_path: Path, model_bytes: bytes) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer = XLNetTokenizer(model_bytes, Normalization(lower=True)).with_tokens(["[ent]"])
    tokenizer.save_pretrained(tmp_path / "ours")
    theirs = transformers.XLNetTokenizer.from_pretrained(str(tmp_path / "ours"))
    assert theirs.convert_ids_to_tokens(list(range(tokenizer.vocab_size))) == list(tokenizer.pieces)
    assert theirs.convert_tokens_to_ids("[ent]") == 2000
    assert theirs("the value of it")["input_ids"] == tokenizer.encode("The value of it").input_ids
    theirs.save_pretrained(str(tmp_path / "theirs"))
    assert not (tmp_path / "theirs" / "spiece.model").exists()
    back = XLNetTokenizer.from_pretrained(tmp_path / "theirs")
    assert back.pieces == tokenizer.pieces and back.normalization == tokenizer.normalization
    assert all(back.encode(text) == tokenizer.encode(text) for text in SAMPLES)


def test_hub_names_come_from_the_cache(
    tmp_path: Path, tokenizer: XLNetTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = "0123456789abcdef0123456789abcdef01234567"
    tokenizer.save_pretrained(tmp_path / "models--someone--tiny-xlnet" / "snapshots" / commit)
    refs = tmp_path / "models--someone--tiny-xlnet" / "refs"
    refs.mkdir()
    (refs / "main").write_text(commit)
    offline = functools.partial(checkpoints.resolve, cache_dir=tmp_path, offline=True)
    monkeypatch.setattr(checkpoints, "resolve", offline)
    assert XLNetTokenizer.from_pretrained("someone/tiny-xlnet").fingerprint == tokenizer.fingerprint
    with pytest.raises(CheckpointError, match="someone/else"):
        XLNetTokenizer.from_pretrained("someone/else")
