"""Every input format gives the units it should, and bad input is named by file, line and byte."""

from __future__ import annotations

import gzip
import io
import json
import os
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xlnet.errors import ConfigurationError, InputError
from xlnet.pretraining.corpus import sources as sources_module
from xlnet.pretraining.corpus.detect import choose_format, guess_text_format
from xlnet.pretraining.corpus.readers import read_texts, read_units
from xlnet.pretraining.corpus.sources import find_sources, read_lines

ONE = "The first sentence stands here. The second one follows it."
TWO = "Another paragraph has its own words. It has two sentences as well."


def units(path, format, **options):
    found, _ = find_sources(path)
    return [unit.decode() for unit in read_units(found, format, **options)]


def write(folder, name, data):
    path = folder / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


@pytest.mark.parametrize("format", ["sentences", "paragraphs"])
def test_blank_lines_end_documents(tmp_path, format):
    path = write(tmp_path, "a.txt", "\n\n one \ntwo\n \n\u00a0\nthree\n\n")
    assert units(path, format) == ["one", "two", "", "three", ""]


def test_each_line_is_a_document(tmp_path):
    assert units(write(tmp_path, "a.txt", "one\n\ntwo"), "documents") == ["one", "", "two", ""]


def test_wrapped_lines_join_and_a_file_is_a_document(tmp_path):
    path = write(tmp_path, "a.txt", "one\n  two\n\n\nthree\n")
    other = write(tmp_path, "b.txt", "four\nfive")
    assert units([path, other], "wrapped") == ["one two", "three", "", "four five", ""]


def test_wrapped_text_without_blank_lines_stays_bounded(tmp_path):
    path = write(tmp_path, "a.txt", "word word word\n" * 200_000)
    found = units(path, "wrapped")
    assert len(found) > 2
    assert max(map(len, found)) < 1.2e6
    assert sum(unit.count("word") for unit in found) == 600_000


def test_json_records_are_documents_of_lines(tmp_path):
    rows = [{"body": "one\n\ntwo\u2028still two\r\n", "id": 1}, {"body": "", "id": 2}, {"body": "three"}]
    path = write(tmp_path, "a.jsonl", "\n".join(map(json.dumps, rows)) + "\n\n")
    assert units(path, "jsonl", field="body") == ["one", "two\u2028still two", "", "three", ""]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"text": "a"', r"line 2 is not valid JSON"),
        ("[1]", r"line 2 holds a JSON list"),
        ('{"txt": "a", "id": 1}', r"line 2 has no field 'text'; its fields are 'txt', 'id'\. Did you mean 'txt'\?"),
        ('{"text": null}', r"line 2: 'text' must be text, but it is None"),
        ('{"text": "a\\u0000b"}', r"line 2: 'text' holds a NUL character at position 1"),
        ('{"text": "a\\ud800"}', r"line 2: 'text' holds half a surrogate pair at position 1"),
        ("[" * 100_000, r"line 2 is not valid JSON"),
    ],
)
def test_bad_json_names_file_and_line(tmp_path, line, message):
    path = write(tmp_path, "a.jsonl", '{"text": "fine"}\n' + line)
    with pytest.raises(InputError, match=r"a\.jsonl, " + message):
        units(path, "jsonl")


def test_parquet_rows_are_documents(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet

    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"text": ["one\ntwo", "three"], "n": [1, 2]}), path)
    assert choose_format(find_sources(path)[0], "auto")[0] == "parquet"
    read = []
    assert [u.decode() for u in read_units(find_sources(path)[0], "parquet", on_read=read.append)] == [
        "one", "two", "", "three", "",
    ]  # fmt: skip
    assert sum(read) == path.stat().st_size
    with pytest.raises(InputError, match=r"no column 'txt'; its columns are 'text', 'n'.*Did you mean 'text'"):
        units(path, "parquet", field="txt")
    with pytest.raises(InputError, match=r"row 1: 'n' must be text"):
        units(path, "parquet", field="n")
    with pytest.raises(InputError, match="cannot be read as Parquet"):
        units(write(tmp_path, "b.parquet", b"PAR1 nonsense"), "parquet")


@pytest.mark.parametrize("block", [1, 2, 3, 7, 1 << 20])
def test_lines_do_not_depend_on_block_size(tmp_path, monkeypatch, block):
    monkeypatch.setattr(sources_module, "BLOCK_BYTES", block)
    text = "\ufeffa\u0085b\u2028c\r\nd\x0ce\x1df\n\n\ufeffg€😀\rh"
    path = write(tmp_path, "a.txt", text)
    lines = [line.decode() for line in read_lines(find_sources(path)[0][0])]
    assert lines == ["a\u0085b\u2028c", "d\x0ce\x1df", "", "\ufeffg€😀\rh"]


@settings(deadline=None, max_examples=60)
@given(st.text(alphabet="aé€😀\n\r \u0085", max_size=60), st.integers(1, 9))
def test_any_text_splits_at_newlines_only(tmp_path_factory, text, block):
    path = write(tmp_path_factory.mktemp("lines"), "a.txt", "x" + text)
    expected = [line.removesuffix("\r") for line in ("x" + text).split("\n")]
    if not ("x" + text).split("\n")[-1]:
        expected.pop()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources_module, "BLOCK_BYTES", block)
        assert [line.decode() for line in read_lines(find_sources(path)[0][0])] == expected


@pytest.mark.parametrize("block", [1, 4, 1 << 20])
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"fine\nbad \xff here", r"offset 9 \(line 2\): byte 0xff is not valid UTF-8"),
        (b"fine\ncut \xe2\x82", r"offset 9 \(line 2\): byte 0xe2 is not valid UTF-8"),
        (b"fine\nfine\nfine\nbad \0", r"offset 19 \(line 4\): a NUL byte"),
        ("\ufeffab\n".encode() + b"\xc3(", r"offset 6 \(line 2\): byte 0xc3"),
    ],
)
def test_bytes_that_are_not_text_are_named(tmp_path, monkeypatch, block, data, message):
    monkeypatch.setattr(sources_module, "BLOCK_BYTES", block)
    path = write(tmp_path, "a.txt", data)
    with pytest.raises(InputError, match=message):
        units(path, "paragraphs")
    zipped = write(tmp_path, "a.txt.gz", gzip.compress(data))
    with pytest.raises(InputError, match=message):
        units(zipped, "paragraphs")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (bytes(range(256)) * 20, "binary file"),
        ("text".encode("utf-16"), "UTF-16"),
        (b"PK\x03\x04\0\0\0\xff", "zip archive"),
        (b"%PDF-1.4\n\xe2\xe3", "PDF"),
    ],
)
def test_files_that_are_not_text_are_recognized(tmp_path, data, message):
    with pytest.raises(InputError, match=message):
        units(write(tmp_path, "a.txt", data), "paragraphs")


def test_gzip_is_told_by_content_and_its_damage_is_named(tmp_path):
    packed = gzip.compress(b"one\ntwo\n" * 4000)
    assert units(write(tmp_path, "plain.txt", packed), "paragraphs")[:2] == ["one", "two"]
    with pytest.raises(InputError, match="damaged or cut-off gzip"):
        units(write(tmp_path, "cut.gz", packed[:-20]), "paragraphs")
    broken = packed[:30] + b"\x00\x01\x02" + packed[33:]
    with pytest.raises(InputError, match="damaged or cut-off gzip"):
        units(write(tmp_path, "broken.gz", broken), "paragraphs")


def test_a_line_without_end_is_refused_before_memory_is(tmp_path, monkeypatch):
    monkeypatch.setattr(sources_module, "BLOCK_BYTES", 64)
    monkeypatch.setattr(sources_module, "LONGEST_LINE", 1000)
    assert units(write(tmp_path, "a.txt", "x" * 1000 + "\ny"), "paragraphs") == ["x" * 1000, "y", ""]
    with pytest.raises(InputError, match=r"a\.txt has a line longer than"):
        units(write(tmp_path, "a.txt", "x" * 1200), "paragraphs")


def test_progress_adds_up_to_the_size_on_disk(tmp_path):
    for name, data in (("a.txt", b"line\n" * 1000), ("b.txt.gz", gzip.compress(os.urandom(9).hex().encode() * 1000))):
        path = write(tmp_path, name, data)
        read: list[int] = []
        list(read_units(find_sources(path)[0], "paragraphs", on_read=read.append))
        assert sum(read) == path.stat().st_size


def damaged_archives() -> dict[str, bytes]:
    packed = gzip.compress(b"one two three\n" * 400)
    checksum = len(packed) - 8
    return {
        "cut": packed[: len(packed) // 2],
        "cut before its checksum": packed[:checksum],
        "cut in its head": packed[:6],
        "wrong bits": packed[:15] + bytes(byte ^ 0x55 for byte in packed[15:30]) + packed[30:],
        "wrong checksum": packed[:checksum] + bytes([packed[checksum] ^ 1]) + packed[checksum + 1 :],
        "wrong method": packed[:2] + b"\x01" + packed[3:],
    }


@pytest.mark.parametrize("damage", damaged_archives())
@pytest.mark.parametrize("format", ["auto", "paragraphs"])
@pytest.mark.parametrize("piped", [False, True])
def test_an_archive_damaged_near_its_start_is_named_with_the_remedy(tmp_path, monkeypatch, damage, format, piped):
    data = damaged_archives()[damage]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    path = "-" if piped else write(tmp_path, "a.txt.gz", data)
    name = "standard input" if piped else r"a\.txt\.gz"
    with pytest.raises(InputError, match=rf"{name} is a damaged or cut-off gzip file \(.+[^.]\)\. .*`gzip -t`"):
        list(read_texts(path, format))


def test_standard_input_that_is_closed_is_refused(monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(InputError, match=r"no standard input.*name a file"):
        list(read_texts("-"))


def test_inputs_may_be_files_globs_folders_and_are_read_once(tmp_path):
    first = write(tmp_path, "b.txt", "b")
    (tmp_path / "deep").mkdir()
    second = write(tmp_path / "deep", "a.txt", "a")
    write(tmp_path, ".hidden.txt", "h")
    write(tmp_path, "image.png", "p")
    write(tmp_path, "empty.txt", "")
    found, notes = find_sources([tmp_path, tmp_path / "*.txt", first])
    assert [source.path for source in found] == [first, second]
    assert len(notes) == 2 and "1 empty files were passed over" in notes[0]


def test_missing_inputs_are_named(tmp_path):
    write(tmp_path, "corpus.txt", "text")
    with pytest.raises(InputError, match=r"no such file or folder\. Did you mean 'corpus\.txt'\?"):
        find_sources(tmp_path / "corpsu.txt")
    with pytest.raises(InputError, match="matches no file"):
        find_sources(str(tmp_path / "*.csv"))
    with pytest.raises(InputError, match="is empty"):
        find_sources(write(tmp_path, "empty.txt", ""))
    with pytest.raises(InputError, match="No input is given"):
        find_sources([])
    (tmp_path / "images").mkdir()
    write(tmp_path / "images", "a.png", "x")
    with pytest.raises(InputError, match=r"folder without text.*only \.png"):
        find_sources(tmp_path / "images")


def test_unreadable_file_is_named(tmp_path):
    path = write(tmp_path, "a.txt", "text")
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("this user may read everything")
    with pytest.raises(InputError, match="cannot be read: Permission denied"):
        units(path, "paragraphs")


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_standard_input_is_guessed_without_losing_its_head(monkeypatch, pack):
    data = pack(f"{ONE}\n{TWO}\n".encode() * 5)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert list(read_texts("-")) == [ONE, TWO] * 5


def test_texts_for_the_tokenizer_skip_document_ends(tmp_path):
    path = write(tmp_path, "a.txt", f"{ONE}\n\n{TWO}\n")
    assert list(read_texts([path])) == [ONE, TWO]


PROSE = "It was a long day at the harbour and nobody had seen the ship come in before the evening bell rang twice."


@pytest.mark.parametrize(
    ("text", "format"),
    [
        (f"{ONE}\n{TWO}\n\n{ONE}\n", "paragraphs"),
        ("One sentence a line.\nThis is the next one.\n\nA new document.\n", "sentences"),
        ("\n".join(" ".join(PROSE.split()[i : i + 6]) for i in (0, 6, 12, 18)) + "\n\nEnd.\n", "wrapped"),
        ("\n".join(f"{PROSE} {ONE} " * 20 for _ in range(3)), "documents"),
        ('{"text": "One."}\n{"text": "Two."}\n', "jsonl"),
        ("", "paragraphs"),
    ],
)
def test_guesses(text, format):
    assert guess_text_format(text.encode())[0] == format


def test_guess_says_why_and_mixed_formats_are_refused(tmp_path):
    text, rows = write(tmp_path, "a.txt", f"{ONE}\n{TWO}\n"), write(tmp_path, "b.jsonl", '{"text": "One."}')
    chosen, note = choose_format(find_sources(text)[0], "auto")
    assert chosen == "paragraphs"
    assert "100 % of the lines hold several sentences" in note and "a.txt" in note
    with pytest.raises(ConfigurationError, match=r"mix formats: .*a\.txt \(text\) and .*b\.jsonl \(jsonl\)"):
        choose_format(find_sources([text, rows])[0], "auto")
    assert choose_format(find_sources([text, rows])[0], "paragraphs") == ("paragraphs", "")


@pytest.mark.data
def test_books_are_recognized_as_paragraphs(shared_data):
    for name, format in (("books_5mb.txt.gz", "paragraphs"), ("lambada_test.jsonl.gz", "jsonl")):
        assert choose_format(find_sources(shared_data / "corpus" / name)[0], "auto")[0] == format
