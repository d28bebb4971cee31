"""Where text comes from: files, globs, folders and standard input, plain or gzip, as checked lines of UTF-8.

Nothing here knows what a line means; ``readers`` does. Memory stays at one block plus the longest line.
"""

from __future__ import annotations

import codecs
import gzip
import io
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from xlnet.errors import InputError
from xlnet.pretraining.corpus.search import expand, matches

BLOCK_BYTES = 1 << 20
LONGEST_LINE = 1 << 28
HEAD_BYTES = 1 << 18
_SIGNATURES = {
    b"\xff\xfe": "UTF-16 text; convert it with `iconv -f UTF-16 -t UTF-8`",
    b"\xfe\xff": "UTF-16 text; convert it with `iconv -f UTF-16 -t UTF-8`",
    b"PK\x03\x04": "a zip archive; unpack it first",
    b"%PDF": "a PDF; extract its text first",
    b"PAR1": "a Parquet file; name it *.parquet or give format='parquet'",
    b"BZh": "a bzip2 archive; unpack it first",
    b"\xfd7zXZ": "an xz archive; unpack it first",
    b"\x28\xb5\x2f\xfd": "a zstd archive; unpack it first",
}


@dataclass
class Source:
    """One input: a file, or standard input (``path`` is None), which can be read only once.

    ``size`` (bytes on disk) and ``changed`` (nanoseconds) are None for anything that is not a regular file.
    """

    name: str
    path: Path | None
    size: int | None = None
    changed: int | None = None
    _prefix: bytes = field(default=b"", repr=False)
    _pipe: BinaryIO | None = field(default=None, repr=False)

    @property
    def suffix(self) -> str:
        """The file's ending in lower case, without ``.gz``."""
        return Path(self.name.lower().removesuffix(".gz")).suffix

    @property
    def rereadable(self) -> bool:
        """Whether the same bytes can be read again."""
        return self.size is not None

    def head(self) -> bytes:
        """The first bytes, decompressed, without using them up.

        Raises:
            InputError: the file cannot be read, or is a damaged archive.
        """
        with _reading(self):
            if self.rereadable:
                with self.open() as (file, _):
                    return file.read(HEAD_BYTES)
            if not self._prefix:
                self._prefix = self._stream().read(HEAD_BYTES)
            if self._prefix[:2] == b"\x1f\x8b":
                return zlib.decompressobj(wbits=31).decompress(self._prefix, HEAD_BYTES)
            return self._prefix

    def open(self) -> _Opened:
        """Open for reading; gzip is told by its first bytes, not by its name."""
        return _Opened(self)

    def _stream(self) -> BinaryIO:
        if self._pipe is None:
            if self.path is None and sys.stdin is None:
                raise InputError("There is no standard input (it is closed): name a file, a folder or a glob instead.")
            self._pipe = sys.stdin.buffer if self.path is None else self.path.open("rb")
        return self._pipe

    def raw(self) -> BinaryIO:
        """The bytes as they lie there, possibly compressed."""
        if self.rereadable and self.path is not None:
            return self.path.open("rb")
        return io.BufferedReader(_Joined(self._prefix, self._stream()), BLOCK_BYTES)


class _Opened:
    """Context manager giving (decompressed file, raw file); the raw one tells how far reading has come."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def __enter__(self) -> tuple[BinaryIO, BinaryIO]:
        with _reading(self._source):
            self._raw = self._source.raw()
            compressed = self._raw.peek(2)[:2] == b"\x1f\x8b" if isinstance(self._raw, io.BufferedReader) else False
        self._file = gzip.GzipFile(fileobj=self._raw) if compressed else self._raw
        return self._file, self._raw  # type: ignore[return-value]

    def __exit__(self, *_: object) -> None:
        if self._source.rereadable:
            self._raw.close()


class _Joined(io.RawIOBase):
    """A prefix that was already read, then the rest of the stream."""

    def __init__(self, prefix: bytes, rest: BinaryIO) -> None:
        self._prefix, self._rest = prefix, rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        if self._prefix:
            data, self._prefix = self._prefix[: len(buffer)], self._prefix[len(buffer) :]
        else:
            data = self._rest.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def find_sources(inputs: str | Path | Sequence[str | Path]) -> tuple[list[Source], list[str]]:
    """Files behind paths, globs, folders (searched to any depth) and ``-`` (standard input), in a stable order.

    Returns:
        The sources, each file once, and notes on what was left out: empty files found through a glob or folder, and
        folders that this library wrote.

    Raises:
        InputError: a missing or empty file, a glob without match, a folder without text.
    """
    given = [inputs] if isinstance(inputs, str | Path) else list(inputs)
    if not given:
        raise InputError("No input is given: name a text file, a folder, a glob, or - for standard input.")
    sources: dict[Path | None, Source] = {}
    notes: list[str] = []
    for item in given:
        if str(item) == "-":
            sources[None] = Source("standard input", None)
            continue
        paths, left_out, searched = expand(str(item))
        notes += left_out
        empty = [path for path in paths if path.is_file() and path.stat().st_size == 0]
        if len(empty) == len(paths):
            raise InputError(f"{empty[0]} is empty: there is no text to read.")
        if empty and searched:
            notes.append(f"{item}: {len(empty)} empty files were passed over, the first is {empty[0]}.")
        for path in paths:
            if path not in empty:
                sources.setdefault(path.resolve(), _describe(path))
    return list(sources.values()), notes


def _describe(path: Path) -> Source:
    if not path.is_file():
        return Source(str(path), path)
    status = path.stat()
    return Source(str(path), path, status.st_size, status.st_mtime_ns)


def rereadable(path: str | Path) -> bool:
    """Whether an input gives the same bytes a second time: a regular file, a folder, a glob of such.

    ``-``, FIFOs, sockets, devices and what a shell makes of ``<(command)`` can be read once. What is not there at all
    is not judged here: :func:`find_sources` will say so.
    """
    place = Path(path).expanduser()
    if str(path) == "-":
        return False
    found = [place] if place.exists() else matches(place)
    return all(item.is_file() or item.is_dir() or not item.exists() for item in found)


def read_lines(source: Source, on_read: Callable[[int], None] = lambda _: None) -> Iterator[bytes]:
    r"""Lines of UTF-8 without their ``\n`` or ``\r\n``; a byte-order mark at the start is dropped.

    Only ``\n`` ends a line: U+0085, U+2028, form feeds and the like are characters within it.

    Args:
        source: where to read.
        on_read: told the number of bytes taken from disk, as they are taken.

    Raises:
        InputError: a byte that is not UTF-8, or a NUL, with its offset and line; a damaged archive; an unending line.
    """
    with source.open() as (file, raw):
        blocks = _counted(_blocks(source, file), raw, on_read)
        yield from _split_lines(source, _checked(source, blocks))


@contextmanager
def _reading(source: Source) -> Iterator[None]:
    """Name the file in what reading it may raise."""
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(
            f"{source.name} is a damaged or cut-off gzip file ({str(error).rstrip('.')}). Fetch or make it again; "
            "`gzip -t` tells whether a file is whole."
        ) from error
    except OSError as error:
        raise InputError(f"{source.name} cannot be read: {error.strerror or error}.") from error


def _blocks(source: Source, file: BinaryIO) -> Iterator[bytes]:
    while True:
        with _reading(source):
            block = file.read(BLOCK_BYTES)
        if not block:
            return
        yield block


def _counted(blocks: Iterable[bytes], raw: BinaryIO, on_read: Callable[[int], None]) -> Iterator[bytes]:
    before = 0
    seekable = raw.seekable()
    for block in blocks:
        now = raw.tell() if seekable else before + len(block)
        on_read(now - before)
        before = now
        yield block


def _checked(source: Source, blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Pass blocks on once they are known to be UTF-8 without NUL, cut between characters."""
    offset, lines, rest = 0, 0, b""
    for block in blocks:
        data = rest + block
        nul = data.find(b"\0")
        try:
            _, used = codecs.utf_8_decode(data, "strict", False)
        except UnicodeDecodeError as error:
            wrong = error.start if nul < 0 else min(nul, error.start)
            raise _not_text(source, data, wrong, offset, lines) from None
        if nul >= 0:
            raise _not_text(source, data, nul, offset, lines)
        yield data[3:used] if offset == 0 and data.startswith(codecs.BOM_UTF8) else data[:used]
        lines += data.count(b"\n", 0, used)
        offset, rest = offset + used, data[used:]
    if rest:
        raise _not_text(source, rest, 0, offset, lines)


def _not_text(source: Source, data: bytes, place: int, offset: int, lines: int) -> InputError:
    where = f"{source.name}, byte offset {offset + place} (line {lines + data.count(10, 0, place) + 1})"
    if offset == 0:
        for signature, kind in _SIGNATURES.items():
            if data.startswith(signature):
                return InputError(f"{source.name} is not text but looks like {kind}.")
        control = sum(byte < 9 or 13 < byte < 32 for byte in data[:4096])
        if control > len(data[:4096]) // 20:
            return InputError(f"{where}: byte 0x{data[place]:02x}. This is a binary file, not text.")
    if data[place] == 0:
        return InputError(f"{where}: a NUL byte, which no text has. Remove it, for instance with `tr -d '\\000'`.")
    return InputError(
        f"{where}: byte 0x{data[place]:02x} is not valid UTF-8. Convert the file to UTF-8, for instance with "
        "`iconv -f latin1 -t UTF-8`, or repair it with `iconv -f UTF-8 -t UTF-8 -c`."
    )


def _split_lines(source: Source, blocks: Iterable[bytes]) -> Iterator[bytes]:
    begun: list[bytes] = []  # a line that goes on over blocks, joined once: a long line stays linear
    length = 0
    for block in blocks:
        first, *others = block.split(b"\n")
        begun.append(first)
        length += len(first)
        if length > LONGEST_LINE:
            raise InputError(f"{source.name} has a line longer than {LONGEST_LINE >> 20} MiB: is it text at all?")
        if others:
            yield b"".join(begun).removesuffix(b"\r")
            last = others.pop()
            for line in others:
                yield line.removesuffix(b"\r")
            begun, length = [last], len(last)
    if length:
        yield b"".join(begun).removesuffix(b"\r")
