"""Lengths of the samples of a data file in tokens, counted in one pass over it."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from finefit.errors import InputError
from finefit.formats.data_rows import read_rows
from finefit.formats.data_shapes import SHAPES, BadRow, Sample, sample_of, shape_of
from finefit.resolve.chat_templates import Template
from finefit.resolve.token_count import Counter

_TEXTS_AT_ONCE = 1024
_CHARACTERS_AT_ONCE = 4 << 20
_NAMED = 10  # bad rows that are named; the others are counted


@dataclass(frozen=True, slots=True)
class Measured:
    """What was counted.

    Attributes:
        lengths: tokens of each usable sample before truncation, unsigned 32-bit; of a pair those of the longer one.
        places: line, or number, of each of them.
        tokens: of all samples before truncation, both answers of pairs.
        cut_tokens: after truncation.
        rows_per_sample: 2 for preference pairs.
        shape: what the rows are.
        bad: rows that cannot be used; named: (line, why) of the first of them.
        pictured: samples with pictures, video or sound, whose tokens are not counted.
    """

    lengths: array[int]
    places: array[int]
    tokens: int
    cut_tokens: int
    rows_per_sample: int
    shape: str
    bad: int
    named: tuple[tuple[int, str], ...]
    pictured: int


def measure(
    path: str | Path,
    counter: Counter,
    template: Template,
    *,
    shape: str | None = None,
    cutoff: int | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> Measured:
    """Count the tokens of every sample.

    Args:
        path: the data file.
        template: what makes one text of a chat.
        shape: a name of ``SHAPES``; told by the first readable row if left out.
        cutoff: tokens a sample is cut to; None for no truncation.

    Raises:
        InputError: the file cannot be read, or holds no usable row.
    """
    file = Path(path).expanduser()
    if shape is not None and shape not in SHAPES:
        raise InputError(f"{shape[:40]!r} is no shape of data", where="--format", fix=f"write {', '.join(SHAPES)}")
    pass_ = _Pass(counter, template, cutoff)
    named: list[tuple[int, str]] = []
    bad = pictured = 0
    for row in read_rows(file, progress):
        why = row.error
        if row.value is not None:
            shape = shape or shape_of(row.value, f"{path}:{row.place}")
            try:
                sample = sample_of(row.value, shape)
                pass_.add(row.place, sample)
                pictured += sample.pictured
            except BadRow as error:
                why = str(error)
        if why:
            bad += 1
            if len(named) < _NAMED:
                named.append((row.place, why))
    pass_.flush()
    if not pass_.lengths or shape is None:
        first = f" (line {named[0][0]}: {named[0][1]})" if named else ""
        raise InputError(f"the file holds no usable samples{first}", where=str(path), fix="name the training data")
    pairs = 2 if shape == "preference" else 1
    return Measured(pass_.lengths, pass_.places, pass_.tokens, pass_.cut, pairs, shape, bad, tuple(named), pictured)


class _Pass:
    """Texts are gathered and counted many at once: the tokenizer works on them in parallel."""

    def __init__(self, counter: Counter, template: Template, cutoff: int | None) -> None:
        self.counter, self.template, self.cutoff = counter, template, cutoff
        self.lengths, self.places = array("I"), array("Q")
        self.tokens = self.cut = 0
        self._texts: list[str] = []
        self._special = False  # a text gets the tokenizer's own special tokens, a chat those of its template
        self._waiting: list[tuple[int, int]] = []  # place, texts
        self._characters = 0

    def add(self, place: int, sample: Sample) -> None:
        if sample.text is not None:
            texts, special = [sample.text], True
        elif sample.answers:
            texts, special = [self.template([*sample.turns, *answer]) for answer in sample.answers], False
        else:
            texts, special = [self.template(sample.turns)], False
        if any(not text or text.isspace() for text in texts):
            raise BadRow("no text")
        for text in texts:
            try:
                text.encode()
            except UnicodeEncodeError:
                raise BadRow("half of a surrogate pair") from None
        self._special = special
        self._texts += texts
        self._waiting.append((place, len(texts)))
        self._characters += sum(map(len, texts))
        if len(self._texts) >= _TEXTS_AT_ONCE or self._characters >= _CHARACTERS_AT_ONCE:
            self.flush()

    def flush(self) -> None:
        if not self._texts:
            return
        # A text ends with the end-of-sequence token (trl 1.16 SFTTrainer add_eos; llamafactory processor/pretrain.py)
        more = 1 if self._special else 0
        counts = iter(self.counter.count(self._texts, self._special))
        for place, texts in self._waiting:
            found = [max(1, next(counts) + more) for _ in range(texts)]
            self.lengths.append(max(found))
            self.places.append(place)
            self.tokens += sum(found)
            self.cut += sum(min(tokens, self.cutoff) for tokens in found) if self.cutoff else sum(found)
        self._texts, self._waiting, self._characters = [], [], 0
