"""The evaluation loop of a training run: a batch of its own size, without gradients, beside the optimizer's states.

transformers 5.24.0 trainer.py ``evaluation_loop`` and ``prediction_step``: the outputs of a batch live until its loss
is known, and only the loss is kept where no ``compute_metrics`` asks for more. Saving adds nothing: tensors go to the
host one by one (``docs/tracing.md``).
"""

from __future__ import annotations

from dataclasses import replace

from finefit.memory.timeline import Mark, Tensor, Timeline
from finefit.step.size import Dims, fixed
from finefit.step.versions import version_tuple
from finefit.workload.recipe import Recipe

PHASE = "evaluation"
# Their trainers evaluate by generating text
GENERATING = frozenset({"grpo", "rloo", "ppo"})


def evaluation_recipe(recipe: Recipe) -> Recipe | None:
    """How a batch of evaluation runs; None where the run never evaluates or evaluates by generating.

    Liger's loss leaves the logits out in evaluation since transformers passes ``skip_logits`` (in 5.24.0, not in
    4.55.4); before, its models do so in training only (Liger-Kernel 0.8.5 transformers/model/llama.py).
    """
    if recipe.eval_batch is None or recipe.task in GENERATING:
        return None
    version = recipe.stack.get("transformers")
    whole = recipe.loss == "fused_linear" and version is not None and version_tuple(version) < (5,)
    return replace(
        recipe,
        micro_batch=recipe.eval_batch,
        grad_accum=1,
        eval_batch=None,
        checkpointing="none",
        loss="full" if whole else recipe.loss,
    )


def followed_by(timeline: Timeline, evaluation: Timeline, dims: Dims) -> Timeline:
    """A training run's Timeline with the batch of evaluation after its last step.

    Args:
        evaluation: a Timeline that begins with what training leaves; ``dims``: of its batch.
    """
    begin = next(mark.start for mark in evaluation.marks if mark.phase == PHASE)
    first = sum(event >= 0 for event in evaluation.events[:begin])  # tensors of training
    offset = len(timeline.tensors) - first
    added = tuple(_at(tensor, dims) for tensor in evaluation.tensors[first:])
    events = tuple(e + offset if e >= 0 else e - offset for e in evaluation.events[begin:])
    shift = len(timeline.events) - begin
    marks = tuple(Mark(m.start + shift, m.phase, m.step) for m in evaluation.marks if m.start >= begin)
    return replace(
        timeline,
        tensors=(*timeline.tensors, *added),
        events=(*timeline.events, *events),
        marks=(*timeline.marks, *marks),
    )


def _at(tensor: Tensor, dims: Dims) -> Tensor:
    """The tensor with its size at ``dims``: its batch is not that of training."""
    return replace(tensor, size=fixed(tensor.size.raw(dims)))
