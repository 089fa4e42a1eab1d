"""The second table of docs/accuracy.md: parity of the modelled Timeline with the traced one."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from benchmarks.tables import table

if TYPE_CHECKING:
    from benchmarks.trace import Score

LISTED = 0.005  # disagreements from here on are listed with the tensors that make them
_LINES = 3


def _percent(value: float) -> str:
    return f"{100 * value:.3f} %"


def _group(name: str, scores: Sequence[Score]) -> list[str]:
    errors, bare = (sorted(map(abs, values)) for values in zip(*_errors(scores), strict=True))
    return [
        name,
        str(len(scores)),
        _percent(statistics.median(errors)),
        _percent(errors[min(len(errors) - 1, int(0.9 * len(errors)))]),
        _percent(errors[-1]),
        _percent(statistics.median(bare)),
        _percent(bare[-1]),
        f"{sum(s.phase == s.traced_phase for s in scores)}",
    ]


def _errors(scores: Iterable[Score]) -> list[tuple[float, float]]:
    return [(s.error, s.error_without_assumed) for s in scores]


def _keys(score: Score) -> list[tuple[str, str]]:
    """The groups a row belongs to: (table, group)."""
    recipe = score.row.recipe
    checkpointing = "none" if recipe.checkpointing == "none" else "reentrant" if recipe.reentrant else "non-reentrant"
    attention = recipe.attention + (", padded" if recipe.padded else "")
    precision = recipe.weight_dtype.value + (" under autocast" if recipe.autocast else "")
    return [
        ("method", recipe.method_label),
        ("architecture", score.row.model.name),
        ("checkpointing", checkpointing),
        ("attention", attention),
        ("loss", recipe.loss),
        ("optimizer", f"{recipe.optimizer.name}, {recipe.optimizer.impl}"),
        ("precision", precision),
        ("batch", f"{recipe.micro_batch} x {recipe.seq_len}"),
    ]


def page(scores: Sequence[Score], skipped: Counter[str], versions: dict[str, str]) -> str:
    """Tables over all rows and by kind, the assumed terms, the rows that disagree, those left out."""
    head = ["rows", "median", "p90", "worst", "median, bare", "worst, bare", "same phase"]
    out = [
        "Libraries: " + ", ".join(f"{name} {version}" for name, version in versions.items()) + ".",
        table(["", *head], [_group("all", scores)]),
    ]
    groups: dict[str, dict[str, list[Score]]] = {}
    for score in scores:
        for kind, name in _keys(score):
            groups.setdefault(kind, {}).setdefault(name, []).append(score)
    out += [table([kind, *head], [_group(name, found) for name, found in by.items()]) for kind, by in groups.items()]
    assumed: dict[str, tuple[int, str]] = {}
    for score in scores:
        for term in score.assumed:
            assumed[term.op] = (max(term.largest, assumed.get(term.op, (0, ""))[0]), term.source)
    out.append("Memory inside kernels, which both sides take from the same source:")
    out.append(
        table(
            ["kernel", "largest, MiB", "source"],
            [[op, f"{size / 2**20:,.1f}", source] for op, (size, source) in sorted(assumed.items())],
        )
    )
    out.append(_disagreements(scores))
    if skipped:
        out.append("Rows left out:")
        out.append(table(["reason", "rows"], [[reason, str(n)] for reason, n in skipped.most_common()]))
    return "\n\n".join(out)


def _disagreements(scores: Sequence[Score]) -> str:
    found = sorted((s for s in scores if abs(s.error) > LISTED), key=lambda s: -abs(s.error))
    if not found:
        return f"No row differs by more than {_percent(LISTED)}."
    rows = [
        [s.row.name, _percent(s.error), s.phase, s.traced_phase, "; ".join(s.differences[:_LINES]) or "–"]
        for s in found
    ]
    return f"Rows that differ by more than {_percent(LISTED)}, with the tensors that only one side holds:\n\n" + table(
        ["row", "error", "phase", "traced phase", "modelled minus traced"], rows
    )
