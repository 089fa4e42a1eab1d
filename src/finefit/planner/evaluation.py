"""What is said about evaluation, whose batch is not that of training."""

from __future__ import annotations

from dataclasses import replace

from finefit.memory.evaluation import PHASE, evaluation_recipe
from finefit.memory.peak import Peak
from finefit.planner.answer import Fits
from finefit.planner.fit import fit
from finefit.workload import Cluster, Model, Recipe


def evaluation_warnings(
    model: Model, recipe: Recipe, cluster: Cluster | None, peak: Peak, fits: Fits
) -> tuple[str, ...]:
    """That training fits and evaluation does not, with the batch that would; that text is generated."""
    if recipe.eval_batch is None:
        return ()
    if evaluation_recipe(recipe) is None:
        return (f"evaluation of {recipe.task} generates text, whose memory is not modelled",)
    if cluster is None or fits not in (Fits.NO, Fits.TIGHT) or peak.phase != PHASE:
        return ()
    if fit(model, replace(recipe, eval_batch=None), cluster).fits is not Fits.YES:
        return ()
    asked = recipe.eval_batch
    if fits is Fits.TIGHT:
        return (f"training fits, evaluation is tight: it runs {asked} rows at once",)
    rows = asked // 2
    while rows and fit(model, replace(recipe, eval_batch=rows), cluster).fits is not Fits.YES:
        rows //= 2
    if not rows:
        return (f"training fits, evaluation does not: it runs {asked} rows at once",)
    return (f"training fits, evaluation does not: it runs {asked} rows at once; {rows} would fit",)
