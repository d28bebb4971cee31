"""Documents, queries and judgments: the forms of TREC and of SMART (Cranfield)."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

from xlnet.errors import InputError
from xlnet.tasks.datasets.tables import read_text

Texts = dict[str, str]
Judgments = dict[str, dict[str, float]]

_SMART_FIELD = re.compile(r"\.([A-Z])\s*")
_SPACE = re.compile(r"\s+")


def _clean(text: str) -> str:
    return _SPACE.sub(" ", re.sub(r"<[^>]*>", " ", text)).strip()


def read_trec_documents(path: Path) -> Texts:
    """``<DOC>`` elements with a ``<DOCNO>``: id -> text, without markup.

    Raises:
        InputError: no document, one without id, or an id twice.
    """
    found: Texts = {}
    for number, match in enumerate(re.finditer(r"<DOC>(.*?)</DOC>", read_text(path), re.DOTALL), start=1):
        name = re.search(r"<DOCNO>\s*(.*?)\s*</DOCNO>", match[1], re.DOTALL)
        if name is None or not name[1]:
            raise InputError(f"{path}, document {number}: there is no <DOCNO>.")
        _add(found, name[1], _clean(match[1].replace(name[0], " ")), path)
    if not found:
        raise InputError(f"{path} holds no <DOC>...</DOC>.")
    return found


def read_trec_queries(path: Path) -> Texts:
    """``<top>`` elements with ``<num>`` and ``<title>``, closed or not: id -> title.

    Raises:
        InputError: no query, one without number or title, or a number twice.
    """
    found: Texts = {}
    for number, match in enumerate(re.finditer(r"<top>(.*?)</top>", read_text(path), re.DOTALL | re.I), start=1):
        name = re.search(r"<num>\s*(?:Number:)?\s*([^\s<]+)", match[1], re.I)
        title = re.search(r"<title>\s*(?:Topic:)?\s*(.*?)\s*(?=<|\Z)", match[1], re.DOTALL | re.I)
        if name is None or title is None:
            raise InputError(f"{path}, query {number}: there must be a <num> and a <title>.")
        _add(found, name[1], _clean(title[1]), path)
    if not found:
        raise InputError(f"{path} holds no <top>...</top>.")
    return found


def read_qrels(path: Path) -> Judgments:
    """TREC judgments, ``query iteration document grade`` a line: query -> document -> grade.

    Raises:
        InputError: names file and line of another form.
    """
    found: Judgments = defaultdict(dict)
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        columns = line.split()
        try:
            query, _, document, grade = columns
            found[query][document] = float(grade)
        except ValueError:
            raise InputError(f"{path}:{number} must be 'query 0 document grade', but is {line!r}.") from None
    return dict(found)


def read_smart(path: Path) -> list[tuple[str, Texts]]:
    """Entries of a SMART file in order: the id after ``.I``, and the text of each field by its letter.

    A field that comes twice is joined; what is no field of one letter at the start of a line is text.

    Raises:
        InputError: text before the first ``.I``.
    """
    entries: list[tuple[str, Texts]] = []
    field = ""
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if line.startswith(".I ") or line.strip() == ".I":
            entries.append((line[2:].strip(), {}))
            field = ""
        elif (match := _SMART_FIELD.fullmatch(line)) is not None and entries:
            field = match[1]
        elif line.strip():
            if not entries or not field:
                raise InputError(f"{path}:{number}: text before '.I' and a field such as '.W': {line[:60]!r}.")
            texts = entries[-1][1]
            texts[field] = f"{texts[field]} {line.strip()}" if field in texts else line.strip()
    return entries


def read_smart_documents(path: Path) -> Texts:
    """Documents of a SMART file: id -> text (``.W``, which holds the title in Cranfield), or the title (``.T``)."""
    found: Texts = {}
    for name, fields in read_smart(path):
        _add(found, name, fields.get("W") or fields.get("T", ""), path)
    return found


def read_smart_queries(path: Path) -> Texts:
    """Queries of a SMART file by their place, from 1: Cranfield's judgments count so, not by the ``.I`` numbers."""
    return {str(place): fields.get("W", "") for place, (_, fields) in enumerate(read_smart(path), start=1)}


def read_cranfield_judgments(path: Path) -> Judgments:
    """Cranfield's ``query document grade``, where 1 is best and 4 least: turned into gains of 4 to 1.

    Grade -1 marks the document the query was made from, which is left out.

    Raises:
        InputError: names file and line of another form.
    """
    found: Judgments = defaultdict(dict)
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            query, document, grade = line.split()
            value = float(grade)
        except ValueError:
            raise InputError(f"{path}:{number} must be 'query document grade', but is {line!r}.") from None
        if value > 0:
            found[query][document] = max(5.0 - value, found[query].get(document, 0.0))
    return dict(found)


def _add(found: Texts, name: str, text: str, path: Path) -> None:
    if name in found:
        raise InputError(f"{path}: the id {name!r} stands there twice.")
    found[name] = text
