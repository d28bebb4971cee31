"""Rows of CSV. A quote left open takes no other row into its text unnoticed, and texts may be of any length."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from xlnet.errors import InputError

_LONGEST_FIELD = 2**31 - 1
_FIELD = r'(?:"(?:[^"]++|"")*+"|[^",\r\n][^,\r\n]*+|)'
_FIELDS_BEFORE = re.compile(f"(?:{_FIELD},)*+")
_WHOLE_RECORD = re.compile(f"(?:{_FIELD},)*+{_FIELD}[\r\n]*")


class _Lines:
    """The lines of a text for the CSV reader, with those of the record it is in, and whether it asked for more."""

    def __init__(self, text: str) -> None:
        self._lines = io.StringIO(text, newline="")
        self._record: list[str] = []
        self.ended = False

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        line = next(self._lines, None)
        if line is None:
            self.ended = True
            raise StopIteration
        self._record.append(line)
        return line

    def take(self) -> list[str]:
        """The lines since the last call."""
        taken, self._record = self._record, []
        return taken


def csv_rows(text: str, path: Path) -> Iterator[tuple[int, list[str]]]:
    """First line and values of each row.

    Args:
        text: of the whole file.
        path: of the file, for messages.

    Raises:
        InputError: names file and line of a quote that is not closed.
    """
    lines = _Lines(text)
    reader = csv.reader(lines)
    start = 1
    try:
        with _long_fields():
            for values in reader:
                number, start = start, reader.line_num + 1
                record = lines.take()
                if lines.ended or len(record) > 1:
                    _refuse_swallowed_rows("".join(record), path, number, open_end=lines.ended)
                yield number, values
    except csv.Error as error:
        raise InputError(f"{path}:{reader.line_num}: {error}.") from error


@contextmanager
def _long_fields() -> Iterator[None]:
    # Python's limit is 131,072 characters, for the whole process.
    before = csv.field_size_limit(_LONGEST_FIELD)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _refuse_swallowed_rows(text: str, path: Path, number: int, *, open_end: bool) -> None:
    """A quote left open takes the rows after it into its text, up to the next quote or the end of the file."""
    rule = 'A text in double quotes must end with one, and a double quote in it is written "".'
    if open_end:
        before = _FIELDS_BEFORE.match(text)
        line = number + len(re.findall(r"\r\n|\r|\n", before.group() if before else ""))
        raise InputError(f"{path}:{line}: the double quote that opens a text here is not closed by the end. {rule}")
    if not _WHOLE_RECORD.fullmatch(text):
        raise InputError(
            f"{path}:{number}: a text in double quotes goes on to the next line, and more follows after the quote that "
            f"closes it. Is a quote left open? {rule}"
        )
