"""A remedy of a plan written into the configuration that the plan was made from."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from finefit.errors import InputError
from finefit.formats import config, json_file, yaml11
from finefit.formats.rewrite import original, rewritten
from finefit.planner.contract import PLAN_SCHEMA
from finefit.planner.inputs import flat
from finefit.resolve.any_config import resolve_any
from finefit.resolve.readings import reading_of
from finefit.resolve.written import Written, batches, lever, scaled

# Fields that tell one run from another; a plan applies to the run it was made for
_SAME = ("task", "method", "seq_len", "micro_batch", "grad_accum", "lora.rank", "quant.kind", "checkpointing")
_MAX_PLAN = 20_000_000  # bytes; a plan with every offer takes some hundred thousand


@dataclass(frozen=True, slots=True)
class Applied:
    """A configuration with a change in it, not yet written anywhere.

    Attributes:
        path: the configuration; old, new: its text before and after, byte-order mark and line ends as they are.
        remedy: its number in the plan; change: what it does.
        notes: what the configuration itself cannot say.
    """

    path: Path
    old: str
    new: str
    remedy: int
    change: str
    notes: tuple[str, ...]

    def write(self, output: str | Path | None = None) -> None:
        """Put the new text in place of the old, or into a new file.

        Raises:
            InputError: the new file exists, or nothing can be written there.
        """
        if output is None:
            _write(self.path, self.new)
        else:
            write_new(Path(output), self.new)


def write_new(target: Path, text: str) -> None:
    """A text into a file that does not exist yet.

    Raises:
        InputError: the file exists, or nothing can be written there.
    """
    if target.exists() or target.is_symlink():
        raise InputError("this file exists", where=str(target), fix="name a new file")
    _write(target, text)


def _write(target: Path, text: str) -> None:
    """A whole file at once: an interrupted write leaves the old one.

    Raises:
        InputError: nothing can be written there.
    """
    try:
        _replace(target.resolve(), text.encode())
    except OSError as error:
        why = error.strerror or "it failed"
        raise InputError(f"the file cannot be written: {why}", where=str(target), fix="check the path") from None


def _replace(real: Path, data: bytes) -> None:
    descriptor, name = tempfile.mkstemp(dir=real.parent, prefix=f".{real.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as handle:
            handle.write(data)
        temporary.chmod(real.stat().st_mode & 0o777 if real.exists() else 0o644)
        temporary.replace(real)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def apply_plan(plan: str | Path, to: str | Path, *, remedy: int | None = None, tool: str | None = None) -> Applied:
    """The configuration with one remedy of a plan in it.

    Args:
        plan: what ``finefit plan CONFIG --json`` printed.
        to: the configuration that was planned.
        remedy: number of the remedy as the plan lists them, from 1; the first that makes the run fit if left out.
        tool: whose configuration it is, where its content does not tell.

    Raises:
        InputError: no plan, no such remedy, a plan of another run, or a value that cannot be changed alone.
        NotModelled: the tool has no key for the change.
    """
    answer, made = _read(Path(plan)), str(plan)
    number, chosen = _chosen(answer, remedy, made)
    _check_same(answer, made, Path(to), tool)
    said = config.read(to, tool)
    text, reading = original(Path(to)), reading_of(said)
    out = Written()
    try:
        kinds = str(chosen["kind"]).split("+")
        settings = {str(k): (str(pair["before"]), str(pair["after"])) for k, pair in chosen["settings"].items()}
        micro = scaled(reading, "micro_batch", settings)
        accum = reading.whole("grad_accum") or int(answer["inputs"]["grad_accum"]["value"])
        before = reading.whole("micro_batch") or micro
        now, then = settings.get("sharding.ranks") or (answer["inputs"]["sharding.ranks"]["value"],) * 2
        whole, ranks = before * accum * int(now), int(then)
        for kind in kinds:
            if kind != "micro_batch":
                lever(out, said, reading, kind, settings)
        leftover = whole % (micro * ranks)
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError):
        raise _no_plan(made) from None
    if not leftover:
        accum = whole // (micro * ranks)
    else:
        out.notes.append(
            f"the global batch grows from {whole} to {micro * accum * ranks} rows: {whole} rows are no whole number of "
            f"micro-batches of {micro} on {ranks} GPUs"
        )
    batches(out, said, reading, micro, accum, ranks)
    new = rewritten(said, text, out.edits)
    return Applied(Path(to), text, new, number, str(chosen["change"]), tuple(out.notes))


def _read(plan: Path) -> dict[str, Any]:
    """The plan's object, as far as it is one.

    Raises:
        InputError: not what ``finefit plan --json`` prints of a whole plan.
    """
    text = yaml11.read_text(plan, limit=_MAX_PLAN)
    answer = {key: value for key, value, _ in json_file.load_mapping(text, str(plan)).items}
    whole = answer.get("schema") == PLAN_SCHEMA and answer.get("kind") == "plan"
    if not whole or not isinstance(answer.get("remedies"), list) or not isinstance(answer.get("inputs"), dict):
        raise _no_plan(str(plan))
    return answer


def _no_plan(plan: str) -> InputError:
    return InputError(
        "this is not the JSON of a whole plan", where=plan, fix='run finefit plan CONFIG --gpu "RTX 4090" --json first'
    )


def _chosen(answer: Mapping[str, Any], remedy: int | None, plan: str) -> tuple[int, dict[str, Any]]:
    found = [one for one in answer["remedies"] if isinstance(one, dict)]
    if not found:
        raise InputError("the plan changes nothing", where=plan, fix="there is nothing to apply")
    if remedy is None:
        number = next((n for n, one in enumerate(found, 1) if one.get("fits") == "yes"), 1)
    elif not 1 <= remedy <= len(found):
        raise InputError(f"the plan has {len(found)} remedies", where="--remedy", fix=f"write 1 to {len(found)}")
    else:
        number = remedy
    return number, found[number - 1]


def _check_same(answer: Mapping[str, Any], plan: str, path: Path, tool: str | None) -> None:
    """Refuse a plan whose inputs are not those of the configuration as it stands."""
    recipe = resolve_any(path, tool=tool).recipe
    now = {} if recipe is None else dict(flat(recipe))
    for name in _SAME:
        entry = answer["inputs"].get(name)
        then = entry.get("value") if isinstance(entry, dict) else None
        if then != now.get(name):
            raise InputError(
                f"the plan was made with {name} {then}, the config has {now.get(name)}",
                where=plan,
                fix=f"plan {path.name} as it is now: finefit plan {path} --json",
            )
