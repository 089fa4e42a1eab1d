"""The real trainers under the tracker: ``transformers.Trainer``, TRL's ``SFTTrainer`` and ``DPOTrainer``.

What they and accelerate wrap, upcast and keep is part of the truth that the hand-built step (``step.py``)
must equal. Patches here are those a trainer needs beside ``shim.fake_cuda``, undone on exit.
"""

from __future__ import annotations

import gc
import os
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import transformers
from torch._subclasses.fake_tensor import FakeTensorMode

from finefit.errors import NotModelled
from finefit.lab.build import load_model, lora_config, prepare_model, refuse_untraced
from finefit.lab.sdpa import attention
from finefit.lab.shim import fake_cuda
from finefit.lab.step import MICRO_BATCHES, STEPS, label_residents, tensors_of, watch_loss
from finefit.lab.trace import no_collection
from finefit.lab.tracker import Label, Tracker, canonical
from finefit.lab.versions import quiet
from finefit.memory.timeline import Timeline
from finefit.step.size import Dims
from finefit.workload.dtypes import DType
from finefit.workload.model import Model
from finefit.workload.recipe import Beside, Optimizer, Recipe

TRAINERS = ("trainer", "sft", "dpo")
_OPTIM = {("adamw", "fused"): "adamw_torch_fused", ("adamw_8bit", "fused"): "adamw_bnb_8bit", ("sgd", "foreach"): "sgd"}


@contextmanager
def _one_gpu() -> Iterator[None]:
    """What transformers and accelerate ask of a machine with one GPU."""
    with ExitStack() as stack:
        stack.enter_context(
            patch.dict(os.environ, {"ACCELERATE_TORCH_DEVICE": "cuda:0", "HF_HUB_DISABLE_TELEMETRY": "1"})
        )
        for target, value in (
            ("torch.cuda.set_device", lambda *a: None),
            ("torch.cuda.device_count", lambda: 1),
            ("torch.cuda.empty_cache", lambda: None),
            ("torch.cuda.get_device_name", lambda *a: "fake"),
            ("transformers.training_args.is_torch_bf16_gpu_available", lambda: True),
            ("accelerate.accelerator.is_bf16_available", lambda *a, **k: True),
            # Losses of evaluation become numbers on the host, which fake tensors do not have.
            ("transformers.trainer_pt_utils.nested_numpify", lambda tensors: np.zeros(1)),
        ):
            stack.enter_context(patch(target, value))
        from accelerate.state import AcceleratorState, PartialState

        AcceleratorState._reset_state(reset_partial_state=True)
        stack.callback(PartialState._reset_state)
        stack.callback(AcceleratorState._reset_state, True)
        yield


@dataclass(slots=True)
class _Watch:
    """Tells the tracker which phase a trainer is in, and what its blocks hold."""

    tracker: Tracker
    module: Any
    recipe: Recipe
    step: list[int] = field(default_factory=lambda: [1])
    known: dict[int, Label] = field(default_factory=dict)

    def attach(self, fused: bool) -> None:
        self.module.register_forward_pre_hook(self._forward, with_kwargs=True)
        watch_loss(self.tracker, self.module, self.step, fused)

    def _forward(self, module: Any, args: Any, kwargs: dict[str, Any]) -> None:
        self.tracker.mark("forward" if module.training else "evaluation", min(self.step[0], STEPS))
        for value in kwargs.values():
            block = self.tracker.block_of(value) if isinstance(value, torch.Tensor) else None
            if block is not None:
                self.known[block] = ("buffers", "")

    def backward(self, original: Any) -> Any:
        def run(loss: torch.Tensor, **kwargs: Any) -> None:
            self.tracker.mark("backward", self.step[0])
            original(loss, **kwargs)
            for name, parameter in self.module.named_parameters():
                block = self.tracker.block_of(parameter.grad) if parameter.grad is not None else None
                if block is not None:
                    self.known[block] = ("gradients", canonical(name).rpartition(".")[0])
            self.tracker.mark("optimizer", self.step[0])

        return run

    def stepped(self, *_: Any) -> None:
        self.step[0] += 1


def _data(rows: int, length: int, preference: bool) -> Any:
    from datasets import Dataset

    ids, mask = [1] * length, [1] * length
    if preference:  # a prompt of one token, so that chosen and rejected have the row's length
        return Dataset.from_list([{"prompt_ids": ids[:1], "chosen_ids": ids[1:], "rejected_ids": ids[1:]}] * rows)
    return Dataset.from_list([{"input_ids": ids, "attention_mask": mask, "labels": ids}] * rows)


def _arguments(recipe: Recipe, folder: str) -> dict[str, Any]:
    """Settings of TrainingArguments and of the configs that inherit from it.

    Raises:
        NotModelled: an optimizer that the trainers cannot be asked for on fake tensors.
    """
    name = _optim(recipe.optimizer)
    return {
        "output_dir": folder,
        "max_steps": STEPS,
        "per_device_train_batch_size": recipe.micro_batch,
        "per_device_eval_batch_size": recipe.eval_batch or 1,
        "gradient_accumulation_steps": MICRO_BATCHES if recipe.grad_accum > 1 else 1,
        "bf16": recipe.autocast == DType.BF16,
        "fp16": recipe.autocast == DType.FP16,
        "optim": name,
        "gradient_checkpointing": recipe.checkpointing == "full",
        "gradient_checkpointing_kwargs": {"use_reentrant": recipe.reentrant},
        "eval_strategy": "no" if recipe.eval_batch is None else "steps",
        "eval_steps": STEPS,
        "save_strategy": "no",
        "logging_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
        "use_cpu": False,
    }


def _optim(optimizer: Optimizer) -> str:
    name = _OPTIM.get((optimizer.name, optimizer.impl))
    if name is None:
        raise NotModelled(
            f"a trainer cannot be asked for {optimizer.name} ({optimizer.impl}) on fake tensors", fix="use adamw, fused"
        )
    return name


def _build(kind: str, module: Any, reference: Any, recipe: Recipe, folder: str) -> Any:
    arguments = _arguments(recipe, folder)
    rows = max(4, recipe.micro_batch) * 4 * STEPS
    data: dict[str, Any] = {"train_dataset": _data(rows, recipe.seq_len, kind == "dpo")}
    if recipe.eval_batch is not None:
        data["eval_dataset"] = _data(recipe.eval_batch, recipe.seq_len, kind == "dpo")
    if kind == "trainer":
        return transformers.Trainer(
            prepare_model(module, recipe),
            transformers.TrainingArguments(**arguments),
            data_collator=transformers.default_data_collator,
            **data,
        )
    import trl

    trained = {"peft_config": lora_config(recipe)} if recipe.method == "lora" else {}
    if kind == "sft":
        config = trl.SFTConfig(**arguments, max_length=recipe.seq_len, dataset_kwargs={"skip_prepare_dataset": True})
        return trl.SFTTrainer(module, config, processing_class=_tokenizer(), **data, **trained)
    config = trl.DPOConfig(**arguments, max_length=recipe.seq_len)
    with patch.object(trl.DPOTrainer, "_prepare_dataset", lambda self, dataset, *a, **k: dataset):  # it is prepared
        return trl.DPOTrainer(module, reference, args=config, processing_class=_tokenizer(), **data, **trained)


def _tokenizer() -> Any:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel

    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel({"[PAD]": 0, "a": 1}, unk_token="a")), pad_token="[PAD]", eos_token="a"
    )


def trace_trainer(kind: str, model: Model, recipe: Recipe, *, arch: str = "sm80") -> Timeline:
    """The Timeline of a real trainer that trains ``STEPS`` steps, then evaluates where the recipe does.

    Args:
        kind: one of ``TRAINERS``.

    Raises:
        NotModelled: something in the recipe cannot be traced through this trainer.
    """
    if kind == "dpo":  # the trainer itself loads the reference and makes the loss
        recipe = replace(recipe, task="sft", beside=Beside())
    refuse_untraced(recipe)
    if kind not in TRAINERS:
        raise NotModelled(f"no trainer is called {kind!r}", fix=f"use one of {', '.join(TRAINERS)}")
    if (recipe.loss == "chunked") != (kind != "trainer"):
        raise NotModelled(f"the {kind} trainer has another loss than {recipe.loss!r}", fix="TRL's losses are chunked")
    # DPO without adapters compares with a frozen copy; with them, with the model without its adapters.
    with_reference = kind == "dpo" and recipe.method == "full"
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        stack.enter_context(quiet())
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        recompute = stack.enter_context(fake_cuda(attention(arch), arch))
        stack.enter_context(_one_gpu())
        stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        plain = replace(recipe, loss="full")  # TRL's trainers fuse the output layer themselves
        module = load_model(model, plain)
        reference = load_model(model, plain) if with_reference else None
        tracker = stack.enter_context(Tracker(recompute, arch, recipe.padded))
        for tensor, (_, owner) in chain(tensors_of(module), tensors_of(reference) if reference else ()):
            tracker.adopt(tensor, owner)
        trainer = _build(kind, module, reference, recipe, folder)
        tracker.attach(trainer.model)
        watch = _Watch(tracker, trainer.model, recipe)
        watch.attach(kind != "trainer")
        trainer.accelerator.backward = watch.backward(trainer.accelerator.backward)
        trainer.create_optimizer()
        trainer.optimizer.register_step_post_hook(watch.stepped)
        trainer.remove_callback(transformers.PrinterCallback)
        gc.collect()
        stack.enter_context(no_collection())
        try:
            trainer.train()
        finally:
            tracker.detach()
        rank = recipe.lora.rank if recipe.lora else 0
        known = {**watch.known, **label_residents(tracker, trainer.model, trainer.optimizer)}
        return tracker.timeline(known, Dims(recipe.micro_batch, recipe.seq_len, rank))
