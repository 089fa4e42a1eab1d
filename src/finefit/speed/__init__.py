"""Hours: the work of a step, its time on a GPU, the length of the run."""

from finefit.speed.run import Pauses, Run, run_time
from finefit.speed.steptime import StepTime, step_time
from finefit.speed.work import StepWork, work

__all__ = ["Pauses", "Run", "StepTime", "StepWork", "run_time", "step_time", "work"]
