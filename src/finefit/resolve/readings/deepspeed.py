"""A DeepSpeed JSON by itself (deepspeed 0.19.8): how it spreads a run. ``formats.deepspeed`` reads it for a run."""

from __future__ import annotations

from finefit.formats.said import Said
from finefit.resolve.readings import shared
from finefit.resolve.readings.draft import Draft
from finefit.resolve.readings.reading import Reading


def reading(said: Said) -> Reading:
    """Stage, offload and batch sizes; "auto" stays "auto".

    Raises:
        InputError: a value of a wrong kind.
    """
    draft = Draft(said)
    mapping = {key: entry.value for key, entry in said.entries.items() if "." not in key}
    stage, offload = shared.zero(mapping, str(said.path))
    key = "zero_optimization.stage" if draft.stated("zero_optimization.stage") else "zero_optimization"
    draft.put("strategy", f"zero{stage}", key)
    draft.put("offload", offload, "zero_optimization.offload_optimizer", "zero_optimization.offload_param")
    for name, size in (
        ("micro_batch", "train_micro_batch_size_per_gpu"),
        ("grad_accum", "gradient_accumulation_steps"),
        ("global_batch", "train_batch_size"),
    ):
        if draft.stated(size):
            value = draft.raw(size)
            draft.put(name, value if value == "auto" else draft.integer(size, minimum=1), size)
    if draft.stated("optimizer.type"):
        draft.put("optimizer", draft.text("optimizer.type"), "optimizer.type")
    shared.parallel(draft, {"tp": ("tensor_parallel.autotp_size",), "sp": ("sequence_parallel_size",)})
    return draft.reading("engine")
