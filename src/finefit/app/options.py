"""Command-line options: each defined once, with its help. Values are checked where they are used."""

from __future__ import annotations

from argparse import ArgumentParser, BooleanOptionalAction, Namespace
from collections.abc import Callable
from typing import Any

from finefit.errors import InputError

# Adds a command: its name, what runs it, one sentence of help.
Adder = Callable[[str, Callable[[Namespace], int], str], ArgumentParser]

# Destination → (flag, settings of argparse). The recipe of a model, as ``finefit.api.Flags`` takes it.
RECIPE: dict[str, tuple[str, dict[str, Any]]] = {
    "method": (
        "--method",
        {"help": "full, lora, qlora; dora, rslora, pissa, lora+, lora-fa, adalora, vera, oft, ia3; freeze"},
    ),
    "train_layers": (
        "--train-layers",
        {"type": int, "metavar": "N", "help": "freeze: train the last N layers, the first where N is negative"},
    ),
    "train_modules": ("--train-modules", {"help": "freeze: train these modules alone, such as mlp or norm"}),
    "rank": ("--rank", {"type": int, "metavar": "N", "help": "LoRA rank"}),
    "targets": ("--targets", {"help": "LoRA modules: all-linear, or q_proj,v_proj"}),
    "batch": ("--batch", {"type": int, "metavar": "N", "help": "samples of a micro-batch on each GPU"}),
    "seq": ("--seq", {"type": int, "metavar": "N", "help": "tokens of the longest sample"}),
    "accum": ("--accum", {"type": int, "metavar": "N", "help": "micro-batches an optimizer step"}),
    "eval_batch": ("--eval-batch", {"type": int, "metavar": "N", "help": "evaluate too, N samples a batch"}),
    "precision": ("--precision", {"help": "bf16, fp16, fp32, bf16-mixed or fp16-mixed"}),
    "optimizer": ("--optimizer", {"help": "a value of the Trainer's optim, such as paged_adamw_8bit"}),
    "checkpointing": ("--checkpointing", {"help": "none, full or reentrant"}),
    "attention": ("--attention", {"help": "eager, sdpa or flash2"}),
    "quant_bits": ("--quant-bits", {"type": int, "metavar": "N", "help": "4 or 8, for qlora"}),
    "kbit_prepare": (
        "--kbit-prepare",
        {"action": BooleanOptionalAction, "help": "prepare_model_for_kbit_training is called, or not"},
    ),
    "loss": ("--loss", {"help": "full, fused_linear (Liger) or chunked"}),
    "sharding": ("--sharding", {"help": "none, zero1, zero2, zero3 or fsdp"}),
    "padded": ("--padded", {"action": BooleanOptionalAction, "help": "samples of a batch differ in length, or not"}),
    "image_size": ("--image-size", {"metavar": "WxH", "help": "pixels of a picture, 1024x768"}),
    "images": ("--images", {"type": int, "metavar": "N", "help": "pictures a sample, 0 for text alone"}),
    "freeze": ("--freeze", {"help": "parts left alone: tower, projector, language"}),
}
RUN: dict[str, tuple[str, dict[str, Any]]] = {
    "epochs": ("--epochs", {"type": float, "metavar": "X", "help": "passes over the data"}),
    "data": ("--data", {"metavar": "FILE", "help": "training data to count"}),
    "samples": ("--samples", {"type": int, "metavar": "N", "help": "samples of the data"}),
    "mean_length": ("--mean-length", {"type": float, "metavar": "X", "help": "mean tokens a sample"}),
    "tokens": ("--tokens", {"type": int, "metavar": "N", "help": "tokens of the data"}),
    "longest": ("--longest", {"type": int, "metavar": "N", "help": "tokens of the longest sample"}),
    "budget": ("--budget", {"help": "200USD or 1500CNY"}),
    "deadline": ("--deadline", {"help": "24h, 90min, 1d12h, 24小时"}),
    "currency": ("--currency", {"help": "USD or CNY; that of the budget if left out"}),
    "network": (
        "--network",
        {"type": float, "metavar": "GBIT", "help": "Gb/s of a machine's network cards together, for several machines"},
    ),
}


def add(parser: ArgumentParser, table: dict[str, tuple[str, dict[str, Any]]], title: str) -> None:
    """Add a table of options under a heading of the help; what is left out is None."""
    group = parser.add_argument_group(title)
    for name, (flag, settings) in table.items():
        if "metavar" not in settings and "action" not in settings:
            settings = {**settings, "metavar": name.upper().rpartition("_")[2]}
        group.add_argument(flag, dest=name, default=None, **settings)


def add_common(parser: ArgumentParser) -> None:
    """Options of every answer."""
    parser.add_argument("--gpu", metavar="GPU", help='"RTX 4090", "2x RTX 4090", "H100:8"')
    parser.add_argument("--strict", action="store_true", help="exit with 1 where it is tight")
    add_output(parser)


def add_output(parser: ArgumentParser) -> None:
    """Form, language and day of an answer."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--lang", metavar="LANG", help="en or zh; that of the environment if left out")
    parser.add_argument("--as-of", metavar="DATE", help="the day of the answer, today if left out")


def overrides(changes: list[str] | None) -> dict[str, object] | None:
    """``--set KEY=VALUE`` as keys of the config; the values are read as the tool reads them."""
    if not changes:
        return None
    out: dict[str, object] = {}
    for change in changes:
        key, equals, value = change.partition("=")
        if not equals or not key.strip():
            raise InputError(f"{change[:60]!r} is not KEY=VALUE", where="--set", fix="write --set cutoff_len=4096")
        out[key.strip()] = value
    return out
