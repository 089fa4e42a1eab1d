"""verl's hydra settings (verl 0.9.1 ``trainer/config/*.yaml``): SFT and reinforcement learning."""

from __future__ import annotations

from finefit.formats.said import Said
from finefit.resolve.readings import shared
from finefit.resolve.readings.draft import Draft
from finefit.resolve.readings.reading import Reading

_ACTOR, _MODEL, _REF = "actor_rollout_ref.actor", "actor_rollout_ref.model", "actor_rollout_ref.ref"
_RECOMPUTE = f"{_ACTOR}.megatron.override_transformer_config.recompute_granularity"
_SIZES = {
    "tp": "tensor_model_parallel_size",
    "pp": "pipeline_model_parallel_size",
    "cp": "context_parallel_size",
    "ep": "expert_model_parallel_size",
}


def reading(said: Said) -> Reading:
    """A verl run in canonical terms.

    Raises:
        InputError: a value of a wrong kind, at its line.
    """
    if any(key.startswith("actor_rollout_ref") for key in said.entries) or "main_ppo" in said.program:
        return _reinforcement(Draft(said))
    return _supervised(Draft(said, "verl-sft"))


def _supervised(draft: Draft) -> Reading:
    draft.put("model", draft.text("model.path", "model.partial_pretrain"), "model.path", "model.partial_pretrain")
    draft.derive("task", "sft", "verl.trainer.sft_trainer")
    rank = draft.integer("model.lora_rank", minimum=0)
    draft.put("method", "lora" if rank else "full", "model.lora_rank")
    if rank:
        draft.put("rank", rank, "model.lora_rank")
    draft.put("micro_batch", draft.integer("data.micro_batch_size_per_gpu", minimum=1), "data.micro_batch_size_per_gpu")
    draft.put("global_batch", draft.integer("data.train_batch_size", minimum=1), "data.train_batch_size")
    draft.put("seq_len", draft.integer("data.max_length", minimum=1), "data.max_length")
    draft.put(
        "packing", "remove_padding" if draft.flag("model.use_remove_padding") else "no", "model.use_remove_padding"
    )
    if draft.flag("data.use_dynamic_bsz"):
        tokens = draft.integer("data.max_token_len_per_gpu", minimum=1)
        draft.put("token_budget", tokens, "data.max_token_len_per_gpu")
        draft.warn(
            f"{draft.said.path}: use_dynamic_bsz fills micro-batches up to max_token_len_per_gpu ({tokens}) and "
            "ignores micro_batch_size_per_gpu (verl@0.9.1 sft_trainer_engine.yaml)"
        )
    draft.put("optimizer", draft.text("optim.optimizer"), "optim.optimizer")
    key = "model.enable_gradient_checkpointing"
    draft.put("checkpointing", "full" if draft.flag(key) else "none", key)
    engine = draft.text("engine")
    if engine == "megatron":
        draft.put("strategy", "megatron", "engine")
    else:
        strategy = draft.text("engine.strategy")
        stated = ("engine.strategy",) if draft.stated("engine.strategy") else ("engine",)
        draft.put("strategy", "fsdp2" if strategy == "fsdp2" else "fsdp1", *stated)
    states = (("optimizer", "engine.optimizer_offload"), ("params", "engine.param_offload"))
    offload = [word for word, key in states if draft.flag(key)]
    draft.put("offload", tuple(offload), "engine.param_offload")
    degrees = {"sp": ("engine.ulysses_sequence_parallel_size",)} | {n: (f"engine.{k}",) for n, k in _SIZES.items()}
    shared.parallel(draft, degrees)
    _loop(draft, "model", "engine", bool(rank), megatron=engine == "megatron")
    draft.put("epochs", draft.number("trainer.total_epochs"), "trainer.total_epochs")
    shared.gpus(draft)
    return draft.reading()


def _loop(draft: Draft, model: str, engine: str, lora: bool, *, megatron: bool) -> None:
    """What verl's engines hold: fp32 shards computed in bf16, or Megatron-Core's states (workers/engine/*)."""
    dtype = {"fp32": "fp32", "float32": "fp32", "bf16": "bf16", "bfloat16": "bf16", "fp16": "fp16"}
    stated = draft.text(f"{engine}.model_dtype")
    draft.put("load_dtype", "bf16" if megatron else dtype.get(stated or "fp32", "fp32"), f"{engine}.model_dtype")
    draft.derive("amp", "bf16", "param_dtype of FSDP's mixed precision is bf16 (verl@0.9.1 fsdp/transformer_impl.py)")
    fused = draft.flag(f"{model}.use_fused_kernels")
    draft.derive("loss", "fused_linear", "use_fused_kernels") if fused else draft.derive(
        "loss", "inplace", "flash-attn's cross entropy writes gradients over the logits (verl@0.9.1)"
    )
    draft.put("fused_kernels", draft.flag(f"{model}.use_liger"), f"{model}.use_liger")
    draft.derive("attention", "flash2", "attn_implementation flash_attention_2 (verl@0.9.1)")
    draft.derive("reentrant", False, "use_reentrant is False (verl@0.9.1 fsdp/transformer_impl.py)")
    if lora:
        alpha = f"{model}.lora_alpha"
        draft.put("lora_alpha", draft.integer(alpha, minimum=1) if draft.stated(alpha) else None, alpha)
        targets = f"{model}.target_modules"
        draft.put("lora_targets", ",".join(draft.names(targets)) or "all-linear", targets)
        draft.put("modules_to_save", (), targets)
    moved = draft.values["offload"].value if "offload" in draft.values else ()
    if isinstance(moved, tuple) and set(moved) - {"ref_params"}:
        draft.derive("offload_between", True, "moved to the host between phases only (verl@0.9.1)")
        draft.assumptions.append(
            "verl moves parameters and optimizer states to host memory between phases and back for each step, so they "
            "are planned on the GPU"
        )


def _reinforcement(draft: Draft) -> Reading:
    draft.put("model", draft.text(f"{_MODEL}.path"), f"{_MODEL}.path")
    estimator = (draft.text("algorithm.adv_estimator") or "gae").lower()
    draft.put("task", {"gae": "ppo"}.get(estimator, estimator), "algorithm.adv_estimator")
    ranks = (f"{_MODEL}.lora_rank", f"{_MODEL}.lora.rank")
    key = ranks[1] if draft.stated(ranks[1]) else ranks[0]
    rank = draft.integer(key, minimum=0)
    draft.put("method", "lora" if rank else "full", key)
    if rank:
        draft.put("rank", rank, key)
    if draft.flag(f"{_ACTOR}.use_dynamic_bsz"):
        draft.put("micro_batch", "dynamic", f"{_ACTOR}.use_dynamic_bsz")
        budget = f"{_ACTOR}.ppo_max_token_len_per_gpu"
        draft.put("token_budget", draft.integer(budget, minimum=1), budget)
    else:
        size = f"{_ACTOR}.ppo_micro_batch_size_per_gpu"
        draft.put("micro_batch", draft.integer(size, minimum=1), size)
    draft.put("global_batch", draft.integer("data.train_batch_size", minimum=1), "data.train_batch_size")
    prompt, response = (draft.integer(f"data.max_{part}_length", minimum=1) for part in ("prompt", "response"))
    total = (prompt or 0) + (response or 0)
    draft.derive("seq_len", total, "max_prompt_length + max_response_length", "data.max_response_length")
    packed = f"{_MODEL}.use_remove_padding"
    draft.put("packing", "remove_padding" if draft.flag(packed) else "no", packed)
    draft.put("optimizer", draft.text("optim.optimizer"), "optim.optimizer")
    _engine(draft)
    megatron = draft.values["strategy"].value == "megatron"
    _loop(draft, _MODEL, f"{_ACTOR}.{'megatron' if megatron else 'fsdp_config'}", bool(rank), megatron=megatron)
    _beside(draft, estimator, bool(rank))
    nodes = draft.integer("trainer.nnodes", minimum=1) or 1
    draft.put("nodes", nodes, "trainer.nnodes")
    per_node = draft.integer("trainer.n_gpus_per_node", minimum=1) or 1
    draft.put("gpus", per_node * nodes, "trainer.n_gpus_per_node")
    return draft.reading()


def _beside(draft: Draft, estimator: str, lora: bool) -> None:
    """The rollout engine on the same GPUs, the reference, and with GAE the value model (verl@0.9.1 trainer/ppo)."""
    # trainer/config/rollout/rollout.yaml: 0.5 and True where they are not written
    share = "actor_rollout_ref.rollout.gpu_memory_utilization"
    draft.put("engine_share", draft.number(share) if draft.stated(share) else 0.5, share)
    sleeps = "actor_rollout_ref.rollout.free_cache_engine"
    draft.put("engine_sleeps", draft.flag(sleeps) if draft.stated(sleeps) else True, sleeps)
    keys = (f"{_ACTOR}.use_kl_loss", "algorithm.use_kl_in_reward")
    compared = next((key for key in keys if draft.flag(key)), None)
    if compared is None:
        draft.derive("reference", "none", "neither use_kl_loss nor use_kl_in_reward is on (verl@0.9.1)")
    elif lora:
        draft.put("reference", "self", compared)
    else:
        draft.put("reference", "copy", compared)
        draft.derive("reference_dtype", "bf16", "forward-only engines load bf16 (verl@0.9.1 fsdp/transformer_impl.py)")
        draft.derive("reference_offload", True, "forward-only engines offload to the CPU (verl@0.9.1)")
    if estimator == "gae":
        draft.derive("critic", True, "advantages by GAE need a value model", "algorithm.adv_estimator")


def _engine(draft: Draft) -> None:
    megatron = draft.text("model_engine") == "megatron" or any(
        k.startswith(f"{_ACTOR}.megatron") for k in draft.said.entries
    )
    section = f"{_ACTOR}.megatron" if megatron else f"{_ACTOR}.fsdp_config"
    if megatron:
        draft.put("strategy", "megatron", "model_engine")
        draft.put("checkpointing", draft.text(_RECOMPUTE) or "none", _RECOMPUTE)
        shared.parallel(draft, {name: (f"{_ACTOR}.megatron.{key}",) for name, key in _SIZES.items()})
    else:
        strategy = draft.text(f"{_ACTOR}.strategy")
        draft.put("strategy", "fsdp2" if strategy == "fsdp2" else "fsdp1", f"{_ACTOR}.strategy")
        key = f"{_MODEL}.enable_gradient_checkpointing"
        draft.put("checkpointing", "full" if draft.flag(key) else "none", key)
        shared.parallel(draft, {"sp": (f"{_ACTOR}.ulysses_sequence_parallel_size",)})
    offload = {
        word
        for word, key in (
            ("params", f"{section}.param_offload"),
            ("optimizer", f"{section}.optimizer_offload"),
            ("gradients", f"{section}.grad_offload"),
            ("ref_params", f"{_REF}.{'megatron' if megatron else 'fsdp_config'}.param_offload"),
        )
        if draft.flag(key)
    }
    draft.put("offload", tuple(sorted(offload)), f"{section}.param_offload", f"{_REF}.fsdp_config.param_offload")
