"""The loop that is traced: load, a first step, a steady one, evaluation and saving where the recipe evaluates.

Optimizer states exist from the second step on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch

from finefit.lab.build import DTYPES, of_adapter
from finefit.lab.optimizers import state_tensors
from finefit.lab.tracker import Label, canonical
from finefit.lab.versions import TRANSFORMERS as VERSION
from finefit.workload.recipe import Recipe

STEPS = 2
MICRO_BATCHES = 2  # with accumulation: from the second on, gradients live through the forward pass


def tensors_of(module: Any) -> Iterator[tuple[torch.Tensor, Label]]:
    """Parameters, with the constants of quantised ones, and buffers: category and module of each."""
    for name, parameter in module.named_parameters():
        owner = canonical(name).rpartition(".")[0]
        yield parameter, ("adapters" if of_adapter(name) else "weights", owner)
        if hasattr(parameter, "quant_state") or hasattr(parameter, "SCB"):
            from finefit.lab.quant import quantisation_tensors

            for tensor in quantisation_tensors(parameter):
                yield tensor, ("weights", owner)
    for name, buffer in module.named_buffers():
        yield buffer, ("buffers", canonical(name).rpartition(".")[0])


def label_residents(tracker: Recorder, module: Any, optimizer: torch.optim.Optimizer) -> dict[int, Label]:
    """What the blocks hold that outlive a step."""
    found: dict[int | None, Label] = {}
    for tensor, label in tensors_of(module):
        found.setdefault(tracker.block_of(tensor), label)
    owners = {id(parameter): canonical(name).rpartition(".")[0] for name, parameter in module.named_parameters()}
    for parameter, value in state_tensors(optimizer):
        found.setdefault(tracker.block_of(value), ("optimizer", owners.get(id(parameter), "")))
    return {block: label for block, label in found.items() if block is not None}


def watch_loss(tracker: Recorder, module: Any, step: list[int], fused: bool = False) -> None:
    """From the output layer on, the forward pass is in the loss phase; the loss function is no module.

    Args:
        step: number of the optimizer step that runs, changed by the caller.
        fused: the loss takes the weight of the output layer, which itself never runs.
    """
    body = module.get_base_model() if hasattr(module, "get_base_model") else module

    def mark(*_: Any) -> None:
        if module.training:
            tracker.mark("loss", step[0])

    if fused:
        body.base_model.register_forward_hook(mark)
        return
    head = body.get_output_embeddings()
    if head is None:  # a classifier: one layer, or a small head
        head = body.classifier
    head.register_forward_pre_hook(mark)
    if VERSION < (4, 50):  # the loss is computed in the model's forward, or by a function that cannot be replaced
        return
    original = body.loss_function

    def loss_function(*args: Any, **kwargs: Any) -> Any:
        with tracker.module("loss"):
            return original(*args, **kwargs)

    body.loss_function = loss_function


def mixed_precision(module: Any, recipe: Recipe, device: str) -> None:
    """Autocast around the model's forward, its outputs then in fp32 (accelerate 1.15.0 ``prepare_model``)."""
    if recipe.autocast is None:
        return
    from accelerate.utils import convert_outputs_to_fp32

    context = torch.autocast(device, dtype=DTYPES[recipe.autocast])
    module.forward = convert_outputs_to_fp32(context(module.forward))


def _loss(outputs: Any, recipe: Recipe) -> torch.Tensor:
    """The loss as the trainer takes it from the model's outputs (trl 1.16.0 ``SFTTrainer.compute_loss``)."""
    if recipe.loss == "chunked":
        tokens = outputs.label_mask.sum()
        return (-outputs.log_probs).sum() / torch.as_tensor(tokens).clamp(min=1)
    loss: torch.Tensor = outputs.loss
    return loss


def _batch(rows: int, length: int, device: str) -> dict[str, torch.Tensor]:
    """What a collator hands over: ids, labels and a mask, int64 each (transformers 5.24.0 data_collator.py)."""
    shape = (rows, length)
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
    tracker: Recorder,
    module: Any,
    optimizer: torch.optim.Optimizer,
    recipe: Recipe,
    device: str = "cuda",
    pictures: Callable[[], dict[str, Any]] = dict,
) -> dict[int, Label]:
    """Train ``STEPS`` steps and return what the blocks hold that are known by name.

    ``pictures`` makes what a batch holds beside its text.

    ``keeps_outputs`` holds the model's outputs through backward, as a plain loop does; transformers'
    Trainer lets them go (trainer.py ``compute_loss``).
    """
    named = [(canonical(n).rpartition(".")[0], p) for n, p in module.named_parameters() if p.requires_grad]
    known: dict[int, Label] = {}
    step = [0]
    fused = {"fused_lm_head": True} if recipe.loss == "chunked" else {}
    watch_loss(tracker, module, step, bool(fused))
    mixed_precision(module, recipe, device)
    micro_batches = MICRO_BATCHES if recipe.grad_accum > 1 else 1
    for step[0] in range(1, STEPS + 1):
        for _ in range(micro_batches):
            tracker.mark("forward", step[0])
            first = len(tracker)
            found = {**_batch(recipe.micro_batch, recipe.seq_len, device), **pictures()}
            batch = {name: value for name, value in found.items() if value is not None}
            del found
            known.update(dict.fromkeys(range(first, len(tracker)), ("buffers", "")))
            outputs = module(**batch, **fused, use_cache=recipe.returns_cache)
            logits = None if fused else tracker.block_of(outputs.logits)
            if logits is not None:
                known[logits] = ("logits", "lm_head")
            loss = _loss(outputs, recipe)
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
    if recipe.eval_batch is not None:
        tracker.mark("evaluation", STEPS)
        evaluate(module, recipe, recipe.eval_batch, fused, device)
        tracker.mark("save", STEPS)
        save(module, optimizer)
    return {**known, **label_residents(tracker, module, optimizer)}


def evaluate(module: Any, recipe: Recipe, rows: int, fused: dict[str, bool], device: str) -> None:
    """One batch of the evaluation loop, in which the loss alone is asked for (no ``compute_metrics``).

    The outputs, logits among them, live until the batch is done, and nothing of them longer (transformers
    5.24.0 trainer.py ``prediction_step``, ``evaluation_loop``).
    """
    module.eval()
    batch = _batch(rows, recipe.seq_len, device)
    with torch.no_grad():
        outputs = module(**batch, **fused, use_cache=recipe.returns_cache)
        loss = _loss(outputs, recipe).detach().mean().repeat(rows)
    del outputs, batch, loss
    module.train()


def save(module: Any, optimizer: torch.optim.Optimizer) -> None:
    """What saving a checkpoint asks of the device: every tensor contiguous, then copied to the host.

    safetensors copies one tensor at a time (safetensors/torch.py ``_tobytes``), torch.save one storage.
    """
    if hasattr(module, "peft_config"):
        from peft import get_peft_model_state_dict

        # The names of embedding layers would be looked up on the Hub; they add nothing to a state on the device.
        weights = get_peft_model_state_dict(module, save_embedding_layers=False)
    else:
        weights = module.state_dict()
    for tensor in weights.values():
        tensor.contiguous().cpu()
    for _, value in state_tensors(optimizer):
        value.cpu()
