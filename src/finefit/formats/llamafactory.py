"""LLaMA-Factory training configurations as written: v0 YAML and JSON (llamafactory 0.9.5).

The tool reads YAML through OmegaConf (0.9.5 ``hparams/parser.py`` ``read_args``), which resolves no
``${...}``, takes ``2e-5`` for a number and refuses duplicate keys.
"""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType

from finefit.errors import InputError, NotModelled
from finefit.formats import json_file, yaml11
from finefit.formats.said import Entry, Said

TOOL, VERSION = "llamafactory", "0.9.5"
# Keys that only the v1 schema has (llamafactory 0.9.5 v1/config/*.py); it is chosen by USE_V1=1
_V1_KEYS = frozenset({"train_dataset", "micro_batch_size", "global_batch_size", "dist_config", "peft_config"})
# Keys of llamafactory 0.9.5 hparams/*.py that no other tool with model_name_or_path has
_OWN_KEYS = frozenset(
    {"stage", "finetuning_type", "template", "cutoff_len", "dataset", "lora_rank", "lora_target", "quantization_bit"}
)
# Keys of TRL 0.16-1.16 (SFTConfig, GRPOConfig, ModelConfig, ScriptArguments), which also says model_name_or_path
_TRL_KEYS = frozenset(
    {
        "attn_implementation",
        "chat_template",
        "dataset_config",
        "dataset_mixer",
        "dataset_mixture",
        "dataset_name",
        "dtype",
        "load_in_4bit",
        "lora_r",
        "max_completion_length",
        "max_prompt_length",
        "max_seq_length",
        "num_generations",
        "torch_dtype",
        "use_peft",
    }
)
# A key that marks the configuration of another tool
_OTHERS = {
    "base_model": "Axolotl",
    "tuner_type": "ms-swift",
    "train_type": "ms-swift",
    "actor_rollout_ref": "verl",
    "zero_optimization": "bare DeepSpeed",
    "distributed_type": "bare accelerate",
    "checkpoint_dir": "LitGPT",
    "checkpointer": "torchtune",
    "step_scheduler": "NeMo Automodel",
    "policy": "NeMo RL",
    "resources": "SkyPilot",
}


def read(path: str | Path) -> Said:
    """A configuration file as its keys, values and lines.

    Raises:
        InputError: the file is missing, no text, no YAML or JSON, or no mapping.
        NotModelled: a shell script, or the v1 schema.
    """
    file = Path(path)
    if file.suffix.lower() in {".sh", ".bash", ".ps1", ".bat"}:
        raise NotModelled(
            "shell scripts are not read yet",
            where=str(path),
            fix="put the flags of llamafactory-cli into a YAML file, one key: value a line, and plan that",
        )
    text = yaml11.read_text(file)
    if file.suffix.lower() == ".json":
        document = json_file.load_mapping(text, str(path))
    else:
        document = yaml11.load_mapping(text, str(path), yaml11.Dialect.OMEGACONF)
    entries = {key: Entry(value, f"{path}:{line}") for key, value, line in document.items}
    _check_schema(entries, path)
    warnings = tuple(
        f"{path}:{line}: {key} is written twice; the last value is taken here, LLaMA-Factory refuses such a file"
        for key, line in document.duplicates
    )
    return Said(TOOL, VERSION, file, MappingProxyType(entries), warnings)


def _check_schema(entries: dict[str, Entry], path: str | Path) -> None:
    trl = next((key for key in entries if key in _TRL_KEYS), None)
    if "model_name_or_path" in entries and (trl is None or _OWN_KEYS & entries.keys()):
        return
    if "model" in entries and _V1_KEYS & entries.keys():
        raise NotModelled(
            "the v1 schema of LLaMA-Factory (USE_V1=1) is not modelled yet",
            where=f"{entries['model'].place}: model",
            fix="write the same run in the v0 schema (model_name_or_path: ...)",
        )
    key = trl if trl and "model_name_or_path" in entries else next((k for k in _OTHERS if k in entries), None)
    if key is not None:
        raise NotModelled(
            f"{_OTHERS.get(key, 'TRL')} configs are not read yet",
            where=f"{entries[key].place}: {key}",
            fix="write the run as a LLaMA-Factory config, or state it with flags",
        )
    if "architectures" in entries or "model_type" in entries:
        raise InputError(
            "this is a model's config.json, not a training config",
            where=str(path),
            fix="plan it as a model, with --method and --seq",
        )
    raise InputError(
        "no model_name_or_path: this is not a LLaMA-Factory training config",
        where=str(path),
        fix="add model_name_or_path, or name another file",
    )
