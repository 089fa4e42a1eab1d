"""The canonical reading: what any tool's configuration says, in one vocabulary, each value with its place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from finefit.workload.sourced import Source

# Every field of a reading and what it holds. None, or absent: nobody says, and no default is known.
FIELDS: Mapping[str, str] = MappingProxyType(
    {
        "model": "Hub id, local folder, or the tool's own name of the architecture",
        "task": "pt, sft, dpo, ipo, orpo, kto, simpo, grpo, ppo, rm, kd",
        "method": "full, lora, qlora, dora, qdora, oft, freeze",
        "rank": "LoRA rank",
        "quant_bits": "bits of a quantised base (4, 8)",
        "micro_batch": 'rows of a micro-batch on one GPU; "auto"; "dynamic" where rows fill a token count',
        "grad_accum": 'micro-batches an optimizer step; "auto"',
        "seq_len": "tokens of the longest row; MODEL_MAXIMUM where the tool takes the model's own limit",
        "packing": "no, yes, stream (one text cut into rows), remove_padding (rows end to end, without padding)",
        "optimizer": "name as the tool spells it, without its module",
        "checkpointing": "none, full, selective",
        "strategy": "none (one GPU or plain data parallel), device_map, zero0-zero3, fsdp1, fsdp2, megatron",
        "offload": "sorted names in host memory: activations, experts, gradients, optimizer, params, ref_params",
        "gpus": "GPUs in total",
        "nodes": "machines",
        "global_batch": "rows an optimizer step over all GPUs",
        "eval_batch": "rows of an evaluation batch; None where the run never evaluates",
        "parallel": "degrees above 1: tp, pp, cp, sp, ep, dp_shard, dp_replicate",
        "epochs": "passes over the data",
        "max_steps": "optimizer steps at most",
        "load_dtype": 'dtype the weights are loaded in: bf16, fp16, fp32, or "checkpoint"',
        "amp": "autocast dtype: bf16, fp16, or none",
        "adapter_dtype": "dtype of LoRA's matrices",
        "lora_alpha": "LoRA alpha",
        "lora_dropout": "LoRA dropout",
        "lora_targets": 'names, "all-linear", or None for PEFT\'s table',
        "modules_to_save": "modules trained in full beside the adapters",
        "quant_kind": "nf4, fp4, int8",
        "quant_double": "quantised quantisation constants",
        "attention": "eager, sdpa, flash2, or None for the library's choice",
        "loss": "full, fused_linear, chunked",
        "fused_kernels": "Liger kernels of the layers",
        "reentrant": "implementation of checkpointing",
        "dora": "LoRA with a trained magnitude",
        "frozen_share": "first share of the parameters that is frozen",
        "oft_block": "block size of OFT",
        "optim_rank": "rank of GaLore's and APOLLO's projections",
        "optim_targets": "parts of the names of the linear modules whose gradients they project; () for all",
        "in_backward": "each parameter is updated during backward",
        "half_gradients": "Megatron's gradient buffer has the dtype of the weights, not fp32",
        "offload_between": "offloaded states come back to the GPU for each step",
        "padding_free": "the rows of a batch run end to end, without padding",
        "samples": "completions of a prompt that run in one forward pass (GRPO's group)",
        "completion": "tokens generated after a row of seq_len tokens",
        "token_budget": "tokens that rows without padding fill together in a micro-batch",
        "compiled": "torch.compile is on",
        "products": "fp8, mxfp8 where the layers multiply in them",
        "reference": "none, copy, self: what the loss compares with, where the usual rule is not enough",
        "reference_dtype": "dtype of a frozen copy",
        "reference_offload": "the copy rests in host memory",
        "critic": "a value model is trained beside the policy",
        "reward": "a reward model lies on the same GPUs",
        "engine_share": "part of the card that a generating engine takes (vLLM, SGLang)",
        "engine_sleeps": "the engine gives its memory back while a step trains",
        "generated": "micro-batches that the model itself generates at once",
        "deepspeed": "path, name or mapping of the DeepSpeed configuration",
    }
)  # fmt: skip
CORE = tuple(FIELDS)[: tuple(FIELDS).index("gpus") + 1]
# Methods with adapters, and which of PEFT's kinds they are
KINDS = {"lora": "lora", "qlora": "lora", "dora": "dora", "qdora": "dora", "adalora": "adalora", "vera": "vera"}
KINDS |= {"oft": "oft", "ia3": "ia3"}
MODEL_MAXIMUM = "model maximum"
FLAGS = "flags"  # a refusal's fix: the same model, method and sizes as options of the command line


@dataclass(frozen=True, slots=True)
class Value:
    """One value, where it comes from, and where it stands ("train.yaml:12: lora_r"; "" where nowhere)."""

    value: object
    source: Source
    place: str = ""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Something understood and not modelled: what it is, where it stands, what to do instead."""

    what: str
    where: str
    fix: str


@dataclass(frozen=True, slots=True)
class Reading:
    """One configuration in canonical terms.

    Attributes:
        tool, version: whose rules it was read by.
        path: the file.
        kind: "train"; "launcher" and "engine" only spread a run over GPUs; "task" rents the machines.
        values: by the names of ``FIELDS``.
        refusals: what keeps the run from being planned, the most important first.
        assumptions, warnings: sentences to show.
    """

    tool: str
    version: str
    path: Path
    kind: str
    values: Mapping[str, Value]
    refusals: tuple[Refusal, ...] = ()
    assumptions: tuple[str, ...] = field(default=())
    warnings: tuple[str, ...] = field(default=())

    def get(self, name: str) -> object:
        """A value by its canonical name; None where it is unknown."""
        found = self.values.get(name)
        return None if found is None else found.value

    def text(self, name: str) -> str | None:
        """A value that is text, else None."""
        value = self.get(name)
        return value if isinstance(value, str) else None

    def whole(self, name: str) -> int | None:
        """A value that is a whole number, else None."""
        value = self.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def where(self, name: str) -> str:
        """The place of a value for an error: its line and key, else the file."""
        found = self.values.get(name)
        return found.place if found and found.place else str(self.path)
