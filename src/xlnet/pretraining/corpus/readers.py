"""Every input format becomes one stream of units: a line of text each, and an empty one where a document ends.

A unit is a paragraph, or a sentence where the input has a sentence a line. What follows (duplicates, sentence ends,
tokens) therefore knows one form only. Formats:

======== ==================================================== =========================================
name     a line (record) is                                   a document ends at
======== ==================================================== =========================================
sentences  a sentence (the release's form)                    a blank line, the end of a file
paragraphs a paragraph                                        a blank line, the end of a file
documents  a whole document                                   every line
wrapped    part of a paragraph, which a blank line ends       the end of a file
jsonl      a JSON object; the text is under one key           every record (its lines are paragraphs)
parquet    a row; the text is in one column                   every row (its lines are paragraphs)
======== ==================================================== =========================================
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from xlnet.errors import InputError, MachineError, did_you_mean
from xlnet.pretraining.corpus.detect import choose_format
from xlnet.pretraining.corpus.sources import Source, find_sources, read_lines

TextFormat = Literal["auto", "sentences", "paragraphs", "documents", "wrapped", "jsonl", "parquet"]
OnRead = Callable[[int], None]
DOCUMENT_END = b""

# Hard-wrapped text without blank lines would be one paragraph without end; it is cut where it passes this.
_LONGEST_WRAPPED = 1 << 20


def read_texts(
    inputs: str | Path | Sequence[str | Path],
    format: TextFormat = "auto",
    field: str = "text",
    tell: Callable[[str], None] = lambda _: None,
) -> Iterator[str]:
    """Paragraphs (or lines) of any input as strings, streaming: what a tokenizer is trained on.

    Args:
        inputs: files, globs, folders, or ``-`` for standard input.
        format: one of the formats above; ``auto`` decides by name and content.
        field: the JSON key or Parquet column that holds the text.
        tell: receives a sentence on each thing that a search of a folder left out.

    Raises:
        InputError: as ``find_sources`` and ``read_units``.
    """
    sources, notes = find_sources(inputs)
    for note in notes:
        tell(note)
    for unit in read_units(sources, choose_format(sources, format)[0], field):
        if unit:
            yield unit.decode("utf-8")


def read_units(
    sources: Iterable[Source], format: str, field: str = "text", on_read: OnRead = lambda _: None
) -> Iterator[bytes]:
    """Units of all sources as UTF-8 without surrounding white space; ``b""`` ends a document (never twice in a row).

    Raises:
        InputError: text that is not UTF-8, malformed records, a missing field; with file and line.
    """
    inside = False
    for source in sources:
        for unit in _units(source, format, field, on_read):
            if unit or inside:
                yield unit
                inside = bool(unit)
        if inside:
            yield DOCUMENT_END
            inside = False


def _units(source: Source, format: str, field: str, on_read: OnRead) -> Iterator[bytes]:
    if format == "parquet":
        for name, value in _parquet_values(source, field, on_read):
            yield from _record_units(name, field, value)
        return
    lines = read_lines(source, on_read)
    if format == "jsonl":
        for number, line in enumerate(lines, 1):
            if line.strip():
                name = f"{source.name}, line {number}"
                yield from _record_units(name, field, _json_value(name, field, line))
    elif format == "wrapped":
        yield from _unwrap(lines)
    elif format == "documents":
        for line in lines:
            yield _strip(line)
            yield DOCUMENT_END
    else:
        yield from map(_strip, lines)


def _strip(line: bytes) -> bytes:
    stripped = line.strip()
    # A line of no-break spaces is as blank as any other.
    return stripped if stripped.isascii() or stripped.decode("utf-8").strip() else b""


def _unwrap(lines: Iterable[bytes]) -> Iterator[bytes]:
    begun: list[bytes] = []
    size = 0
    for line in map(_strip, lines):
        if line and size < _LONGEST_WRAPPED:
            begun.append(line)
            size += len(line)
            continue
        if begun:
            yield b" ".join(begun)
        begun = [line] if line else []
        size = len(line)
    if begun:
        yield b" ".join(begun)


def _json_value(name: str, field: str, line: bytes) -> Any:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name} is not valid JSON: {error}. Each line must hold one JSON object.") from None
    if not isinstance(record, dict):
        raise InputError(
            f"{name} holds a JSON {type(record).__name__}, but each line must hold an object with {field!r}."
        )
    if field not in record:
        present = ", ".join(map(repr, record)) or "none"
        raise InputError(f"{name} has no field {field!r}; its fields are {present}.{did_you_mean(field, record)}")
    return record[field]


def _record_units(name: str, field: str, value: Any) -> Iterator[bytes]:
    if not isinstance(value, str):
        raise InputError(f"{name}: {field!r} must be text, but it is {value!r:.80}.")
    if "\0" in value:
        raise InputError(
            f"{name}: {field!r} holds a NUL character at position {value.index(chr(0))}, which no text has."
        )
    try:
        data = value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(
            f"{name}: {field!r} holds half a surrogate pair at position {error.start}: not text."
        ) from None
    for line in data.split(b"\n"):
        unit = _strip(line)
        if unit:
            yield unit
    yield DOCUMENT_END


def _parquet_values(source: Source, column: str, on_read: OnRead) -> Iterator[tuple[str, Any]]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MachineError("Reading Parquet needs pyarrow: pip install 'xlnet[parquet]'.") from error
    if source.path is None or source.size is None:
        raise InputError(f"{source.name}: Parquet cannot be read from a stream; give a file.")
    try:
        with pyarrow.parquet.ParquetFile(source.path) as file:
            columns = file.schema_arrow.names
            if column not in columns:
                present = ", ".join(map(repr, columns))
                raise InputError(
                    f"{source.name} has no column {column!r}; its columns are {present}.{did_you_mean(column, columns)}"
                )
            rows, row, told = max(1, file.metadata.num_rows), 0, 0
            for batch in file.iter_batches(batch_size=1024, columns=[column]):
                for value in batch.column(0).to_pylist():
                    row += 1
                    yield f"{source.name}, row {row}", value
                now = source.size * row // rows
                on_read(now - told)
                told = now
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise InputError(f"{source.name} cannot be read as Parquet: {error}.") from error
