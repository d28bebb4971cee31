"""From a name to a folder: paths on disk are taken as they are, other names are looked up on the Hugging Face hub."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from xlnet.errors import CheckpointError, MachineError

TOKENIZER_FILES = (
    "spiece.model",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
)
_SMALL = ("config.json", "xlnet_config.json", "README.md", *TOKENIZER_FILES)
_SAFE = ("model*.safetensors", "model.safetensors.index.json")
_PICKLED = ("pytorch_model*.bin", "pytorch_model.bin.index.json")
_RELEASED = ("xlnet_model.ckpt.index", "xlnet_model.ckpt.data-*")
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
        CheckpointError: nothing is there by that path or name, or it is not in the cache and one is offline.
        MachineError: the hub cannot be reached.
    """
    if not str(path_or_name).strip():
        raise CheckpointError("The name of the model is empty; give a folder, or a hub name such as 'owner/model'.")
    path = Path(path_or_name).expanduser()
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
            if any(any(folder.glob(pattern)) for pattern in patterns):
                break
            folder = _fetch(name, (*_SMALL, *patterns), where)
            if any(any(folder.glob(pattern)) for pattern in patterns):
                break
    return folder


def _fetch(name: str, patterns: tuple[str, ...], where: dict[str, Any]) -> Path:
    from huggingface_hub import errors as hub_errors
    from huggingface_hub import snapshot_download  # slow to import, and needed for hub names only

    near = _nearby(Path(name)) if Path(name).parent.is_dir() else ""
    try:
        return Path(snapshot_download(name, allow_patterns=list(patterns), **where))
    except (hub_errors.LocalEntryNotFoundError, hub_errors.OfflineModeIsEnabled) as error:
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
    except (hub_errors.HfHubHTTPError, ConnectionError, TimeoutError) as error:
        raise MachineError(f"The hub could not deliver {name!r}: {error}.") from error
    except hub_errors.HFValidationError as error:
        raise CheckpointError(f"{name!r} is neither a path here nor a possible hub name.") from error


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
