"""What a run does beside training: the checkpoints it writes, the evaluations it stops for."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from finefit.workload.sourced import Source


@dataclass(frozen=True, slots=True)
class Saving:
    """Checkpoints of a run.

    Attributes:
        strategy: "no", "steps", "epoch" or "best", as the Trainer has it.
        steps: optimizer steps between two, with strategy "steps"; below 1 a share of the run.
        only_model: weights alone are saved, without optimizer and scheduler: nothing can be resumed.
        limit: copies kept on disk, None all.
        decided_by: where the setting that decides ``resumable`` was made; key: its name.
    """

    strategy: str
    steps: float
    only_model: bool
    limit: int | None
    decided_by: Source
    key: str

    def resumable(self, run_steps: int | None, epochs: float | None) -> bool:
        """Whether a checkpoint that training can go on from is written before the run ends.

        Args:
            run_steps, epochs: of the whole run; None unknown, which is taken for long enough.
        """
        if self.only_model or self.strategy == "no":
            return False
        if self.strategy == "epoch":
            return epochs is None or epochs > 1
        return not (self.strategy == "steps" and run_steps is not None and run_steps <= self.steps)

    def times(self, run_steps: int, epoch_steps: int | None) -> int:
        """Checkpoints a run of so many steps writes, the last one included."""
        if self.strategy == "no":
            return 0
        return max(1, times(self.strategy, self.steps, run_steps, epoch_steps))


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Evaluations during a run.

    Attributes:
        strategy: "steps", "epoch", or "no" for one after training.
        steps: optimizer steps between two, with strategy "steps"; below 1 a share of the run.
        samples: evaluated each time on all GPUs together; None unknown.
    """

    strategy: str
    steps: float
    samples: int | None

    def times(self, run_steps: int, epoch_steps: int | None) -> int:
        """Evaluations of a run of so many steps."""
        return 1 if self.strategy == "no" else times(self.strategy, self.steps, run_steps, epoch_steps)


def times(strategy: str, every: float, run_steps: int, epoch_steps: int | None) -> int:
    """How often something happens in a run, every so many steps or after each epoch.

    A share of the run is rounded up to whole steps (transformers 5.24.0 trainer_callback.py ``compute_steps``).
    """
    if strategy == "epoch":
        return ceil(run_steps / epoch_steps) if epoch_steps else 1
    interval = ceil(every * run_steps) if every < 1 else int(every)
    return run_steps // max(1, interval)
