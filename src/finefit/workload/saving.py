"""What a run writes while it trains, as far as it decides whether it can go on after an interruption."""

from __future__ import annotations

from dataclasses import dataclass

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
