"""verl's hydra settings (verl 0.9.1 ``trainer/config/*.yaml``): SFT and reinforcement learning."""

from __future__ import annotations

from finefit.formats.said import Said
from finefit.resolve.readings import shared
from finefit.resolve.readings.draft import Draft
from finefit.resolve.readings.reading import FLAGS, Reading

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
    draft.refuse("verl's training loop", FLAGS)
    shared.gpus(draft)
    return draft.reading()


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
    nodes = draft.integer("trainer.nnodes", minimum=1) or 1
    draft.put("nodes", nodes, "trainer.nnodes")
    per_node = draft.integer("trainer.n_gpus_per_node", minimum=1) or 1
    draft.put("gpus", per_node * nodes, "trainer.n_gpus_per_node")
    return draft.reading()


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
