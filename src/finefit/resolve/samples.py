"""Samples of a data file, counted in one pass, with a rough length in tokens where the text can be seen."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from finefit.errors import InputError

# Reading stops being quick beyond this: larger files are "size unknown" and asked for with --samples
MAX_LINES_BYTES = 2_000_000_000
MAX_JSON_BYTES = 100_000_000
MEASURED = 2_000  # samples whose text is measured; the rest are only counted

# DeepSeek API documentation, "Token & Token Usage" (api-docs.deepseek.com/quick_start/token_usage): an English
# character is about 0.3 tokens, a Chinese one about 0.6; ratios differ between tokenizers
TOKENS_PER_CHARACTER = 0.3
TOKENS_PER_CJK = 0.6
RATIO = "0.3 tokens a character, 0.6 a Chinese one (DeepSeek's rule of thumb)"


@dataclass(frozen=True, slots=True)
class FileCount:
    """What one pass over a file tells.

    Attributes:
        samples: records in the file.
        mean: rough mean tokens of the first ``MEASURED`` records, by ``RATIO``; template tokens not included.
        longest: rough tokens of the longest of them.
    """

    samples: int
    mean: float | None
    longest: int | None


def count(path: Path) -> FileCount | None:
    """Records of a .jsonl, .json or .csv file; None where the kind or the size is beyond counting.

    Raises:
        InputError: the file is missing, unreadable or malformed.
    """
    kind = path.suffix.lower()
    if kind not in (".jsonl", ".json", ".csv"):
        return None
    try:
        size = path.stat().st_size
        if kind == ".csv":
            return _tally(_csv_rows(path)) if size <= MAX_LINES_BYTES else None
        with path.open("rb") as handle:
            first = next((c for c in iter(lambda: handle.read(1), b"") if not c.isspace() and c != b"\xef"), b"")
        if first == b"[":
            return _tally(iter(_json_array(path))) if size <= MAX_JSON_BYTES else None
        return _tally(_json_lines(path)) if size <= MAX_LINES_BYTES else None
    except FileNotFoundError:
        raise InputError("no such file", where=str(path), fix="check the path") from None
    except (OSError, UnicodeDecodeError, csv.Error, RecursionError, MemoryError) as error:
        raise InputError(f"the data cannot be read: {error}", where=str(path), fix="check the file") from None


def tokens_in(text: str) -> float:
    """Rough tokens of a text, by ``RATIO``."""
    cjk = sum(1 for c in text if "\u2e80" <= c <= "\u9fff" or "\uac00" <= c <= "\ud7ff" or c >= "\U00020000")
    return TOKENS_PER_CJK * cjk + TOKENS_PER_CHARACTER * (len(text) - cjk)


def _tally(records: Iterator[object]) -> FileCount:
    lengths = [tokens_in(_text(record)) for record in islice(records, MEASURED)]
    samples = len(lengths) + sum(1 for _ in records)
    if not lengths or not any(lengths):
        return FileCount(samples, None, None)
    return FileCount(samples, sum(lengths) / len(lengths), max(1, round(max(lengths))))


def _text(record: object, depth: int = 0) -> str:
    """All texts of a record: which columns a template takes is not known here, so every one counts."""
    if isinstance(record, str):
        return record
    if depth < 8 and isinstance(record, dict):
        return "".join(_text(value, depth + 1) for value in record.values())
    if depth < 8 and isinstance(record, list):
        return "".join(_text(value, depth + 1) for value in record)
    return ""


def _json_lines(path: Path) -> Iterator[object]:
    seen = 0
    with path.open("rb") as handle:
        for number, line in enumerate(handle, 1):
            if not line.strip():
                continue
            if seen >= MEASURED:
                if line.lstrip().startswith(b"{"):
                    yield None
                continue
            try:
                value = json.loads(line.decode("utf-8-sig"))
            except ValueError as error:
                raise InputError(
                    f"this line is not JSON: {error}", where=f"{path}:{number}", fix="write one JSON object a line"
                ) from None
            if isinstance(value, dict):  # a number or a text alone is no sample
                seen += 1
                yield value


def _json_array(path: Path) -> list[object]:
    try:
        value = json.loads(path.read_text(encoding="utf-8-sig"))
    except ValueError as error:
        raise InputError(f"this is not JSON: {error}", where=str(path), fix="correct the file") from None
    if not isinstance(value, list):
        raise InputError("this is not a list of samples", where=str(path), fix="write a list, or one object a line")
    return [record for record in value if isinstance(record, dict)]


def _csv_rows(path: Path) -> Iterator[object]:
    with path.open(encoding="utf-8-sig", newline="") as handle:
        rows = csv.reader(handle)
        next(rows, None)  # the header
        yield from (list(row) for row in rows if row)
