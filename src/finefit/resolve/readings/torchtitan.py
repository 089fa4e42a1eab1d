"""torchtitan TOML (torchtitan 0.2.2 ``config/job_config.py``; TOML was removed after that version)."""

from __future__ import annotations

from finefit.formats.said import Said
from finefit.resolve.readings import shared
from finefit.resolve.readings.draft import Draft
from finefit.resolve.readings.reading import FLAGS, Reading

_DEGREES = {
    "dp_shard": ("parallelism.data_parallel_shard_degree",),
    "dp_replicate": ("parallelism.data_parallel_replicate_degree",),
    "tp": ("parallelism.tensor_parallel_degree",),
    "pp": ("parallelism.pipeline_parallel_degree",),
    "cp": ("parallelism.context_parallel_degree",),
    "ep": ("parallelism.expert_parallel_degree",),
}


def reading(said: Said) -> Reading:
    """A torchtitan job in canonical terms.

    Raises:
        InputError: a value of a wrong kind, at its line.
    """
    draft = Draft(said)
    if draft.stated("hf_transformers.model"):
        draft.put("model", draft.text("hf_transformers.model"), "hf_transformers.model")
    else:
        parts = [draft.text("model.name"), draft.text("model.flavor")]
        draft.put("model", "/".join(part for part in parts if part) or None, "model.flavor", "model.name")
    draft.derive("task", "pt", "torchtitan trains on a stream of text")
    draft.derive("method", "full", "every parameter is trained")
    draft.put("micro_batch", draft.integer("training.local_batch_size", minimum=1), "training.local_batch_size")
    if draft.stated("training.global_batch_size"):
        key = "training.global_batch_size"
        draft.put("global_batch", draft.integer(key, minimum=-1), key)
    draft.put("seq_len", draft.integer("training.seq_len", minimum=1), "training.seq_len")
    draft.derive("packing", "stream", "samples are joined and cut to seq_len (torchtitan@0.2.2)")
    draft.put("optimizer", draft.text("optimizer.name"), "optimizer.name")
    draft.put("checkpointing", draft.text("activation_checkpoint.mode"), "activation_checkpoint.mode")
    draft.put("strategy", "fsdp2", "parallelism.data_parallel_shard_degree")
    offload = draft.flag("training.enable_cpu_offload")
    draft.put("offload", shared.FSDP_OFFLOAD if offload else (), "training.enable_cpu_offload")
    draft.put("max_steps", draft.integer("training.steps", minimum=1), "training.steps")
    draft.put("parallel", shared.parallel(draft, _DEGREES), "parallelism.tensor_parallel_degree")
    draft.refuse("torchtitan's pre-training loop", FLAGS)
    shared.gpus(draft)
    return draft.reading()
