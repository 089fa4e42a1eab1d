"""Whose configuration a file is, told by its keys, and by which YAML rules each tool reads."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from finefit.formats.yaml11 import Dialect


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool whose files are read: its name for people, the version whose rules apply, its YAML rules."""

    title: str
    version: str
    dialect: Dialect


# The YAML rules as each tool's own loading code has them: llamafactory 0.9.5 hparams/parser.py, torchtune 0.6.1
# config/_parse.py, verl 0.9.1 (hydra), NeMo RL and Megatron-Bridge read through OmegaConf; jsonargparse, which
# litgpt 0.5.13 uses, has the same float rule; the others call yaml.safe_load (axolotl 0.19.0 cli/config.py:254, trl
# 1.16.0 scripts/utils.py:327, ms-swift 4.6.0 cli/main.py:47, accelerate 1.15.0 commands/config/config_args.py).
TOOLS: Mapping[str, Tool] = MappingProxyType(
    {
        "llamafactory": Tool("LLaMA-Factory", "0.9.5", Dialect.OMEGACONF),
        "llamafactory-v1": Tool("LLaMA-Factory v1", "0.9.5", Dialect.OMEGACONF),
        "axolotl": Tool("Axolotl", "0.19.0", Dialect.PYYAML),
        "trl": Tool("TRL", "1.16.0", Dialect.PYYAML),
        "ms-swift": Tool("ms-swift", "4.6.0", Dialect.PYYAML),
        "torchtune": Tool("torchtune", "0.6.1", Dialect.OMEGACONF),
        "litgpt": Tool("LitGPT", "0.5.13", Dialect.OMEGACONF),
        "torchtitan": Tool("torchtitan", "0.2.2", Dialect.PYYAML),
        "verl": Tool("verl", "0.9.1", Dialect.OMEGACONF),
        "nemo-automodel": Tool("NeMo Automodel", "36044ad", Dialect.PYYAML),
        "nemo-rl": Tool("NeMo RL", "7ea279a", Dialect.OMEGACONF),
        "megatron-bridge": Tool("Megatron-Bridge", "0.3.1", Dialect.OMEGACONF),
        "unsloth": Tool("Unsloth", "2026.10.9", Dialect.PYYAML),
        "xtuner": Tool("xtuner", "0.2.0", Dialect.PYYAML),
        "accelerate": Tool("accelerate", "1.15.0", Dialect.PYYAML),
        "deepspeed": Tool("DeepSpeed", "0.19.8", Dialect.PYYAML),
        "skypilot": Tool("SkyPilot", "0.14.1", Dialect.PYYAML),
        "dstack": Tool("dstack", "0.22.5", Dialect.PYYAML),
    }
)

# Keys of llamafactory 0.9.5 hparams/*.py that no other tool with model_name_or_path has
_LLAMAFACTORY = frozenset(
    {"stage", "finetuning_type", "template", "cutoff_len", "dataset", "lora_rank", "lora_target", "quantization_bit"}
)
# Keys that only the v1 schema has (llamafactory 0.9.5 v1/config/*.py); it is chosen by USE_V1=1
_LLAMAFACTORY_V1 = frozenset({"train_dataset", "micro_batch_size", "global_batch_size", "dist_config", "peft_config"})
# Keys of TRL 0.16-1.16 (SFTConfig, GRPOConfig, ModelConfig, ScriptArguments), which also says model_name_or_path
_TRL = frozenset(
    {
        "attn_implementation", "chat_template", "dataset_config", "dataset_mixer", "dataset_mixture", "dataset_name",
        "dtype", "load_in_4bit", "load_in_8bit", "lora_r", "max_completion_length", "max_prompt_length",
        "max_seq_length", "max_length", "num_generations", "torch_dtype", "use_peft",
    }
)  # fmt: skip
# Keys of ms-swift 3 and 4 arguments that no other tool with a bare "model" has
_SWIFT = frozenset(
    {"tuner_type", "train_type", "rlhf_type", "attn_impl", "quant_bits", "split_dataset_ratio", "device_groups",
     "freeze_vit", "tuner_backend", "model_author"}
)  # fmt: skip


def recognise(keys: Collection[str]) -> str | None:
    """The tool that a file with these keys (dotted, sections too) is for; None where no tool is known to.

    Tools are told apart by keys that only one of them has, the most telling first.
    """
    have = frozenset(keys)
    tops = frozenset(key.partition(".")[0] for key in have)
    rules: tuple[tuple[bool, str], ...] = (
        ("zero_optimization" in have or "train_micro_batch_size_per_gpu" in have, "deepspeed"),
        ("distributed_type" in have or "compute_environment" in have, "accelerate"),
        ("resources" in have and bool(tops & {"run", "setup", "num_nodes"}), "skypilot"),
        ("type" in have and "commands" in have, "dstack"),
        ("actor_rollout_ref" in tops or "data.train_files" in have, "verl"),
        ("base_model" in have, "axolotl"),
        ("step_scheduler" in tops, "nemo-automodel"),
        ("policy.model_name" in have or "policy.train_micro_batch_size" in have, "nemo-rl"),
        ("train.train_iters" in have or "model.tensor_model_parallel_size" in have, "megatron-bridge"),
        (
            {"job", "training"} <= tops or {"training.local_batch_size", "training.seq_len"} & have != set(),
            "torchtitan",
        ),
        (any(key.endswith("._component_") for key in have), "torchtune"),
        ("checkpoint_dir" in have and "train" in tops, "litgpt"),
        ("train.global_batch_size" in have and bool(tops & {"model_name", "model_config", "lora_r"}), "litgpt"),
        ("model_name_or_path" in have and bool(_LLAMAFACTORY & have), "llamafactory"),
        ("model_name_or_path" in have and bool(_TRL & have), "trl"),
        (bool(_SWIFT & have), "ms-swift"),
        ("model" in have and bool(_LLAMAFACTORY_V1 & have), "llamafactory-v1"),
        ("model_name_or_path" in have, "llamafactory"),
        ("from_pretrained" in tops and "unsloth" in tops, "unsloth"),
        ("pretrained_model_name_or_path" in have, "xtuner"),
        ("defaults" in have and bool(tops & {"grpo", "sft", "dpo", "data", "cluster"}), "nemo-rl"),
    )
    return next((tool for holds, tool in rules if holds), None)
