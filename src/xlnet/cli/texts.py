"""Texts for a command: where each came from, so that errors name its line, and how many are handled at once."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from xlnet.cli.parsing import read_lines
from xlnet.errors import CheckpointError, InputError, MachineError
from xlnet.training.guards import out_of_memory


@dataclass(frozen=True)
class Texts:
    """Texts in their order.

    Attributes:
        texts: as given.
        source: what they are lines of; None where they are arguments.
    """

    texts: list[str]
    source: str | None

    def where(self, first: int, last: int | None = None) -> str:
        """Name of the text ``first`` (0 is the first one), or of those up to ``last``, for messages."""
        kind = "text" if self.source is None else f"{self.source}, line"
        if last is None or last == first:
            return f"{kind} {first + 1}" if self.source is not None or len(self.texts) > 1 else "the text"
        return f"{kind}s {first + 1} to {last + 1}"


def gather(given: Sequence[str], source: str | None, field: str) -> Texts:
    """Texts from arguments, a file of lines, a ``.jsonl`` file, or standard input.

    Raises:
        InputError: malformed JSON or a missing field, with the line and the fields that are there.
    """
    lines = read_lines(source, given)
    if given:
        return Texts(lines, None)
    if source is None or not source.endswith(".jsonl"):
        return Texts(lines, "standard input" if source in (None, "-") else source)
    return Texts(
        [_field(line, f"{source}, line {number}", field) for number, line in enumerate(lines, start=1)], source
    )


def _field(line: str, where: str, field: str) -> str:
    if not line.strip():
        raise InputError(f"{where} is empty: take it out, or write an object with a text under {field!r}.")
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where} is not JSON: {error}.") from error
    if not isinstance(record, dict) or not isinstance(record.get(field), str):
        if isinstance(record, dict) and field in record:
            raise InputError(f"{where}: {field!r} is {record[field]!r}; it must be a text in quotes.")
        keys = ", ".join(record) if isinstance(record, dict) else f"no object, but {line.strip()[:40]}"
        raise InputError(f"{where} has no text under {field!r} (there is: {keys}). Use --field KEY.")
    text: str = record[field]
    return text


def chunks(sizes: Sequence[int], most: int, together: int) -> Iterator[range]:
    """Numbers of neighbouring texts to handle at once: at most ``most``, of ``together`` pieces or a single one.

    Small chunks lose little when a later text fails; results are the same whatever they are.
    """
    first, total = 0, 0
    for number, size in enumerate(sizes):
        if number > first and (number - first == most or total + size > together):
            yield range(first, number)
            first, total = number, 0
        total += size
    if first < len(sizes):
        yield range(first, len(sizes))


@contextmanager
def named(where: str, advice: str = "") -> Iterator[None]:
    """Errors about a text name its place; where memory does not suffice they say what to do.

    Raises:
        InputError, CheckpointError: as inside, the place in front.
        MachineError: out of memory, with the advice.
    """
    try:
        yield
    except (InputError, CheckpointError) as error:
        raise type(error)(f"{where}: {error}") from error
    except (RuntimeError, MemoryError) as error:
        if not out_of_memory(error):
            raise
        first = (str(error).splitlines() or ["no more is known"])[0]
        raise MachineError(f"{where}: out of memory ({first}). {advice}".rstrip()) from error
