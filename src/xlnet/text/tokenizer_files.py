"""Reading and writing tokenizer folders: ``spiece.model``, ``tokenizer_config.json``, ``tokenizer.json``.

Folders of the release hold ``spiece.model`` alone; folders of Hugging Face add JSON files, or have only those.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xlnet.errors import CheckpointError
from xlnet.text import symbols
from xlnet.text.model_proto import CONTROL, NORMAL, UNKNOWN, USER_DEFINED, Piece, build_model
from xlnet.text.normalize import Normalization

MODEL_FILE = "spiece.model"
CONFIG_FILE = "tokenizer_config.json"
JSON_FILE = "tokenizer.json"
_SWITCHES = {"do_lower_case": "lower", "keep_accents": "keep_accents", "remove_space": "remove_space"}
_COMMA_PENALTY = 100.0
_WEIGHT_SUFFIXES = (".json", ".safetensors", ".bin", ".index", ".ckpt")


@dataclass(frozen=True)
class TokenizerFiles:
    """What a folder says: the bytes of the model, the switches, tokens added behind its last id, and where from."""

    model: bytes
    normalization: Normalization
    added: dict[str, int]
    source: str


def read_files(path_or_name: str | Path) -> TokenizerFiles:
    """Read a folder, a ``spiece.model`` or the files of a hub name.

    Raises:
        CheckpointError: names what is missing or damaged.
    """
    path = Path(path_or_name)
    if not path.exists():
        from xlnet.checkpoints import resolve  # here, since it opens the hub's client and most paths are on disk

        path = resolve(path_or_name, weights=False)
    if path.suffix in _WEIGHT_SUFFIXES or not path.exists():
        path = path.parent if not path.is_dir() else path
    folder, model_file = (path, path / MODEL_FILE) if path.is_dir() else (path.parent, path)
    config = {**_read_json(folder / "config.json"), **_read_json(folder / CONFIG_FILE)}
    added = _added_tokens(folder, config)
    if model_file.is_file():
        return TokenizerFiles(_read_bytes(model_file), _normalization(config, folder), added, str(model_file))
    json_file = folder / JSON_FILE
    if not json_file.is_file():
        found = ", ".join(sorted(entry.name for entry in folder.iterdir())[:8]) or "nothing"
        raise CheckpointError(
            f"{folder} has no tokenizer: {MODEL_FILE} is missing, and so is {JSON_FILE}. It holds {found}."
            + (f" The model of a run lies in {folder / 'model'}." if (folder / "model" / MODEL_FILE).is_file() else "")
        )
    content = _read_json(json_file)
    model = model_from_json(content, str(json_file))
    return TokenizerFiles(model, _normalization({**_json_switches(content), **config}, folder), added, str(json_file))


def write_files(folder: str | Path, model: bytes, normalization: Normalization) -> None:
    """Write ``spiece.model`` and ``tokenizer_config.json``, each at once or not at all.

    Raises:
        MachineError: the folder cannot be made or written to.
    """
    from xlnet.checkpoints.failures import writing  # here, as above: the package opens the hub's client

    folder = Path(folder)
    config = {
        "tokenizer_class": "XLNetTokenizer",
        **{key: getattr(normalization, name) for key, name in _SWITCHES.items()},
        "bos_token": symbols.BOS,
        "eos_token": symbols.EOS,
        "unk_token": symbols.UNK,
        "sep_token": symbols.SEP,
        "pad_token": symbols.PAD,
        "cls_token": symbols.CLS,
        "mask_token": symbols.MASK,
        "padding_side": "left",
    }
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        _write(folder / MODEL_FILE, model)
        _write(folder / CONFIG_FILE, (json.dumps(config, indent=2) + "\n").encode())


def model_from_json(content: dict[str, Any], source: str = JSON_FILE) -> bytes:
    """Rebuild the SentencePiece model that a ``tokenizer.json`` was converted from.

    Its vocabulary holds the pieces and scores in the order of their ids (pieces that end in digit and comma with 100
    taken off, which is undone here), its normalizer the compiled table. Kinds follow from the symbols: those of the
    release are control symbols, and no learned piece has a score of exactly 0.

    Raises:
        CheckpointError: when it holds no unigram model or no normalization table.
    """
    model = content.get("model") or {}
    vocabulary = model.get("vocab")
    if not isinstance(vocabulary, list) or not vocabulary or model.get("type", "Unigram") != "Unigram":
        raise CheckpointError(f"{source} holds no unigram vocabulary, as XLNet has one; {MODEL_FILE} is needed.")
    charsmap = next((n["precompiled_charsmap"] for n in _normalizers(content) if n.get("type") == "Precompiled"), None)
    if not charsmap:
        raise CheckpointError(
            f"{source} does not hold SentencePiece's normalization table (a 'Precompiled' normalizer), so equal pieces "
            f"cannot be promised from it. Put the {MODEL_FILE} of the model into the same folder."
        )
    try:
        table = base64.b64decode(charsmap, validate=True)
        entries = [(str(text), float(score)) for text, score in vocabulary]
        return build_model([_json_piece(text, score) for text, score in entries], table)
    except (binascii.Error, ValueError, TypeError, OverflowError, struct.error) as error:
        raise CheckpointError(f"{source} is damaged ({error}); {MODEL_FILE} is needed.") from None


def _json_piece(text: str, score: float) -> Piece:
    if text == symbols.UNK:
        return Piece(text, score, UNKNOWN)
    if text in symbols.SYMBOLS and text != symbols.EOP:
        return Piece(text, score, CONTROL)
    if score == 0.0:
        return Piece(text, score, USER_DEFINED)
    if score <= -_COMMA_PENALTY and text[-1:] == "," and text[-2:-1].isdigit():
        score += _COMMA_PENALTY
    return Piece(text, score, NORMAL)


def _normalizers(content: dict[str, Any]) -> Iterator[dict[str, Any]]:
    pending = [content.get("normalizer")]
    while pending:
        entry = pending.pop(0)
        if isinstance(entry, dict):
            yield entry
            pending.extend(entry.get("normalizers") or [])


def _json_switches(content: dict[str, Any]) -> dict[str, Any]:
    kinds = {entry.get("type") for entry in _normalizers(content)}
    return {"do_lower_case": "Lowercase" in kinds, "keep_accents": "StripAccents" not in kinds}


def _normalization(config: dict[str, Any], folder: Path) -> Normalization:
    values = {}
    for key, name in _SWITCHES.items():
        value = config.get(key)
        if value is None:
            continue
        if not isinstance(value, bool):
            raise CheckpointError(f"{folder / CONFIG_FILE}: {key}={value!r} must be true or false.")
        values[name] = value
    return Normalization(**values)


def _added_tokens(folder: Path, config: dict[str, Any]) -> dict[str, int]:
    """All tokens with an id that the JSON files of a folder list; the tokenizer takes those beyond its vocabulary."""
    try:
        listed = [(str(e["content"]), int(e["id"])) for e in _read_json(folder / JSON_FILE).get("added_tokens") or []]
        for number, entry in (config.get("added_tokens_decoder") or {}).items():
            listed.append((str(entry["content"] if isinstance(entry, dict) else entry), int(number)))
        listed += [(str(text), int(number)) for text, number in _read_json(folder / "added_tokens.json").items()]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(f"{folder}: the list of added tokens cannot be read ({error!r}).") from None
    found: dict[str, int] = {}
    for text, number in listed:
        if found.setdefault(text, number) != number:
            raise CheckpointError(
                f"{folder}: the added token {text!r} has id {found[text]} in one list and {number} in another. "
                f"Make {JSON_FILE}, {CONFIG_FILE} and added_tokens.json agree, or remove those that are out of date."
            )
    return found


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))  # some editors begin a file with a byte-order mark
    except (ValueError, OSError, RecursionError) as error:
        raise CheckpointError(f"{path} is not valid JSON ({error}).") from None
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} must hold a JSON object, not {type(content).__name__}.")
    return content


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}.") from None


def _write(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
