"""How long and how many the rows of a micro-batch are, and whether they carry a padding mask."""

from __future__ import annotations

from finefit.errors import InputError
from finefit.resolve.notes import Notes
from finefit.resolve.readings.reading import MODEL_MAXIMUM, Reading
from finefit.workload.lengths import Lengths
from finefit.workload.model import Model

PAD_MULTIPLE = {"axolotl": 64}  # axolotl 0.19.0 core/builders/causal.py: pad_to_multiple_of, 64 where not written


def rows(reading: Reading, model: Model, lengths: Lengths, notes: Notes) -> tuple[int, int, bool, bool]:
    """Tokens of the longest row, rows of a micro-batch, whether a mask is passed, whether rows are packed.

    Raises:
        InputError: nothing bounds the length.
    """
    micro = reading.whole("micro_batch") or 1
    limit = _limit(reading, model, lengths, notes)
    notes.source("packing", reading.values["packing"].source)
    if reading.get("packing") == "yes":
        notes.derived("padded", "packed rows are equally long")
        if micro > 1 and reading.tool != "torchtune":
            rule = f"{micro} packed rows of {limit} tokens are joined into one ({reading.tool}@{reading.version})"
            notes.derived("seq_len", rule)
            notes.derived("micro_batch", rule)
            return limit * micro, 1, False, True
        return limit, micro, False, True
    longest = limit
    if lengths.longest is not None and lengths.longest < limit:
        longest = lengths.longest
        notes.derived("seq_len", f"the longest sample, {lengths.source}")
    multiple = PAD_MULTIPLE.get(reading.tool, 1)
    row = -(-longest // multiple) * multiple
    if multiple > 1:
        notes.derived("padded", f"rows are padded to a multiple of {multiple} ({reading.tool}@{reading.version})")
    else:
        notes.derived("padded", "rows of a batch are padded to the longest")
    return row, micro, micro > 1 or row != longest, False


def _limit(reading: Reading, model: Model, lengths: Lengths, notes: Notes) -> int:
    limit = reading.get("seq_len")
    if "seq_len" in reading.values:
        notes.source("seq_len", reading.values["seq_len"].source)
    if isinstance(limit, int):
        return limit
    if lengths.longest is not None:
        notes.derived("seq_len", f"nothing cuts the samples, so the longest counts: {lengths.source}")
        return lengths.longest
    if limit == MODEL_MAXIMUM and model.max_position > 0:
        notes.assumed(
            "seq_len",
            "the model's own limit",
            f"no length is written, so {reading.tool} cuts at the model's own limit of {model.max_position} tokens: an "
            "upper bound, since the longest sample of the data decides (--longest N)",
        )
        return model.max_position
    raise InputError(
        "nothing cuts the samples to a length, so the longest sample of the data decides",
        where=reading.where("seq_len"),
        fix="state it with --longest N, or write a length into the config",
    )
