"""Documents, queries and judgments: the forms of TREC and of SMART (Cranfield)."""

from __future__ import annotations

import html
import re
from collections import defaultdict
from pathlib import Path

from xlnet.errors import InputError
from xlnet.tasks.datasets.tables import read_text
from xlnet.tasks.ranking_metrics import whole_grade

Texts = dict[str, str]
Judgments = dict[str, dict[str, float]]

_SMART_FIELD = re.compile(r"\.([A-Z])\s*")
_SPACE = re.compile(r"\s+")
_TOPIC = re.compile(r"<top>(?P<sgml>.*?)</top>|<topic\b(?P<keys>[^>]*)>(?P<xml>.*?)</topic\s*>", re.DOTALL | re.I)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)


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
    """Topics in either form: id -> title or query, what a person would type.

    ``<top>`` elements hold ``<num>`` and ``<title>``, closed or not (ad hoc tracks). ``<topic number="1">`` elements
    hold ``<query>`` beside a description and subtopics (the Web Track since 2009), or ``<title>`` (later tracks).

    Raises:
        InputError: no query, one without number or text (names its line), or a number twice.
    """
    found: Texts = {}
    # The line ends of comments stay, so that lines are those of the file.
    text = _COMMENT.sub(lambda match: "\n" * match[0].count("\n"), read_text(path))
    for match in _TOPIC.finditer(text):
        where = f"{path}:{text[: match.start()].count(chr(10)) + 1}"
        name, query = _old_topic(match, where) if match["xml"] is None else _web_topic(match, where)
        _add(found, name, query, path)
    if not found:
        raise InputError(f'{path} holds no <top>...</top>, nor <topic number="...">...</topic>.')
    return found


def _old_topic(match: re.Match[str], where: str) -> tuple[str, str]:
    name = re.search(r"<num>\s*(?:Number:)?\s*([^\s<]+)", match["sgml"], re.I)
    title = re.search(r"<title>\s*(?:Topic:)?\s*(.*?)\s*(?=<|\Z)", match["sgml"], re.DOTALL | re.I)
    if name is None or title is None:
        raise InputError(f"{where}: in <top> there must be a <num> and a <title>.")
    return name[1], _clean(title[1])


def _web_topic(match: re.Match[str], where: str) -> tuple[str, str]:
    name = re.search(r"""\bnumber\s*=\s*["']\s*([^"']+?)\s*["']""", match["keys"], re.I)
    query = re.search(r"<(query|title)>(.*?)</\1\s*>", match["xml"], re.DOTALL | re.I)
    if name is None or query is None:
        raise InputError(f'{where}: there must be <topic number="...">, and in it a <query> or a <title>.')
    return name[1], html.unescape(_clean(query[2]))


def read_qrels(path: Path) -> Judgments:
    """TREC judgments, ``query iteration document grade`` a line: query -> document -> grade.

    Lines of five columns are the Web Track's of 2009, ``query document grade method probability``.

    Raises:
        InputError: names file and line of another form, of a grade that is no whole number, and of a second grade
            that is not the first (judgments by subtopic are no judgments of documents).
    """
    found: Judgments = defaultdict(dict)
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        columns = line.split()
        if len(columns) not in (4, 5):
            raise InputError(f"{path}:{number} must be 'query 0 document grade', but is {line!r}.")
        query, document, grade = (columns[0], *columns[2:]) if len(columns) == 4 else columns[:3]
        value = whole_grade(grade, f"{path}:{number}")
        if found[query].setdefault(document, value) != value:
            raise InputError(
                f"{path}:{number}: query {query}, document {document} has the grade {value:g} here and "
                f"{found[query][document]:g} further up; there must be one."
            )
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
        columns = line.split()
        if len(columns) != 3:
            raise InputError(f"{path}:{number} must be 'query document grade', but is {line!r}.")
        query, document, grade = columns
        value = whole_grade(grade, f"{path}:{number}")
        if value > 5:
            raise InputError(f"{path}:{number}: grade {grade} must be 1 (best) to 5 (of no interest), or -1.")
        if value > 0:
            found[query][document] = max(5.0 - value, found[query].get(document, 0.0))
    return dict(found)


def _add(found: Texts, name: str, text: str, path: Path) -> None:
    if name in found:
        raise InputError(f"{path}: the id {name!r} stands there twice.")
    found[name] = text
