"""How long and how many the rows of a micro-batch are, and whether they carry a padding mask."""

from __future__ import annotations

from finefit.errors import InputError
from finefit.resolve.beside import PREFERENCE
from finefit.resolve.notes import Notes
from finefit.resolve.readings.reading import MODEL_MAXIMUM, Reading
from finefit.step.preference import GENERATING
from finefit.workload.lengths import Lengths
from finefit.workload.model import Model

_PROMPT = 512  # trl 0.24.0 trainer/grpo_config.py max_prompt_length
PAD_MULTIPLE = {"axolotl": 64}  # axolotl 0.19.0 core/builders/causal.py: pad_to_multiple_of, 64 where not written


def rows(reading: Reading, model: Model, lengths: Lengths, notes: Notes) -> tuple[int, int, bool, bool]:
    """Tokens of the longest row, rows of a micro-batch, whether a mask is passed, whether rows are packed.

    Raises:
        InputError: nothing bounds the length.
    """
    micro = (reading.whole("micro_batch") or 1) * (reading.whole("samples") or 1)
    limit = _limit(reading, model, lengths, notes) + (reading.whole("completion") or 0)
    if "packing" in reading.values:
        notes.source("packing", reading.values["packing"].source)
    if reading.get("packing") == "remove_padding" or reading.get("padding_free"):
        budget = reading.whole("token_budget")
        tokens = limit * micro if budget is None else max(budget, limit)
        rule = f"rows end to end without padding, {tokens} tokens in a micro-batch ({reading.tool}@{reading.version})"
        for name in ("padded", "seq_len", "micro_batch"):
            notes.derived(name, rule)
        return tokens, 1, False, True
    if reading.get("packing") == "stream":
        notes.derived("padded", "rows are cut from a stream of text")
        return limit, micro, False, True
    if reading.get("packing") == "yes":
        notes.derived("padded", "packed rows are equally long")
        if micro > 1 and reading.tool in ("axolotl", "trl", "ms-swift"):
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
    if reading.tool == "litgpt":
        notes.derived("padded", "rows are padded and no mask is passed (litgpt@0.5.13 finetune/*.py)")
        return longest, micro, False, False
    if reading.text("task") in PREFERENCE:
        notes.derived("padded", "chosen and rejected are padded to the longest of both")
        return row, micro, True, False
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
    if limit is None and reading.text("task") in GENERATING:
        notes.assumed(
            "seq_len",
            "prompts of 512 tokens",
            f"nothing cuts the prompts: {_PROMPT} tokens, the limit of trl 0.24, are planned before each completion "
            "(--longest N states the longest prompt)",
        )
        return _PROMPT
    if limit in (MODEL_MAXIMUM, None) and model.max_position > 0:
        notes.assumed(
            "seq_len",
            "the model's own limit",
            f"no length is written, so rows of the model's own limit of {model.max_position} tokens are planned: an "
            "upper bound, since the longest sample of the data decides (--longest N)",
        )
        return model.max_position
    raise InputError(
        "nothing cuts the samples to a length, so the longest sample of the data decides",
        where=reading.where("seq_len"),
        fix="state it with --longest N, or write a length into the config",
    )
