"""Other estimators on the same rows: what runs without a GPU and says a number for a recipe.

* ``ftuneai`` (PyPI, 0.4.1): its own formulas, given the model's exact dimensions, so that it is never
  judged on its list of models. Its total holds 20 % for context and fragmentation; against a row of
  allocated bytes that part is left out.
* ``llamafactory_table``: the table "Hardware requirement" of LLaMA-Factory's README (@0.9.5): bytes a
  parameter by method, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from benchmarks.recipes import Question
from finefit.units import GB, GIB
from finefit.workload.dtypes import DType
from finefit.workload.parameters import parameter_count

Peer = Callable[[Question, str], float | None]

# GB a billion parameters: README "Hardware requirement", rows full (32-bit or AMP), full (pure_bf16), LoRA, QLoRA 8, 4.
FULL_MIXED, FULL_PURE, LORA, QLORA_8, QLORA_4 = 18.0, 8.0, 2.0, 1.0, 0.5


def llamafactory_table(question: Question, metric: str) -> float | None:
    """Bytes by the README's table; states that are sharded are shared out, which the table does not say."""
    recipe = question.recipe
    if recipe.method == "full":
        mixed = recipe.weight_dtype is DType.FP32 or recipe.master_weights
        factor = FULL_MIXED if mixed else FULL_PURE
    elif recipe.quant is None:
        factor = LORA
    else:
        factor = QLORA_8 if recipe.quant.kind == "int8" or recipe.quant.bits == 8 else QLORA_4
    ranks = recipe.sharding.ranks if recipe.sharding.kind in ("zero3", "fsdp") else 1
    return factor * parameter_count(question.model) / 1e9 * GB / ranks


_SHARDING = {"zero1": "zero_1", "zero2": "zero_2", "zero3": "zero_3", "fsdp": "fsdp"}


def ftuneai(question: Question, metric: str) -> float | None:
    """Bytes by ftuneai's MemoryEstimator; None where it refuses the configuration."""
    from ftuneai.core.memory import MemoryEstimator
    from ftuneai.core.models import (
        FineTuneMethod,
        LoRATarget,
        ModelSpec,
        OptimizerType,
        Quantization,
        ShardingStrategy,
        TrainingConfig,
    )

    model, recipe = question.model, question.recipe
    spec = ModelSpec(
        name=model.name,
        parameters=parameter_count(model),
        hidden_size=model.hidden,
        num_layers=model.layers,
        num_attention_heads=model.heads,
        num_kv_heads=model.kv_heads,
        intermediate_size=model.ffn,
        vocab_size=model.vocab,
        max_seq_length=max(recipe.seq_len, model.max_position),
        default_dtype=recipe.weight_dtype.value,
    )
    targets = recipe.lora.targets if recipe.lora else ()
    if len(targets) <= 2:
        target = LoRATarget.ATTENTION
    else:
        target = LoRATarget.ATTENTION_ALL if len(targets) <= 4 else LoRATarget.ALL_LINEAR
    quantization = Quantization.NONE
    if recipe.quant is not None:
        quantization = Quantization.INT8 if recipe.quant.kind == "int8" or recipe.quant.bits == 8 else Quantization.INT4
    optimizer = {"adamw": OptimizerType.ADAMW, "adamw_8bit": OptimizerType.ADAM_8BIT, "sgd": OptimizerType.SGD}
    if recipe.optimizer.name not in optimizer:
        return None
    config = TrainingConfig(
        model=model.name,
        method=FineTuneMethod(("qlora" if recipe.quant else "lora") if recipe.lora else "full"),
        quantization=quantization,
        batch_size=recipe.micro_batch,
        seq_length=recipe.seq_len,
        gradient_checkpointing=recipe.checkpointing != "none",
        optimizer=optimizer[recipe.optimizer.name],
        lora_rank=recipe.lora.rank if recipe.lora else 16,
        lora_target=target,
        flash_attention=recipe.attention != "eager",
        sharding=ShardingStrategy(_SHARDING.get(recipe.sharding.kind, "none")),
        num_gpus=recipe.sharding.ranks,
    )
    try:
        parts = MemoryEstimator(spec, config).estimate()
    except (ValueError, ZeroDivisionError):
        return None
    total: float = parts.total_gb - (parts.overhead_gb if metric == "allocated" else 0.0)
    return total * GIB  # its "GB" are 2**30


def available() -> Mapping[str, Peer]:
    """The peers that can run here; ``ftuneai`` needs ``pip install ftuneai``."""
    peers: dict[str, Peer] = {"llamafactory_table": llamafactory_table}
    try:
        import ftuneai as _  # noqa: F401
    except ImportError:
        return MappingProxyType(peers)
    return MappingProxyType({"ftuneai": ftuneai} | peers)
