"""Sentence ends in running text, from the ``sentencex`` library (rules per language, no download)."""

from __future__ import annotations

import re

import sentencex

from xlnet.errors import ConfigurationError

# Rules for quotation marks reach as far as the text does; one unbalanced quote would glue a whole book together, and
# time grows faster than length. So long text is read through a window that only grows where it holds no sentence end.
_WINDOW = 8_192
_LARGEST_WINDOW = 131_072


class SentenceSplitter:
    """Splits text into sentences; nothing but white space at their borders is lost.

    Args:
        language: ISO 639 code (``en``, ``de``, ``zh`` ...); a language without rules of its own uses general ones.

    Raises:
        ConfigurationError: ``language`` is not such a code.
    """

    def __init__(self, language: str = "en") -> None:
        if not re.fullmatch(r"[a-z]{2,3}", language):
            raise ConfigurationError(f"language={language!r} must be an ISO 639 code of two or three letters, as 'en'.")
        self.language = language

    def split(self, text: str) -> list[str]:
        """Sentences of ``text`` in order, without surrounding white space and without empty ones."""
        if len(text) <= _WINDOW:
            parts = sentencex.segment(self.language, text)
        else:
            parts = self._split_long(text)
        return [stripped for part in parts if (stripped := part.strip())]

    def _split_long(self, text: str) -> list[str]:
        found: list[str] = []
        start, window = 0, _WINDOW
        while start < len(text):
            part = text[start : start + window]
            sentences = sentencex.segment(self.language, part)
            if start + window >= len(text):
                found += sentences
                break
            if len(sentences) > 1:
                kept = sentences[:-1]  # the last one may go on beyond the window
            elif window < _LARGEST_WINDOW:
                window *= 2
                continue
            else:
                cut = max(part.rfind(" "), part.rfind("\t")) + 1
                kept = [part[:cut] if cut else part]
            found += kept
            start += sum(map(len, kept))
            window = _WINDOW
        return found
