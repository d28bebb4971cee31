"""Files of records: TSV, CSV and JSONL, plain or gzip. Each record comes with file and line, and no row is lost."""

from __future__ import annotations

import codecs
import gzip
import json
import logging
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from xlnet.errors import InputError, MachineError, did_you_mean
from xlnet.tasks.datasets.csv_rows import csv_rows

_log = logging.getLogger(__name__)


class Record(NamedTuple):
    """One row.

    Attributes:
        where: ``file:line``, for messages.
        values: by column name.
    """

    where: str
    values: dict[str, Any]


class NoSplit(InputError):
    """A folder or data set does not have what was asked for. Held-out data may be missing; damaged it may not be."""


def read_text(path: Path) -> str:
    """A whole file as text, decompressed if its name ends in ``.gz``.

    Raises:
        InputError: not there, damaged, or not UTF-8 (names the line).
    """
    try:
        data = path.read_bytes()
        if path.suffix == ".gz":
            data = gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{path} cannot be read: {reason}.") from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        likely = "utf-16" if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "latin1"
        raise InputError(
            f"{path}:{line} is not UTF-8 (byte 0x{data[error.start]:02x}). Convert the file, for example with: "
            f"iconv -f {likely} -t utf-8"
        ) from error


def read_tsv(path: Path, columns: Sequence[str] | None = None, *, tolerate: float = 0.0) -> list[Record]:
    """Rows of a tab-separated file; quotes are ordinary characters, as in GLUE.

    An empty line is an empty text where there is a single column, and no row where there are more.

    Args:
        path: of the file.
        columns: names, where the file has no header.
        tolerate: share of rows that may have another number of columns than the header; they are left out, and it is
            said how many. 0 refuses the first.

    Raises:
        InputError: names file and line of a ragged row, or the columns that have one name.
    """
    lines = read_text(path).removesuffix("\n").split("\n")
    rows = [(number, line.removesuffix("\r")) for number, line in enumerate(lines, start=1)]
    if columns is None:
        number, header = rows.pop(0)
        if not header:
            raise InputError(f"{path}:{number} is empty; the first line must name the columns.")
        columns = header.split("\t")
        _refuse_equal_names(columns, f"{path}:{number}")
    if len(columns) > 1:
        rows = [(number, line) for number, line in rows if line]
    records, ragged = [], []
    for number, line in rows:
        values = line.split("\t")
        if len(values) != len(columns):
            ragged.append((number, len(values)))
            continue
        records.append(Record(f"{path}:{number}", dict(zip(columns, values, strict=True))))
    if ragged:
        number, found = ragged[0]
        text = f"{path}:{number} has {found} columns instead of {len(columns)} ({', '.join(columns)})"
        if len(ragged) > tolerate * len(rows):
            raise InputError(
                f"{text}; {len(ragged)} of {len(rows)} rows are like that. A text must hold no tab and no line end; "
                "use JSONL or CSV for such texts."
            )
        _log.warning("%s; %d of %d rows are like that and were left out.", text, len(ragged), len(rows))
    return records


def read_csv(path: Path, columns: Sequence[str] | None = None) -> list[Record]:
    """Rows of a comma-separated file with quoted texts, which may hold line ends; empty lines as in :func:`read_tsv`.

    Args:
        path: of the file.
        columns: names, where the file has no header.

    Raises:
        InputError: names file and line of a ragged row or a quote that is not closed, or the columns that have one
            name.
    """
    records: list[Record] = []
    for number, values in csv_rows(read_text(path), path):
        if columns is None:
            columns = values
            if not columns:
                raise InputError(f"{path}:{number} is empty; the first line must name the columns.")
            _refuse_equal_names(columns, f"{path}:{number}")
            continue
        if not values and len(columns) > 1:
            continue
        values = values or [""]
        if len(values) != len(columns):
            raise InputError(
                f"{path}:{number} has {len(values)} columns instead of {len(columns)} ({', '.join(columns)}). "
                'A text that holds a comma must stand in double quotes, and a double quote in it as "".'
            )
        records.append(Record(f"{path}:{number}", dict(zip(columns, values, strict=True))))
    if not columns:
        raise InputError(f"{path} is empty; its first line must name the columns.")
    return records


def _refuse_equal_names(columns: Sequence[str], where: str) -> None:
    # Spreadsheets write empty names for empty columns; nobody can ask for those.
    twice = sorted({name for name in columns if name and columns.count(name) > 1})
    if twice:
        raise InputError(
            f"{where}: more than one column is called {', '.join(map(repr, twice))}, so it cannot be told which is "
            "meant. Give each column its own name."
        )


def read_jsonl(path: Path) -> list[Record]:
    """One JSON object a line; empty lines are no rows.

    Raises:
        InputError: names file and line of what is no object.
    """
    records = []
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            values = json.loads(line)
        except ValueError as error:
            raise InputError(f"{path}:{number} is no JSON: {error}. JSONL has one object on each line.") from error
        if not isinstance(values, dict):
            raise InputError(f"{path}:{number} must be a JSON object, but is {type(values).__name__}.")
        records.append(Record(f"{path}:{number}", values))
    return records


def read_parquet(path: Path) -> list[Record]:
    """Rows of a Parquet file, as the hub's data sets come.

    Raises:
        InputError: it cannot be read.
        MachineError: pyarrow is not installed.
    """
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise MachineError("Parquet files need pyarrow: pip install 'xlnet[parquet]'.") from error
    try:
        rows = pyarrow.parquet.read_table(path).to_pylist()
    except (OSError, pyarrow.ArrowException) as error:
        raise InputError(f"{path} cannot be read as Parquet: {error}.") from error
    return [Record(f"{path}, row {number}", row) for number, row in enumerate(rows, start=1)]


_READERS = {
    ".tsv": read_tsv, ".csv": read_csv, ".jsonl": read_jsonl, ".json": read_jsonl, ".parquet": read_parquet,
}  # fmt: skip


def read_records(path: Path) -> list[Record]:
    """Rows of a file by the ending of its name: ``.tsv``, ``.csv``, ``.jsonl`` (also with ``.gz``), ``.parquet``.

    Raises:
        InputError: another ending, or what the readers refuse.
    """
    suffix = Path(path.name.removesuffix(".gz")).suffix.lower()
    if suffix not in _READERS:
        raise InputError(
            f"{path}: what the file holds cannot be told from its name; it must end in .tsv, .csv or .jsonl "
            f"(also with .gz), or .parquet.{did_you_mean(suffix, _READERS)}"
        )
    return _READERS[suffix](path)


def find_file(folder: Path, names: Sequence[str], subfolders: Sequence[str] = ()) -> Path:
    """The first of ``names`` (with ``.gz`` or without) in a folder, or in one of its ``subfolders``.

    ``folder`` may also be such a file itself.

    Raises:
        NoSplit: none is there; says what was looked for and what is there.
        InputError: no such folder.
    """
    if folder.is_file():
        return folder
    if not folder.is_dir():
        raise InputError(f"{folder} does not exist.")
    for place in (folder, *(folder / name for name in subfolders)):
        for name in names:
            for path in (place / name, place / f"{name}.gz"):
                if path.is_file():
                    return path
    present = sorted(path.name for path in folder.iterdir())[:12]
    raise NoSplit(f"{folder} has no {' or '.join(names)}; it holds {', '.join(present) or 'nothing'}.")
