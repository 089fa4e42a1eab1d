"""The training loop that is traced: load, a first step, a steady one. Optimizer states exist from the second on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch

from finefit.lab.build import DTYPES
from finefit.lab.tracker import Label, canonical
from finefit.workload.recipe import Recipe

STEPS = 2
MICRO_BATCHES = 2  # with accumulation: from the second on, gradients live through the forward pass


def tensors_of(module: Any) -> Iterator[tuple[torch.Tensor, Label]]:
    """Parameters, with the constants of quantised ones, and buffers: category and module of each."""
    for name, parameter in module.named_parameters():
        owner = canonical(name).rpartition(".")[0]
        yield parameter, ("adapters" if "lora_" in name else "weights", owner)
        if hasattr(parameter, "quant_state") or hasattr(parameter, "SCB"):
            from finefit.lab.quant import quantisation_tensors

            for tensor in quantisation_tensors(parameter):
                yield tensor, ("weights", owner)
    for name, buffer in module.named_buffers():
        yield buffer, ("buffers", canonical(name).rpartition(".")[0])


def _label_residents(tracker: Recorder, module: Any, optimizer: torch.optim.Optimizer) -> dict[int, Label]:
    """What the blocks hold that outlive a step."""
    found: dict[int | None, Label] = {}
    for tensor, label in tensors_of(module):
        found.setdefault(tracker.block_of(tensor), label)
    owners = {id(parameter): canonical(name).rpartition(".")[0] for name, parameter in module.named_parameters()}
    for parameter, state in optimizer.state.items():
        for value in state.values():
            if isinstance(value, torch.Tensor):
                found.setdefault(tracker.block_of(value), ("optimizer", owners[id(parameter)]))
    return {block: label for block, label in found.items() if block is not None}


def _watch_loss(tracker: Recorder, module: Any, step: list[int]) -> None:
    """From the output layer on, the forward pass is in the loss phase; the loss function is no module."""
    body = module.get_base_model() if hasattr(module, "get_base_model") else module
    body.get_output_embeddings().register_forward_pre_hook(lambda *_: tracker.mark("loss", step[0]))
    original = body.loss_function

    def loss_function(*args: Any, **kwargs: Any) -> Any:
        with tracker.module("loss"):
            return original(*args, **kwargs)

    body.loss_function = loss_function


def _batch(recipe: Recipe, device: str) -> dict[str, torch.Tensor]:
    """What a collator hands over: ids, labels and a mask, int64 each (transformers 5.24.0 data_collator.py)."""
    shape = (recipe.micro_batch, recipe.seq_len)
    return {
        "input_ids": torch.zeros(shape, dtype=torch.long, device=device),
        "labels": torch.zeros(shape, dtype=torch.long, device=device),
        "attention_mask": torch.ones(shape, dtype=torch.long, device=device),
    }


class Recorder(Protocol):
    """What the loop tells whoever records it."""

    def __len__(self) -> int: ...
    def mark(self, phase: str, step: int) -> None: ...
    def module(self, name: str) -> AbstractContextManager[None]: ...
    def block_of(self, tensor: torch.Tensor) -> int | None: ...


def run(
    tracker: Recorder, module: Any, optimizer: torch.optim.Optimizer, recipe: Recipe, device: str = "cuda"
) -> dict[int, Label]:
    """Train ``STEPS`` steps and return what the blocks hold that are known by name.

    ``keeps_outputs`` holds the model's outputs through backward, as a plain loop does; transformers'
    Trainer lets them go (trainer.py ``compute_loss``).
    """
    named = [(canonical(n).rpartition(".")[0], p) for n, p in module.named_parameters() if p.requires_grad]
    known: dict[int, Label] = {}
    step = [0]
    _watch_loss(tracker, module, step)
    micro_batches = MICRO_BATCHES if recipe.grad_accum > 1 else 1
    for step[0] in range(1, STEPS + 1):
        for _ in range(micro_batches):
            tracker.mark("forward", step[0])
            first = len(tracker)
            batch = _batch(recipe, device)
            known.update(dict.fromkeys(range(first, len(tracker)), ("buffers", "")))
            autocast = (
                torch.autocast(device, dtype=DTYPES[recipe.autocast]) if recipe.autocast else contextlib.nullcontext()
            )
            with autocast:
                outputs = module(**batch, use_cache=False)
            logits = tracker.block_of(outputs.logits)
            if logits is not None:
                known[logits] = ("logits", "lm_head")
            loss = outputs.loss
            if not recipe.keeps_outputs:
                del outputs
            tracker.mark("backward", step[0])
            loss.backward()
            for owner, parameter in named:
                block = tracker.block_of(parameter.grad) if parameter.grad is not None else None
                if block is not None:
                    known[block] = ("gradients", owner)
            outputs = None
            del loss, batch
        tracker.mark("optimizer", step[0])
        torch.nn.utils.clip_grad_norm_([p for _, p in named], 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return {**known, **_label_residents(tracker, module, optimizer)}
