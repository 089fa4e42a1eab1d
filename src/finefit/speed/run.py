"""How long the whole run takes: steps, tokens a second, hours.

Time follows padded tokens, so the length of a batch's rows matters more than the mean of the data:

- packed rows are ``seq_len`` long, whatever the samples;
- one row a micro-batch is as long as its sample: the mean length gives the mean time;
- several rows are as long as the longest of them. With independent lengths in [0, c] of mean m the
  expected longest of b is at most c·(1 - (1 - m/c)^b): the maximum is convex in each length, so the
  two-valued distribution on {0, c} is the worst. That bound is used and named an upper bound;
- unknown lengths: every row at the cut-off, an upper bound.

A run stops to evaluate, which is a forward pass of the same rows, and to write checkpoints.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from finefit.errors import InputError
from finefit.speed.steptime import StepTime, step_time
from finefit.workload.cluster import Cluster
from finefit.workload.lengths import Lengths
from finefit.workload.model import Model
from finefit.workload.recipe import Recipe
from finefit.workload.saving import Evaluation, Saving

SECONDS_PER_HOUR = 3600


@dataclass(frozen=True, slots=True)
class Run:
    """Length of a run. Unknown figures are None.

    Attributes:
        step: one optimizer step, at ``row_tokens`` tokens a row.
        row_tokens: padded tokens of a row.
        row_rule: where ``row_tokens`` comes from, for the reader.
        upper_bound: the row length, or the rows a sample takes when packed, is a bound from above, and so
            is every time that rests on it.
        rows_per_sample: rows a sample takes (1 unpacked; its share of a row when packed).
        rows_per_step: rows of all GPUs in one optimizer step.
        epoch_steps, steps: optimizer steps of an epoch and of the run.
        notes: what the figures leave out.
        evaluation_seconds, checkpoint_seconds: of the whole run, within ``hours``; 0 where it does neither or where
            ``notes`` say that they are unknown.
    """

    step: StepTime
    row_tokens: int
    row_rule: str
    upper_bound: bool
    rows_per_sample: float
    rows_per_step: int
    epoch_steps: int | None
    steps: int | None
    notes: tuple[str, ...]
    evaluation_seconds: float = 0.0
    checkpoint_seconds: float = 0.0

    @property
    def step_seconds(self) -> float:
        """Seconds of one optimizer step."""
        return self.step.seconds

    @property
    def tokens_per_second_per_gpu(self) -> float:
        """Padded tokens a second of one GPU."""
        return self.step.tokens / self.step.seconds

    @property
    def tokens_per_second(self) -> float:
        """Padded tokens a second of all GPUs."""
        return self.tokens_per_second_per_gpu * self.step.ranks

    @property
    def hours_per_1000_samples(self) -> float:
        """Hours that 1,000 samples take."""
        return 1000 * self.rows_per_sample / self.rows_per_step * self.step.seconds / SECONDS_PER_HOUR

    @property
    def hours_per_epoch(self) -> float | None:
        """Hours of one pass over the data; None while its size is unknown."""
        return None if self.epoch_steps is None else self.epoch_steps * self.step.seconds / SECONDS_PER_HOUR

    @property
    def hours(self) -> float | None:
        """Hours of the run; None while its number of steps is unknown."""
        if self.steps is None:
            return None
        beside = self.evaluation_seconds + self.checkpoint_seconds
        return (self.steps * self.step.seconds + beside) / SECONDS_PER_HOUR

    @property
    def hours_interval(self) -> tuple[float, float] | None:
        """Lower and upper end of the 90 % interval of ``hours``."""
        if self.hours is None:
            return None
        return self.hours / (1 + self.step.spread), self.hours * (1 + self.step.spread)


@dataclass(frozen=True, slots=True)
class Pauses:
    """What a run stops for: evaluations, and checkpoints of ``checkpoint_seconds`` each; None: neither is known."""

    evaluation: Evaluation | None = None
    saving: Saving | None = None
    checkpoint_seconds: float = 0.0


def run_time(model: Model, recipe: Recipe, cluster: Cluster, lengths: Lengths, pauses: Pauses | None = None) -> Run:
    """Length of the run on a cluster; the GPUs that do not cut a copy of the model are data-parallel.

    ``max_steps`` decides the number of steps where it is set (transformers 5.24.0
    ``TrainingArguments.max_steps`` overrides ``num_train_epochs``); otherwise it is
    ceil(rows · epochs / (micro_batch · grad_accum · GPUs)).

    Raises:
        InputError: a batch, length or number of samples below 1.
        NotModelled: as ``step_time``.
    """
    mean = _mean(lengths)
    if mean is not None and mean <= 0:
        raise InputError(f"a mean length of {mean:g} tokens", where=lengths.source, fix="give the mean tokens a sample")
    row_tokens, rule, upper = _row(recipe, lengths, mean)
    step = step_time(model, replace(recipe, seq_len=row_tokens), cluster)
    rows_per_sample = 1.0
    if recipe.packing and mean is not None:
        rows_per_sample = min(mean, recipe.seq_len) / recipe.seq_len
    samples, notes = _samples(recipe, lengths)
    copies = max(1, cluster.count // recipe.parallel.gpus)
    rows_per_step = recipe.micro_batch * recipe.grad_accum * copies
    rows = _rows(recipe, lengths, samples, rows_per_sample)
    epoch_steps = None if rows is None else math.ceil(rows / rows_per_step)
    steps = None
    if recipe.max_steps is not None and recipe.max_steps > 0:
        steps = recipe.max_steps
    elif rows is not None and recipe.epochs is not None:
        steps = math.ceil(rows * recipe.epochs / rows_per_step)
    if steps is None:
        notes.append("size of the data or number of epochs unknown: no total")
    evaluating, writing = 0.0, 0.0
    pauses = pauses or Pauses()
    if steps is not None and pauses.saving is not None:
        writing = pauses.saving.times(steps, epoch_steps) * pauses.checkpoint_seconds
    if steps is not None and pauses.evaluation is not None and pauses.evaluation.samples is not None:
        rows_each = math.ceil(pauses.evaluation.samples * rows_per_sample / copies)
        evaluating = pauses.evaluation.times(steps, epoch_steps) * rows_each * _forward_seconds(recipe, step)
    elif recipe.eval_batch is not None:
        notes.append("evaluation is not in the hours: the number of its samples is unknown")
    figures = (rows_per_sample, rows_per_step, epoch_steps, steps)
    return Run(step, row_tokens, rule, upper, *figures, tuple(notes), evaluating, writing)


def _forward_seconds(recipe: Recipe, step: StepTime) -> float:
    """Seconds a row takes in evaluation: one of the passes of the layers that a training step makes.

    Forward, the gradients of inputs and of weights, and forward once more where layers are recomputed.
    """
    passes = (2 if recipe.lora else 3) + (1 if recipe.checkpointing == "full" else 0)
    busy = step.seconds - step.optimizer - step.bubble
    return busy / passes / (recipe.micro_batch * recipe.grad_accum)


def _mean(lengths: Lengths) -> float | None:
    if lengths.mean is not None:
        return lengths.mean
    return lengths.tokens / lengths.samples if lengths.tokens and lengths.samples else None


def _row(recipe: Recipe, lengths: Lengths, mean: float | None) -> tuple[int, str, bool]:
    """Padded tokens of a row, the rule that gives them, and whether they are an upper bound."""
    cutoff = recipe.seq_len
    longest = min(cutoff, lengths.longest) if lengths.longest else cutoff
    if recipe.packing:
        known = mean is not None
        return cutoff, f"packed rows of {cutoff} tokens", not known
    if mean is None:
        return longest, f"lengths unknown: every row at {longest} tokens", True
    mean = min(mean, longest)
    if recipe.micro_batch == 1:
        return math.ceil(mean), f"one row a micro-batch, at the mean length of {mean:g} tokens", False
    bound = longest * (1 - (1 - mean / longest) ** recipe.micro_batch)
    return (
        min(longest, math.ceil(bound)),
        f"longest of {recipe.micro_batch} rows of mean {mean:g} and at most {longest} tokens, bounded from above",
        True,
    )


def _samples(recipe: Recipe, lengths: Lengths) -> tuple[int | None, list[str]]:
    """Samples of an epoch after ``max_samples``, which alone bounds a data set of unknown size from above."""
    if lengths.samples is None:
        if recipe.max_samples is None:
            return None, []
        return recipe.max_samples, [f"size of the data unknown: at most max_samples = {recipe.max_samples} are counted"]
    if lengths.samples < 1:
        raise InputError("a data set without samples", where=lengths.source, fix="give the number of samples")
    return min(lengths.samples, recipe.max_samples or lengths.samples), []


def _rows(recipe: Recipe, lengths: Lengths, samples: int | None, rows_per_sample: float) -> int | None:
    """Rows of one epoch; packed ones come from the tokens where only those are known."""
    if samples is not None:
        return math.ceil(samples * rows_per_sample)
    if recipe.packing and lengths.tokens is not None:
        return math.ceil(lengths.tokens / recipe.seq_len)
    return None
