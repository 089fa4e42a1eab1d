"""Command-line options that several commands share: one definition each, with its help."""

from __future__ import annotations

from typing import Annotated

import typer

Gpu = Annotated[str | None, typer.Option("--gpu", metavar="GPU", help='"RTX 4090", "2x RTX 4090", "H100:8"')]
Method = Annotated[str | None, typer.Option("--method", help="full, lora or qlora")]
Rank = Annotated[int | None, typer.Option("--rank", help="LoRA rank")]
Targets = Annotated[str | None, typer.Option("--targets", help="LoRA modules: all-linear or q_proj,v_proj")]
Batch = Annotated[int | None, typer.Option("--batch", help="samples of a micro-batch on each GPU")]
Seq = Annotated[int | None, typer.Option("--seq", help="tokens of the longest sample")]
Accum = Annotated[int | None, typer.Option("--accum", help="micro-batches an optimizer step")]
Precision = Annotated[str | None, typer.Option("--precision", help="bf16, fp16, fp32, bf16-mixed or fp16-mixed")]
Optimizer = Annotated[str | None, typer.Option("--optimizer", help="a value of the Trainer's optim")]
Checkpointing = Annotated[str | None, typer.Option("--checkpointing", help="none, full or reentrant")]
Attention = Annotated[str | None, typer.Option("--attention", help="eager, sdpa or flash2")]
QuantBits = Annotated[int | None, typer.Option("--quant-bits", help="4 or 8, for qlora")]
KbitPrepare = Annotated[
    bool | None,
    typer.Option("--kbit-prepare/--no-kbit-prepare", help="prepare_model_for_kbit_training is called"),
]
Loss = Annotated[str | None, typer.Option("--loss", help="full, fused_linear (Liger) or chunked")]
Sharding = Annotated[str | None, typer.Option("--sharding", help="none, zero1, zero2, zero3 or fsdp")]
Padded = Annotated[bool | None, typer.Option("--padded/--not-padded", help="samples of a batch differ in length")]
Json = Annotated[bool, typer.Option("--json", help="print one JSON object")]
Strict = Annotated[bool, typer.Option("--strict", help="exit with 1 where it is tight")]
Lang = Annotated[str | None, typer.Option("--lang", help="en or zh; that of the environment if left out")]
AsOf = Annotated[str | None, typer.Option("--as-of", metavar="DATE", help="the day of the answer, today if left out")]
