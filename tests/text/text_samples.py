"""Where recorded text lies, and hard text to make examples of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

TEXT_GOLDEN = Path(__file__).parents[1] / "golden" / "text"

FRAGMENTS = [
    "``", "''", "`", "'", " ", "  ", "\t", "\n", "\r\n", "\u00a0", "\u3000", "\u2009",
    "\u200b", "\u200d", "\ufeff", "\x00",
    "\x1c", "\x85", "e\u0301", "é", "É", "a\u0323\u0302", "\u0301", "ﬁ", "ﬃ", "½", "①",
    "Ⅷ", "™", "…", "¨", "²,", "İ", "ẞ", "ß",
    "ΟΔΟΣ", "ς", "한국어", "각", "中文", "，", "日本", "ｶﾞ", "😀", "👨\u200d👩\u200d👧", "🇩🇪", "<cls>",
    "<eop>", "</s>", "<unk>", "[CLS]",
    "▁", "\u2585", "⁇", "9,000", "1,", "2001, ", "24,", "٣,", "5,5,", ".", "(", ")",
    "£10", "–", "€", "the ", "The", " of",
    "value", "U.S.A.", "ﷺ", "x" * 40, "क्षि", "ภาษาไทย", "\u202e", "\u00ad",
    "𝔘𝔫𝔦", "ŉ", "ǆ",
]  # fmt: skip

texts = st.one_of(
    st.lists(st.one_of(st.sampled_from(FRAGMENTS), st.text(max_size=4)), max_size=14).map("".join),
    st.text(max_size=40),
)
"""Any text without lone surrogates, rich in what normalization changes."""


def records(name: str) -> list[dict[str, Any]]:
    return json.loads((TEXT_GOLDEN / name).read_text(encoding="utf-8"))
