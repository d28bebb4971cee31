"""Whether a folder may receive a corpus: it is new, unfinished, finished, or somebody else's; nothing is lost."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from xlnet.errors import ConfigurationError
from xlnet.pretraining.corpus.manifest import MANIFEST_NAME, PARTIAL_NAME, CorpusManifest, SplitManifest
from xlnet.pretraining.corpus.storage import guard_disk, write_whole

RUN_NAME = "run.json"
_SHARD_NAME = re.compile(r"(train|valid)(-\d+\.(tokens|sentences)|\.documents)\.bin")


def check_finished(output: Path, wanted: CorpusManifest, rereadable: bool) -> CorpusManifest | None:
    """The manifest of a finished corpus of the same text and settings, or None where the folder is free.

    Raises:
        ConfigurationError: the folder holds another corpus, other files, or is a file.
    """
    if output.exists() and not output.is_dir():
        raise ConfigurationError(f"{output} is a file, but the output must be a folder.")
    if not output.is_dir():
        return None
    if (output / MANIFEST_NAME).is_file():
        found = CorpusManifest.load(output)
        differences = _differences(_identity(found), _identity(wanted))
        if not rereadable:
            differences.append("its text came from a stream, which cannot be compared")
        if differences:
            raise ConfigurationError(
                f"{output} already holds another corpus: {'; '.join(differences)}. Choose another folder, or remove it."
            )
        return found
    others = sorted(path.name for path in output.iterdir() if path.name != PARTIAL_NAME)
    if others and not (output / PARTIAL_NAME / RUN_NAME).is_file():
        raise ConfigurationError(
            f"{output} is not empty and holds no corpus (but {', '.join(others[:3])}). Choose another folder."
        )
    return None


def claim(output: Path) -> Path:
    """Make the folder for unfinished work and return it."""
    partial = output / PARTIAL_NAME
    with guard_disk(partial):
        (partial / "pieces").mkdir(parents=True, exist_ok=True)
    return partial


def check_unfinished(partial: Path, wanted: CorpusManifest) -> None:
    """Note what is being made here; where pieces are finished already, make sure that they belong to the same.

    Input files may have changed since (the user repaired one): each piece is compared with its text anyway.

    Raises:
        ConfigurationError: naming what differs from the unfinished run.
    """
    path = partial / RUN_NAME
    if path.is_file():
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            found = {}
        differences = _differences(found, _identity(wanted), contents=False)
        if differences and any((partial / "pieces").glob("*.piece")):
            raise ConfigurationError(
                f"{partial.parent} holds an unfinished preparation of another kind: {'; '.join(differences)}. "
                "Repeat it with its own settings to finish it, choose another folder, or remove this one."
            )
    write_whole(path, json.dumps(_identity(wanted), indent=2, sort_keys=True) + "\n")


def move_into_place(final: Path, output: Path, splits: Mapping[str, SplitManifest]) -> None:
    """Move finished files to where the manifest will look for them; those of an earlier, broken attempt go."""
    for stale in output.glob("*.bin"):
        if _SHARD_NAME.fullmatch(stale.name):
            with guard_disk(stale):
                stale.unlink()
    for split in splits.values():
        files = [file for shard in split.shards for file in (shard.tokens, shard.sentences)]
        for file in [*files, *([split.documents] if split.documents else [])]:
            with guard_disk(output / file.name):
                (final / file.name).replace(output / file.name)


def _identity(manifest: CorpusManifest) -> dict[str, Any]:
    inputs = [dict(entry) for entry in manifest.inputs]
    return {
        "tokenizer": manifest.tokenizer_fingerprint,
        "settings": dict(manifest.settings),
        "inputs": [[entry["name"], entry["bytes"], entry["changed_ns"]] for entry in inputs],
    }


def _differences(found: Mapping[str, Any], wanted: Mapping[str, Any], contents: bool = True) -> list[str]:
    """What differs, in words, the value found first."""
    result = []
    if found.get("tokenizer") != wanted["tokenizer"]:
        result.append(f"its tokenizer is {found.get('tokenizer')}, yours {wanted['tokenizer']}")
    settings = found.get("settings", {})
    for key, value in wanted["settings"].items():
        if settings.get(key) != value:
            result.append(f"its {key} is {settings.get(key)!r}, yours {value!r}")
    theirs, ours = found.get("inputs", []), wanted["inputs"]
    if [entry[0] for entry in theirs] != [entry[0] for entry in ours]:
        result.append(f"its input is {_names(theirs)}, yours {_names(ours)}")
    elif contents and theirs != ours:
        changed = [new for old, new in zip(theirs, ours, strict=True) if old != new]
        result.append(f"its input has changed since ({_names(changed)})")
    return result


def _names(entries: list[Any]) -> str:
    shown = ", ".join(str(entry[0]) for entry in entries[:3])
    return shown + (f" and {len(entries) - 3} more" if len(entries) > 3 else "")
