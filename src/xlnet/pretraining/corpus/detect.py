"""Guess the format of text from its name and first lines, and say why."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise

from xlnet.errors import ConfigurationError
from xlnet.pretraining.corpus.sentences import SentenceSplitter
from xlnet.pretraining.corpus.sources import Source

_BY_SUFFIX = {".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
_ENDS = tuple(".!?:;…\"'”’»)]。！？")
_SAMPLE_LINES = 400


def choose_format(sources: Sequence[Source], format: str, language: str = "en") -> tuple[str, str]:
    """The format to read with, and for ``auto`` a sentence that says what was chosen and why (else "").

    Raises:
        ConfigurationError: the inputs mix formats.
    """
    if format != "auto":
        return format, ""
    kinds = {_BY_SUFFIX.get(source.suffix, "text"): source for source in sources}
    if len(kinds) > 1:
        names = " and ".join(f"{source.name} ({kind})" for kind, source in kinds.items())
        raise ConfigurationError(f"The inputs mix formats: {names}. Prepare them one by one, or name the format.")
    (kind, source), *_ = kinds.items()
    if kind != "text":
        return kind, f"format {kind}: chosen because {source.name} ends in {source.suffix}."
    first = sources[0]
    chosen, reason = guess_text_format(first.head(), language)
    return chosen, f"format {chosen}: chosen because {reason} in {first.name}. Name the format if this is wrong."


def guess_text_format(head: bytes, language: str = "en") -> tuple[str, str]:
    """Format and reason from the first bytes of a file; bytes that are not text are left for the reader to report."""
    if head.startswith(b"PAR1"):
        return "parquet", "of the Parquet signature"
    text = head.decode("utf-8-sig", errors="replace")
    lines = [line.strip() for line in text.split("\n")]
    if len(head) > len(lines[-1]) and len(lines) > 1 and not text.endswith("\n"):
        lines.pop()  # the sample may end inside a line
    lines = lines[: 4 * _SAMPLE_LINES]
    full = [line for line in lines if line]
    if full and _is_json_object(full[0]):
        return "jsonl", "the first line is a JSON object"
    if not full:
        return "paragraphs", "nothing else is known"
    if _is_wrapped(lines, full):
        return "wrapped", f"lines end in mid-sentence and none is longer than {max(map(len, full))} characters"
    if sum(map(len, full)) / len(full) > 2000:
        return "documents", "lines are longer than 2,000 characters on average"
    splitter = SentenceSplitter(language)
    sample = full[:_SAMPLE_LINES]
    many = sum(len(splitter.split(line)) > 1 for line in sample) / len(sample)
    if many < 0.1:
        return "sentences", f"{100 - 100 * many:.0f} % of the lines hold a single sentence"
    return "paragraphs", f"{100 * many:.0f} % of the lines hold several sentences"


def _is_json_object(line: str) -> bool:
    try:
        return line.startswith("{") and isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _is_wrapped(lines: list[str], full: list[str]) -> bool:
    """Whether lines that another line follows mostly break off in mid-sentence at a common width."""
    inner = [line for line, following in pairwise(lines) if line and following]
    if len(inner) < 2 or max(map(len, full)) > 200:
        return False
    broken = sum(not line.endswith(_ENDS) for line in inner)
    return broken > 0.6 * len(inner)
