"""Rows of a data file, one at a time: JSONL, JSON, CSV, Parquet and Arrow, each told by its first bytes.

Memory stays bounded: JSON Lines, CSV, Parquet and Arrow are streamed; a JSON list is decoded element by element
from a window of the file.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from finefit.errors import InputError

_WINDOW = 1 << 20  # characters read at once of a JSON list
_LONGEST_ROW = 64 << 20  # characters of one sample: more is no text that is trained on
_PARQUET, _ARROW_FILE = (
    b"PAR1",
    b"ARROW1",
)  # parquet-format README "File Format"; Arrow columnar format "IPC File Format"
_ARROW_STREAM = b"\xff\xff\xff\xff"  # continuation mark of a stream's message, Arrow "Encapsulated message format"
_ROWS_AT_ONCE = 1024


@dataclass(frozen=True, slots=True)
class Row:
    """One row.

    Attributes:
        place: its line in the file, or its number from 1 where a file has no lines.
        value: the record as an object; None where it cannot be read.
        error: why not.
    """

    place: int
    value: dict[str, Any] | None
    error: str = ""


def read_rows(path: Path, progress: Callable[[int], None] = lambda done: None) -> Iterator[Row]:
    """The rows of a file in order.

    Args:
        path: the file.
        progress: told the bytes (text files) that are read so far.

    Raises:
        InputError: no such file, not a data file, or a Parquet or Arrow file without pyarrow.
    """
    try:
        with path.open("rb") as handle:
            head = handle.read(4096)
    except FileNotFoundError:
        raise InputError("no such file", where=str(path), fix="check the path") from None
    except IsADirectoryError:
        raise InputError("this is a folder", where=str(path), fix="name one data file in it") from None
    except OSError as error:
        raise InputError(f"the data cannot be read: {error.strerror}", where=str(path), fix="check the file") from None
    try:
        if head.startswith(_PARQUET):
            yield from _columns(path, "parquet")
        elif head.startswith(_ARROW_FILE) or head.startswith(_ARROW_STREAM):
            yield from _columns(path, "arrow")
        elif head.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"["):
            yield from _json_list(path, progress)
        elif path.suffix.lower() in (".csv", ".tsv"):
            yield from _csv(path, progress)
        elif b"\x00" in head:
            raise InputError(
                "this is not a data file that can be read",
                where=str(path),
                fix="name a JSONL, JSON, CSV, Parquet or Arrow file",
            )
        else:
            yield from _json_lines(path, progress)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"the data cannot be read: {error}", where=str(path), fix="check the file") from None


def _json_lines(path: Path, progress: Callable[[int], None]) -> Iterator[Row]:
    done = 0
    with path.open("rb") as handle:
        for number, line in enumerate(iter(lambda: handle.readline(_LONGEST_ROW), b""), 1):
            done += len(line)
            progress(done)
            if not line.strip():
                continue
            try:
                value = json.loads(line.decode("utf-8-sig" if number == 1 else "utf-8"))
            except (ValueError, RecursionError):
                yield Row(number, None, "not JSON")
                continue
            yield _object(number, value)


def _object(place: int, value: object) -> Row:
    return Row(place, value) if isinstance(value, dict) else Row(place, None, "not an object")


def _json_list(path: Path, progress: Callable[[int], None]) -> Iterator[Row]:
    """Elements of one list; what follows a damaged element cannot be told apart and is named once."""
    decoder = json.JSONDecoder()
    with path.open(encoding="utf-8-sig") as handle:
        text = handle.read(_WINDOW).lstrip()[1:]
        place, done, ended = 0, len(text), False
        at = 0
        while True:
            at = _skip(text, at)
            if at < len(text) and text[at] == "]":
                return
            try:
                value, end = decoder.raw_decode(text, at) if at < len(text) else (None, len(text) + 1)
                if end >= len(text) and not ended:
                    raise IndexError  # a number may go on
            except (ValueError, IndexError, RecursionError):
                more = "" if ended or len(text) - at > _LONGEST_ROW else handle.read(max(_WINDOW, len(text) - at))
                if not more:
                    yield Row(place + 1, None, "not JSON from here on")
                    return
                text, at, done = text[at:] + more, 0, done + len(more)
                progress(done)
                continue
            if end > len(text):
                return
            place += 1
            yield _object(place, value)
            at = end


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n,":
        at += 1
    return at


def _csv(path: Path, progress: Callable[[int], None]) -> Iterator[Row]:
    csv.field_size_limit(_LONGEST_ROW)
    with path.open(encoding="utf-8-sig", newline="") as handle:
        rows = csv.reader(handle, delimiter="\t" if path.suffix.lower() == ".tsv" else ",")
        try:
            header = next(rows, [])
            done = 0
            for cells in rows:
                done += sum(map(len, cells)) + len(cells)
                progress(done)
                if not cells:
                    continue
                if len(cells) != len(header):
                    yield Row(rows.line_num, None, "another number of cells than the header")
                else:
                    yield Row(rows.line_num, dict(zip(header, cells, strict=True)))
        except csv.Error:
            yield Row(rows.line_num, None, "not CSV from here on")


def _columns(path: Path, kind: str) -> Iterator[Row]:
    try:
        import pyarrow as pa
        import pyarrow.ipc as ipc
        import pyarrow.parquet as pq
    except ImportError:
        raise InputError(
            "Parquet and Arrow files are read by pyarrow, which is not installed",
            where=str(path),
            fix="pip install 'finefit[data]'",
        ) from None
    place = 0
    try:
        if kind == "parquet":
            with pq.ParquetFile(path, memory_map=True) as file:
                for batch in file.iter_batches(_ROWS_AT_ONCE):
                    for value in batch.to_pylist():
                        place += 1
                        yield Row(place, value)
            return
        with pa.memory_map(str(path)) as source:
            opened = ipc.open_file(source) if source.read(6) == _ARROW_FILE else None
            if opened is None:
                source.seek(0)
            stream = opened or ipc.open_stream(source)
            batches = (opened.get_batch(i) for i in range(opened.num_record_batches)) if opened else iter(stream)
            for batch in batches:
                for start in range(0, batch.num_rows, _ROWS_AT_ONCE):
                    for value in batch.slice(start, _ROWS_AT_ONCE).to_pylist():
                        place += 1
                        yield Row(place, value)
    except (pa.ArrowException, OSError, ValueError) as error:
        if place == 0:
            raise InputError("this file is damaged", where=str(path), fix="write the file again") from error
        yield Row(place + 1, None, "damaged from here on")
