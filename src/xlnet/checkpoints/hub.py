"""From a name to a folder: paths on disk are taken as they are, other names are looked up on the Hugging Face hub."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from xlnet.checkpoints.files import read_json
from xlnet.errors import CheckpointError, MachineError

TOKENIZER_FILES = (
    "spiece.model",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
)
_CARD = "README.md"
_SMALL = ("config.json", "xlnet_config.json", *TOKENIZER_FILES)
_SAFE = ("model*.safetensors", "model.safetensors.index.json")
_PICKLED = ("pytorch_model*.bin", "pytorch_model.bin.index.json")
_RELEASED = ("xlnet_model.ckpt.index", "xlnet_model.ckpt.data-*")
_WHOLE = {"model.safetensors", "pytorch_model.bin"}
_SHARD = re.compile(r"(?P<stem>.+)-\d{5}-of-(?P<count>\d{5})(?P<ending>\.\w+)")
_DATA = re.compile(r"(?P<stem>.+)\.data-\d{5}-of-(?P<count>\d{5})")
_NAME = re.compile(r"[\w][\w.\-]*(?:/[\w][\w.\-]*)?")
# Names from before the hub had owners; online the hub redirects them, offline nobody would.
_OWNED = {name: f"xlnet/{name}" for name in ("xlnet-base-cased", "xlnet-large-cased")}


def resolve(
    path_or_name: str | Path,
    *,
    revision: str | None = None,
    cache_dir: str | Path | None = None,
    offline: bool = False,
    weights: bool = True,
) -> Path:
    """The file or folder that is meant.

    Args:
        path_or_name: a path on disk (which wins), a TensorFlow checkpoint prefix, or a hub name ``owner/model``.
        revision: branch, tag or commit on the hub.
        cache_dir: the hub's cache, by default where ``HF_HOME`` says.
        offline: look only into the cache; the variable ``HF_HUB_OFFLINE=1`` does the same.
        weights: also fetch weights: safetensors if there are any, else a pickle, else the release's checkpoint.

    Raises:
        CheckpointError: nothing is there by that path or name, or it is not in the cache, or not whole there (names
            the file that is missing), and one is offline.
        MachineError: the hub cannot be reached, or breaks off.
    """
    if not str(path_or_name).strip():
        raise CheckpointError("The name of the model is empty; give a folder, or a hub name such as 'owner/model'.")
    path = _at_home(path_or_name)
    if path.exists() or path.with_name(path.name + ".index").is_file():
        return path
    name = str(path_or_name)
    if isinstance(path_or_name, Path) or not _NAME.fullmatch(name) or name.startswith((".", "~")):
        raise CheckpointError(f"{name} does not exist{_nearby(path)}.")
    name = _OWNED.get(name, name)
    where: dict[str, Any] = {"revision": revision, "cache_dir": cache_dir, "local_files_only": offline}
    folder = _fetch(name, _SMALL, where)
    if weights:
        for patterns in (_SAFE, _PICKLED, _RELEASED):
            # Asked for even where some of them are in the cache: those cost nothing, and what broke off is completed.
            folder = _fetch(name, (*_SMALL, *patterns, _CARD), where, whole=False)
            found = {file.name for pattern in patterns for file in folder.glob(pattern) if file.is_file()}
            missing = _missing(folder, found)
            if missing:
                raise CheckpointError(_broken_off(name, f"{folder} lacks {', '.join(missing)}"))
            if found:
                break
    return folder


def _broken_off(name: str, what: str) -> str:
    return (
        f"{name!r} is not whole in the hub's cache: {what}. Go online once, so that the download is completed, or give "
        "the path of a folder."
    )


def _at_home(path_or_name: str | Path) -> Path:
    """The path with ``~`` and ``~user`` replaced.

    Raises:
        CheckpointError: there is no such user.
    """
    try:
        return Path(path_or_name).expanduser()
    except RuntimeError as error:
        home = Path(path_or_name).parts[0]
        raise CheckpointError(
            f"{path_or_name} does not exist: {home} is nobody's home folder here. Give the whole path, or "
            f"./{path_or_name} if a folder is called {home}."
        ) from error


def _missing(folder: Path, found: set[str]) -> list[str]:
    """Files that those of a set name, or count in their own names, and that are not there."""
    if found & _WHOLE:
        return []
    needed: set[str] = set()
    for name in found:
        if shard := _SHARD.fullmatch(name):
            stem, count, ending = shard.groups()
            needed |= {f"{stem}-{i:05d}-of-{count}{ending}" for i in range(1, int(count) + 1)}
            needed.add(f"{stem}{ending}.index.json")
        elif data := _DATA.fullmatch(name):
            stem, count = data.groups()
            needed |= {f"{stem}.data-{i:05d}-of-{count}" for i in range(int(count))} | {f"{stem}.index"}
        elif name.endswith(".index.json"):
            shards = read_json(folder / name).get("weight_map")
            needed |= set(map(str, shards.values())) if isinstance(shards, dict) else set()
        elif name.endswith(".ckpt.index") and not any(map(_DATA.fullmatch, found)):
            needed.add(name.removesuffix("index") + "data-00000-of-00001")
    return sorted(needed - found)


def _fetch(name: str, patterns: tuple[str, ...], where: dict[str, Any], whole: bool = True) -> Path:
    """The folder of the cache with the files that match; without the hub, what is there of them if not ``whole``."""
    from huggingface_hub import errors as hub_errors
    from huggingface_hub import snapshot_download  # slow to import, and needed for hub names only

    near = _nearby(Path(name)) if Path(name).parent.is_dir() else ""
    try:
        return Path(snapshot_download(name, allow_patterns=list(patterns), **where))
    except (hub_errors.LocalEntryNotFoundError, hub_errors.OfflineModeIsEnabled) as error:
        partial = getattr(error, "snapshot_path", None)  # newer clients know what the hub has, and say what lacks
        if partial and not whole:
            return Path(partial)
        if partial:
            raise CheckpointError(_broken_off(name, str(error).rstrip("."))) from error
        at = f" at revision {where['revision']!r}" if where["revision"] else ""
        raise CheckpointError(
            f"{name!r} is neither a path here{near} nor in the hub's cache{at}, and the hub is not reachable or was "
            "not asked (offline). Go online once, or give the path of a folder."
        ) from error
    except hub_errors.RevisionNotFoundError as error:
        raise CheckpointError(f"{name!r} has no revision {where['revision']!r} on the hub.") from error
    except hub_errors.GatedRepoError as error:
        raise CheckpointError(f"{name!r} asks you to accept its terms on the hub before it can be fetched.") from error
    except hub_errors.RepositoryNotFoundError as error:
        raise CheckpointError(
            f"{name!r} is neither a path here{near} nor a public model on the hub. Check its spelling (owner/model)."
        ) from error
    except hub_errors.HFValidationError as error:
        raise CheckpointError(f"{name!r} is neither a path here nor a possible hub name.") from error
    except Exception as error:
        # The client lets through what its HTTP library, its storage and the disk raise: they share no other ancestor,
        # and the library changes from one version to the next.
        told = str(error).rstrip(".") or type(error).__name__
        raise MachineError(
            f"The hub could not deliver {name!r}: {told}. Check the connection, the settings of a proxy and the "
            "space on the disk, and try again (files that arrived are kept); or give the path of a folder."
        ) from error


def _nearby(path: Path) -> str:
    """What lies where the path stops to exist."""
    from difflib import get_close_matches

    if path.is_symlink():
        return ": it is a link that leads nowhere"
    parent = path.parent
    if not parent.is_dir():
        return f" (there is no folder {parent})"
    near = get_close_matches(path.name, [entry.name for entry in parent.iterdir()], n=1, cutoff=0.6)
    return f" (did you mean {parent / near[0]}?)" if near else ""
