"""torchtitan TOML (torchtitan 0.2.2 ``config/job_config.py``; TOML was removed after that version)."""

from __future__ import annotations

from finefit.formats.said import Said
from finefit.resolve.readings import shared
from finefit.resolve.readings.draft import Draft
from finefit.resolve.readings.reading import Reading

_DEGREES = {
    "dp_shard": ("parallelism.data_parallel_shard_degree",),
    "dp_replicate": ("parallelism.data_parallel_replicate_degree",),
    "tp": ("parallelism.tensor_parallel_degree",),
    "pp": ("parallelism.pipeline_parallel_degree",),
    "cp": ("parallelism.context_parallel_degree",),
    "ep": ("parallelism.expert_parallel_degree",),
}


# torchtitan 0.2.2 models/*/__init__.py: a flavor's sizes are those of the checkpoint it is trained like
FLAVORS = {
    "llama3/8b": "meta-llama/Llama-3.1-8B",
    "llama3/70b": "meta-llama/Llama-3.1-70B",
    "llama3/405b": "meta-llama/Llama-3.1-405B",
    "qwen3/0.6b": "Qwen/Qwen3-0.6B",
    "qwen3/1.7b": "Qwen/Qwen3-1.7B",
    "qwen3/4b": "Qwen/Qwen3-4B",
    "qwen3/8b": "Qwen/Qwen3-8B",
    "qwen3/14b": "Qwen/Qwen3-14B",
    "qwen3/32b": "Qwen/Qwen3-32B",
    "qwen3/30b-a3b": "Qwen/Qwen3-30B-A3B",
    "qwen3/235b-a22b": "Qwen/Qwen3-235B-A22B",
    "deepseek_v3/16b": "deepseek-ai/DeepSeek-V2-Lite",
    "deepseek_v3/236b": "deepseek-ai/DeepSeek-V2",
    "deepseek_v3/671b": "deepseek-ai/DeepSeek-V3",
    "llama4/17bx16e": "meta-llama/Llama-4-Scout-17B-16E",
    "llama4/17bx128e": "meta-llama/Llama-4-Maverick-17B-128E",
}
_DTYPES = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}


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
    shared.parallel(draft, _DEGREES)
    # FSDP 2 keeps training.dtype and computes in mixed_precision_param (torchtitan@0.2.2 infra/parallelize.py)
    stored = _DTYPES.get((draft.text("training.dtype") or "float32").lower(), "fp32")
    mixed = _DTYPES.get((draft.text("training.mixed_precision_param") or "bfloat16").lower(), "bf16")
    draft.put("load_dtype", stored, "training.dtype")
    draft.put("amp", "none" if mixed == stored else mixed, "training.mixed_precision_param")
    draft.derive("loss", "full", "cross entropy of fp32 logits (torchtitan@0.2.2 components/loss.py)")
    draft.derive("attention", "sdpa", "torchtitan@0.2.2 models/attention.py")
    draft.derive("reentrant", False, "checkpoint_wrapper is not reentrant (torchtitan@0.2.2)")
    draft.put("compiled", draft.flag("compile.enable"), "compile.enable")
    converters = draft.names("model.converters")
    low = next((kind for kind in ("float8", "mx") if any(kind in name for name in converters)), None)
    if low is not None:
        shared.low_products(draft, "fp8" if low == "float8" else "mxfp8", "model.converters")
    shared.gpus(draft)
    return draft.reading()
