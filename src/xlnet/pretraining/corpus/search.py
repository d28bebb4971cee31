"""The files behind a path, a glob or a folder.

A folder is searched to any depth, without what is hidden and without what this library wrote.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from xlnet.errors import InputError, did_you_mean
from xlnet.pretraining.corpus.manifest import MANIFEST_NAME

TEXT_SUFFIXES = (".txt", ".text", ".md", ".jsonl", ".ndjson", ".parquet")
_RUN_FILE = "run.json"
_RUN_LOG = "metrics.jsonl"
_TOKENIZER_FILES = ("spiece.model", "tokenizer_config.json")
_MODEL_FILES = ("config.json", "xlnet_config.json")
_WEIGHTS = re.compile(r".*\.safetensors(\.index\.json)?|pytorch_model.*\.bin(\.index\.json)?|.*\.ckpt.*\.index")
_NAMED = 3  # folders that a note names


@dataclass
class Found:
    """What a search found: text files in order, the endings of all others, and notes on folders left out."""

    files: list[Path] = field(default_factory=list)
    other_endings: set[str] = field(default_factory=set)
    left_out: list[str] = field(default_factory=list)


def search_folder(folder: Path) -> Found:
    """Text files below ``folder``, told by their endings, in order of their paths.

    Hidden files and folders are passed over, and so are runs, corpora, tokenizers and models that lie within: a run
    whose output is inside the folder of its text would otherwise read its own log. The folder itself is what was asked
    for, whatever it is; only the log of a run that lies in it directly is no text either.
    """
    found = Found()
    for here, names in _walk(folder, lambda place, names: place != folder and bool(_kind(place, names))):
        kind = _kind(here, names)
        if here != folder and kind:
            if count := sum(len(texts_of(place, held)) for place, held in _walk(here)):
                files = "1 file" if count == 1 else f"{count} files"
                found.left_out.append(f"{here.relative_to(folder)} (a {kind}; {files} with the ending of text)")
            continue
        texts = texts_of(here, names)
        found.other_endings.update(path.suffix for path in regular(here, names) if path not in texts)
        if kind == "run" and here / _RUN_LOG in texts:
            texts.remove(here / _RUN_LOG)
            found.left_out.append(f"{_RUN_LOG} (the log of a run)")
        found.files += texts
    found.files.sort()
    return found


def expand(item: str) -> tuple[list[Path], list[str], bool]:
    """The files behind a path, a folder or a glob; notes on what was left out; and whether they were searched for.

    Raises:
        InputError: a missing file, a glob without match, a folder without text.
    """
    path = Path(item).expanduser()
    if path.is_dir():
        return (*_text_files(item, path), True)
    if path.exists():
        return [path], [], False
    if any(sign in item for sign in "*?["):
        found = [name for name in matches(path) if not name.is_dir()]
        if not found:
            raise InputError(f"{item} matches no file.")
        return found, [], True
    if path.is_symlink():
        raise InputError(f"{item} is a link that leads nowhere.")
    siblings = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
    raise InputError(f"{item}: there is no such file or folder.{did_you_mean(path.name, siblings)}")


def matches(pattern: Path) -> list[Path]:
    """What a glob stands for, in order."""
    names = sorted(glob.glob(str(pattern), recursive=True))  # noqa: PTH207 (a Path refuses an absolute pattern)
    return list(map(Path, names))


def _text_files(item: str, folder: Path) -> tuple[list[Path], list[str]]:
    """As :func:`search_folder`, with a sentence on what was left out, if anything.

    Raises:
        InputError: nothing is left; says what there was instead.
    """
    found = search_folder(folder)
    left_out = _left_out(item, found.left_out)
    if not found.files:
        others = sorted(found.other_endings)[:5]
        only = f", only {', '.join(o or 'no ending' for o in others)}. A glob takes any name." if others else "."
        raise InputError(
            f"{item} is a folder without text: no file in it ends in {', '.join(TEXT_SUFFIXES)} (or these and .gz)"
            + " ".join([only, *left_out])
        )
    return found.files, left_out


def _left_out(item: str, places: list[str]) -> list[str]:
    if not places:
        return []
    named = ", ".join(sorted(places)[:_NAMED])
    more = f" and {len(places) - _NAMED} more" if len(places) > _NAMED else ""
    return [f"{item}: left out, since this library wrote it: {named}{more}. Name its files to read them."]


def texts_of(folder: Path, names: Collection[str]) -> list[Path]:
    """Those of the names that are regular files with the ending of text."""
    endings = [name for name in names if Path(name.lower().removesuffix(".gz")).suffix in TEXT_SUFFIXES]
    return regular(folder, endings)


def regular(folder: Path, names: Collection[str]) -> list[Path]:
    """Those of the names that are regular files, or lead to one, and are not hidden."""
    return [folder / name for name in names if not name.startswith(".") and (folder / name).is_file()]


def _walk(
    folder: Path, closed: Callable[[Path, list[str]], bool] = lambda place, names: False
) -> Iterator[tuple[Path, list[str]]]:
    """Every folder with the names of its files; not into hidden ones, behind links, or below one that is closed."""
    for place, folders, names in os.walk(folder):
        below = [] if closed(Path(place), names) else [name for name in folders if not name.startswith(".")]
        folders[:] = below
        yield Path(place), names


def _kind(folder: Path, names: Collection[str]) -> str:
    """``run``, ``corpus``, ``model`` or ``tokenizer`` where this folder is one; else nothing."""
    if _RUN_FILE in names and _mentions(folder / _RUN_FILE, b'"xlnet-run-'):
        return "run"
    if MANIFEST_NAME in names and _mentions(folder / MANIFEST_NAME, b'"tokenizer_fingerprint"'):
        return "corpus"
    if any(name in names for name in _MODEL_FILES) and any(map(_WEIGHTS.fullmatch, names)):
        return "model"
    return "tokenizer" if any(name in names for name in _TOKENIZER_FILES) else ""


def _mentions(path: Path, word: bytes) -> bool:
    try:
        return word in path.read_bytes()
    except OSError:
        return False
