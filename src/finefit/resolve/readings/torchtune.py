"""torchtune YAML (torchtune 0.6.1): components, and the recipe from the command line or the header comment."""

from __future__ import annotations

import re

from finefit.formats.said import Said
from finefit.resolve.readings import shared
from finefit.resolve.readings.draft import Draft
from finefit.resolve.readings.reading import Reading

_REFERENCE = re.compile(r"\$\{([\w.]+)\}")
_TASKS = (("grpo", "grpo"), ("ppo", "ppo"), ("dpo", "dpo"), ("knowledge_distillation", "kd"))


def reading(said: Said) -> Reading:
    """A torchtune configuration in canonical terms.

    Raises:
        InputError: a value of a wrong kind, at its line.
    """
    draft = Draft(said)
    recipe = said.program or shared.commented_launch(draft, said.path.stem) or ""
    key = "model._component_" if draft.stated("model._component_") else "policy_model._component_"
    component = (draft.text(key) or "").rpartition(".")[2]
    _model(draft, key, component)
    _task(draft, recipe)
    _method(draft, key, component)
    draft.put("micro_batch", draft.integer("batch_size", minimum=1), "batch_size")
    if not draft.stated("batch_size"):
        draft.refuse(
            "a torchtune config without batch_size (generation, evaluation)", "name a training recipe's config"
        )
    accumulation = "gradient_accumulation_steps"
    draft.put("grad_accum", draft.integer(accumulation, minimum=1), accumulation)
    draft.put("seq_len", draft.integer("tokenizer.max_seq_len", minimum=1), "tokenizer.max_seq_len")
    if not draft.stated("tokenizer.max_seq_len"):
        draft.warn(f"{said.path}: tokenizer.max_seq_len is null, which cuts nothing: the longest sample decides")
    draft.put("packing", "yes" if draft.flag("dataset.packed") else "no", "dataset.packed")
    _optimizer(draft)
    on = draft.flag("enable_activation_checkpointing")
    draft.put("checkpointing", "full" if on else "none", "enable_activation_checkpointing")
    if draft.stated("ac_mode"):
        draft.refuse("selective checkpointing (ac_mode)", "remove ac_mode and ac_option", "ac_mode")
    _spread(draft, recipe)
    dtype = (draft.text("dtype") or "bf16").lower()
    draft.put("load_dtype", {"bf16": "bf16", "fp16": "fp16", "fp32": "fp32"}.get(dtype), "dtype")
    draft.derive("amp", "none", "torchtune trains in dtype, without autocast (torchtune@0.6.1)")
    draft.put("adapter_dtype", {"bf16": "bf16", "fp32": "fp32"}.get(dtype), "dtype")
    loss = draft.text("loss._component_") or ""
    chunked = "LinearCrossEntropy" in loss or "Chunked" in loss
    task = draft.values["task"].value
    if task in ("dpo", "grpo", "ppo"):
        draft.derive("loss", "native", "log_softmax in the dtype of the logits (torchtune@0.6.1 rlhf/utils)")
    else:
        draft.put("loss", "chunked" if chunked else "full", "loss._component_")
    if task in ("grpo", "ppo"):
        _reinforcement(draft, str(task))
    draft.derive("attention", "sdpa", "torchtune@0.6.1 modules/attention_utils.py")
    draft.derive("reentrant", False, "torchtune@0.6.1 training/activations.py wraps without reentrancy")
    draft.put("epochs", draft.number("epochs"), "epochs")
    draft.put("eval_batch", None, "run_val_every_n_steps")
    draft.put("compiled", draft.flag("compile"), "compile")
    return draft.reading()


def _reinforcement(draft: Draft, task: str) -> None:
    """A frozen reference, text generated on the same GPU with a KV cache, and for PPO a value and a reward model.

    torchtune 0.6.1 recipes/ppo_full_finetune_single_device.py, recipes/dev/grpo_full_finetune_distributed.py: rows of
    a step are ppo_batch_size / gradient_accumulation_steps of PPO, grpo_samples for each of batch_size prompts of GRPO
    in forward_batch_size prompts at a time.
    """
    draft.put("completion", draft.integer("max_generated_tokens", minimum=1), "max_generated_tokens")
    draft.derive("reference", "copy", "the reference policy is a second model in memory (torchtune@0.6.1)")
    draft.derive("generated", 1, "a forward batch is generated at a time (torchtune@0.6.1)")
    if task == "ppo":
        draft.derive("critic", True, "value_checkpointer: a value model is trained (torchtune@0.6.1)")
        draft.derive("reward", True, "reward_checkpointer: a reward model scores (torchtune@0.6.1)")
        return
    draft.put("samples", draft.integer("grpo_samples", minimum=1), "grpo_samples")


def _model(draft: Draft, key: str, component: str) -> None:
    """The checkpoint's folder is called as the Hub calls the model; where it is not, the component says what it is."""
    folder = _resolved(draft, draft.text("checkpointer.checkpoint_dir") or "").rstrip("/").rpartition("/")[2]
    if folder and re.search(r"\d+(?:\.\d+)?[bm]\b", folder.lower().replace("-", " ").replace("_", " ")):
        draft.put("model", folder, "checkpointer.checkpoint_dir")
    else:
        draft.put("model", component or None, key)


def _resolved(draft: Draft, text: str) -> str:
    """OmegaConf's ``${key}`` put in, a few steps deep."""
    for _ in range(5):
        match = _REFERENCE.search(text)
        if match is None:
            return text
        value = draft.raw(match[1])
        text = text.replace(match[0], str(value) if isinstance(value, str | int | float) else "")[:1000]
    return text


def _task(draft: Draft, recipe: str) -> None:
    loss = (draft.text("loss._component_") or "").rpartition(".")[2].lower()
    if draft.stated("kd_loss", "kd_loss._component_"):
        draft.put("task", "kd", "kd_loss")
        return
    for word, task in _TASKS:
        if word in recipe.lower() or loss.startswith(word):
            draft.put("task", task, "loss._component_")
            return
    draft.put("task", "sft", "loss._component_")


def _method(draft: Draft, key: str, component: str) -> None:
    section = key.partition(".")[0]
    quantised = component.startswith("qlora_") or draft.flag(f"{section}.quantize_base")
    adapters = component.startswith(("lora_", "qlora_"))
    name = "dora" if draft.flag(f"{section}.use_dora") else "lora"
    draft.put("method", f"{'q' if quantised else ''}{name}" if adapters else "full", key)
    if name == "dora" and adapters:
        draft.put("dora", True, f"{section}.use_dora")
    if quantised:
        draft.put("quant_bits", 4, key)
        draft.derive("quant_kind", "nf4", "torchao NF4 (torchtune@0.6.1)")
        draft.derive("quant_double", True, "torchao NF4 quantises its scales (torchtune@0.6.1)")
    if not adapters:
        return
    for field, setting in (("rank", "lora_rank"), ("lora_alpha", "lora_alpha")):
        draft.put(field, draft.integer(f"model.{setting}", minimum=1), f"model.{setting}")
    draft.put("lora_dropout", draft.number("model.lora_dropout"), "model.lora_dropout")
    names = [{"output_proj": "o_proj"}.get(n, n) for n in draft.names("model.lora_attn_modules")]
    if draft.flag("model.apply_lora_to_mlp"):
        names += ["gate_proj", "up_proj", "down_proj"]
    if draft.flag("model.apply_lora_to_output"):
        draft.refuse("LoRA on the head", "set apply_lora_to_output: False", "model.apply_lora_to_output")
    draft.put("lora_targets", ",".join(names) or None, "model.lora_attn_modules")
    draft.put("modules_to_save", (), "model.lora_attn_modules")


def _optimizer(draft: Draft) -> None:
    component = draft.text("optimizer._component_") or ""
    draft.put("optimizer", component.rpartition(".")[2] or None, "optimizer._component_")
    draft.put("in_backward", draft.flag("optimizer_in_bwd"), "optimizer_in_bwd")


def _spread(draft: Draft, recipe: str) -> None:
    single = "single_device" in (recipe or draft.said.path.stem)
    known = bool(recipe) or single
    if single:
        draft.derive("strategy", "none", f"the recipe {recipe or 'by the file name'} runs on one GPU")
        draft.derive("gpus", 1, "a single-device recipe")
    else:
        why = f"the recipe {recipe} shards with FSDP 2" if known else "a distributed recipe, which shards with FSDP 2"
        draft.derive("strategy", "fsdp2", f"{why} (torchtune@0.6.1)")
    offload: set[str] = set()
    if draft.flag("fsdp_cpu_offload"):
        offload |= set(shared.FSDP_OFFLOAD)
    if draft.flag("enable_activation_offloading"):
        offload.add("activations")
        draft.assumptions.append(
            f"{draft.where('enable_activation_offloading')}: activations that are moved to host memory are planned on "
            "the GPU, an upper bound"
        )
    draft.put(
        "offload",
        tuple(sorted(offload)),
        "fsdp_cpu_offload" if draft.flag("fsdp_cpu_offload") else "enable_activation_offloading",
    )
    shared.parallel(draft, {"tp": ("tensor_parallel_dim",), "cp": ("context_parallel_dim",)})
    shared.gpus(draft)
