"""Data sets of the hub, and folders that the library ``datasets`` saved, as records like those of files.

Wherever the data of a task is a folder or a file it may also be one of these::

    hub                         the benchmark's own data set (``xlnet finetune sst2 --data hub``)
    hub:OWNER/NAME              a data set by its name; hub:OWNER/NAME:CONFIG@REVISION says more
    FOLDER                      that DatasetDict.save_to_disk or Dataset.save_to_disk wrote

The library keeps what it has loaded, so a second run needs no network.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from xlnet.errors import InputError, MachineError
from xlnet.tasks.datasets.tables import NoSplit, Record

HUB = "hub"
_NAME = re.compile(r"hub:(?P<name>[^:@\s]+)(?::(?P<config>[^:@\s]+))?(?:@(?P<revision>[^:@\s]+))?")
_SAVED = ("dataset_dict.json", "dataset_info.json")
_SPLITS = {"dev": ("validation", "dev", "valid", "val")}


@dataclass(frozen=True)
class HubName:
    """Which data set of the hub.

    Attributes:
        name: ``owner/name``.
        config: one of its configurations; empty for its only one.
        revision: branch, tag or commit; empty for the newest.
    """

    name: str
    config: str = ""
    revision: str = ""

    def __str__(self) -> str:
        config = f":{self.config}" if self.config else ""
        return f"hub:{self.name}{config}{f'@{self.revision}' if self.revision else ''}"


@dataclass(frozen=True)
class HubData:
    """An opened data set.

    Attributes:
        place: as the user gave it, for messages.
        splits: ``datasets.Dataset`` by the names it has there.
        alone: a single Dataset was saved, which is read for any split, as a file is.
    """

    place: str
    splits: Mapping[str, Any]
    alone: bool = False

    def name_of(self, split: str) -> str | None:
        """What ``train``, ``dev``, ``dev_matched`` or ``test`` is called there; None where it is not."""
        stem, mark, rest = split.partition("_")
        names = [f"{name}{mark}{rest}" for name in _SPLITS.get(stem, (stem,))]
        return next((name for name in names if name in self.splits), None)

    def records(self, split: str, label_names: Sequence[str] = ()) -> list[Record]:
        """Rows of a split; classes are names instead of numbers, and None where they are hidden (-1).

        Args:
            split: ``train``, ``dev`` or ``test``.
            label_names: the task's own names in the order of its ids. They replace the data set's where there are as
                many of them but they are called otherwise.

        Raises:
            InputError: no such split.
        """
        found = "train" if self.alone else self.name_of(split)
        if found is None:
            raise NoSplit(f"{self.place} has no split {split!r}; it has {', '.join(self.splits)}.")
        rows = self.splits[found]
        readers = {name: _class_reader(feature, label_names) for name, feature in rows.features.items()}
        return [
            Record(
                f"{self.place}, {found}, row {number}",
                {name: value if (read := readers[name]) is None else read(value) for name, value in row.items()},
            )
            for number, row in enumerate(rows, start=1)
        ]


def _class_reader(feature: Any, label_names: Sequence[str]) -> Callable[[Any], Any] | None:
    """Turns class numbers of a column into names, in a list too (tags of words); None for other columns."""
    names = getattr(feature, "names", None)
    if names is None:
        inner = getattr(feature, "feature", None)
        read = None if inner is None else _class_reader(inner, label_names)
        return None if read is None else lambda values: None if values is None else [read(value) for value in values]
    own = label_names if len(label_names) == len(names) and set(label_names) != set(names) else names
    return lambda value: None if value is None or value < 0 else own[value]


def is_hub(place: str | Path) -> bool:
    """Whether this means a data set of the library ``datasets``, not files of a benchmark."""
    return _is_named(str(place)) or any((Path(place) / name).is_file() for name in _SAVED)


def is_single(place: str | Path) -> bool:
    """Whether this is one set of rows, a file or a Dataset saved by itself, so that held-out data must come from it."""
    path = Path(place)
    return (path / "state.json").is_file() if is_hub(place) else path.is_file()


def open_hub(place: str | Path, default: HubName | None = None) -> HubData:
    """Open a data set of the hub, or a folder that ``datasets`` saved.

    Args:
        place: ``hub``, ``hub:NAME``, or a folder.
        default: what ``hub`` alone means for a benchmark.

    Raises:
        InputError: a name of another form, no such data set, or one that cannot be read.
        MachineError: the library is not installed, or the hub cannot be reached and nothing is kept of it.
    """
    text = str(place)
    if not _is_named(text):
        return _open_saved(text)
    if text == HUB:
        if default is None:
            raise InputError("--data hub: this task has no data set of its own on the hub. Name one: hub:OWNER/NAME.")
        return _open_named(default)
    match = _NAME.fullmatch(text)
    if match is None:
        raise InputError(f"{text!r} names no data set; it must be hub:OWNER/NAME, hub:OWNER/NAME:CONFIG or "
                         "hub:OWNER/NAME:CONFIG@REVISION.")  # fmt: skip
    return _open_named(HubName(match["name"], match["config"] or "", match["revision"] or ""))


def _is_named(text: str) -> bool:
    # A folder that is called hub stays a folder.
    return text.startswith(f"{HUB}:") or (text == HUB and not Path(text).exists())


def _library() -> Any:
    try:
        import datasets
    except ImportError as error:
        raise MachineError("Data sets of the hub need the library datasets: pip install 'xlnet[hub]'.") from error
    return datasets


@lru_cache(maxsize=4)
def _open_saved(folder: str) -> HubData:
    library = _library()
    try:
        found = library.load_from_disk(folder)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{folder} cannot be read as a saved data set ({type(error).__name__}: {error}).") from error
    if isinstance(found, library.DatasetDict):
        return HubData(folder, dict(found))
    return HubData(folder, {"train": found}, alone=True)


@lru_cache(maxsize=4)
def _open_named(name: HubName) -> HubData:
    library = _library()
    try:
        found = library.load_dataset(name.name, name.config or None, revision=name.revision or None)
    except ConnectionError as error:
        raise MachineError(
            f"{name} cannot be loaded: the hub is out of reach, and no copy of the data set is kept on this machine "
            f"({_first_line(error)}). Load it once where there is a network; or give its files, or a folder written by "
            "save_to_disk."
        ) from error
    except FileNotFoundError as error:
        raise InputError(f"{name}: there is no such data set, or it is not public ({_first_line(error)}).") from error
    except (ValueError, RuntimeError, OSError, library.exceptions.DatasetsError) as error:
        hint = " Name one of its configurations: hub:OWNER/NAME:CONFIG." if "onfig" in str(error) else ""
        raise InputError(f"{name} cannot be read: {error}{hint}") from error
    return HubData(str(name), dict(found))


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n", 1)[0]
