"""Samples and tokens of a run, from flags, from a data file, or from the data sets a config names."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from finefit.errors import InputError
from finefit.formats import dataset_info
from finefit.resolve.chat_templates import template_of
from finefit.resolve.companions import find
from finefit.resolve.measure import measure
from finefit.resolve.notes import Notes
from finefit.resolve.samples import RATIO, FileCount, count
from finefit.resolve.settings import Settings
from finefit.resolve.shown import shown
from finefit.resolve.token_count import Counter, counter_of
from finefit.workload.lengths import Lengths
from finefit.workload.sourced import Origin, Source

_TOO_LARGE = 10**15  # above the tokens of all data sets together


def stated_lengths(
    *,
    samples: int | None = None,
    mean_length: float | None = None,
    tokens: int | None = None,
    longest: int | None = None,
    notes: Notes | None = None,
) -> Lengths:
    """Lengths from ``--samples N --mean-length L``, ``--tokens N`` and ``--longest L``.

    Samples, mean and tokens follow from any two of them.

    Raises:
        InputError: a number below 1, or three that contradict each other.
    """
    given = {"--samples": samples, "--mean-length": mean_length, "--tokens": tokens, "--longest": longest}
    for flag, value in given.items():
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 1 or value == math.inf:
            raise InputError(f"{shown(value)} is not 1 or more", where=flag, fix="write a number of 1 or more")
        if value >= _TOO_LARGE:
            raise InputError(f"{shown(value)} is beyond any data", where=flag, fix="write a smaller number")
        if flag != "--mean-length" and value != int(value):
            raise InputError(f"{shown(value)} is not a whole number", where=flag, fix="write a whole number")
    notes = notes if notes is not None else Notes()
    for name, flag in (
        ("samples", "--samples"),
        ("mean", "--mean-length"),
        ("tokens", "--tokens"),
        ("longest", "--longest"),
    ):
        if given[flag] is not None:
            notes.source(f"lengths.{name}", Source(Origin.STATED, flag))
    if samples and mean_length and tokens and not math.isclose(samples * mean_length, tokens, rel_tol=0.05):
        raise InputError(
            f"{samples} samples of {mean_length:g} tokens are not {tokens} tokens",
            where="--tokens",
            fix="state two of them",
        )
    if tokens is None and samples and mean_length:
        tokens = round(samples * mean_length)
        notes.derived("lengths.tokens", "samples x mean length")
    elif samples is None and tokens and mean_length:
        samples = max(1, round(tokens / mean_length))
        notes.derived("lengths.samples", "tokens / mean length")
    elif mean_length is None and tokens and samples:
        mean_length = tokens / samples
        notes.derived("lengths.mean", "tokens / samples")
        if mean_length < 1:
            raise InputError(
                f"{samples} samples of {tokens} tokens in all hold less than one token each",
                where="--tokens",
                fix="state the tokens of all samples together, or --mean-length",
            )
    if mean_length and longest and mean_length > longest:
        raise InputError("the mean length is above the longest", where="--mean-length", fix="correct one of them")
    return Lengths(longest, mean_length, samples, tokens, ", ".join(f for f, v in given.items() if v is not None))


def file_lengths(
    path: str | Path, notes: Notes, *, model: str = "", cutoff: int | None = None, template: str | None = None
) -> Lengths:
    """Lengths from ``--data FILE``: by the model's own tokenizer where that lies on this machine.

    Without it samples are counted, and tokens are a rule of thumb and named as such; the longest sample is then
    unknown: memory is planned at the stated length.

    Args:
        model: what the user calls the model; cutoff: tokens its samples are cut to.
        template: a chat template of LLaMA-Factory; the model's own if left out.

    Raises:
        InputError: the file is missing, or is not data that can be read.
    """
    file = Path(path).expanduser()
    counter = counter_of(model) if model else None
    if counter is not None and (counter.exact or _columnar(file)):
        return _tokenised(file, str(path), counter, cutoff, template, notes)
    if file.is_dir():
        raise InputError("this is a folder", where=str(path), fix="name one .jsonl, .json or .csv file in it")
    found = count(file) if file.exists() or file.suffix.lower() in (".jsonl", ".json", ".csv") else None
    if found is None:
        if not file.exists():
            raise InputError("no such file", where=str(path), fix="check the path")
        raise InputError(
            "samples of this file cannot be counted (a .jsonl, .json or .csv file can, up to 2 GB, JSON lists 100 MB)",
            where=str(path),
            fix="state --samples N --mean-length L instead",
        )
    if found.samples == 0:
        raise InputError("the file holds no samples", where=str(path), fix="name the training data")
    return _measured(found, file.name, notes)


def _columnar(file: Path) -> bool:
    return file.suffix.lower() in (".parquet", ".arrow", ".tsv")


def _tokenised(
    file: Path, path: str, counter: Counter, cutoff: int | None, template: str | None, notes: Notes
) -> Lengths:
    written, assumed = template_of(template, counter)
    found = measure(path, counter, written, cutoff=cutoff)
    if assumed is not None and found.shape != "text":
        notes.assume(assumed)
    if found.bad:
        notes.warn(f"{path}: {found.bad} rows cannot be used and are left out; finefit lengths names them")
    lengths = [min(length, cutoff) for length in found.lengths] if cutoff else found.lengths
    tokens = sum(lengths)
    if not counter.exact:
        return _measured(FileCount(len(lengths), tokens / len(lengths), max(lengths)), file.name, notes)
    for field in ("samples", "mean", "tokens", "longest"):
        notes.source(f"lengths.{field}", Source(Origin.STATED, file.name))
    return Lengths(max(lengths), tokens / len(lengths), len(lengths), tokens, file.name)


def config_lengths(settings: Settings, notes: Notes) -> Lengths:
    """Lengths from the data sets a LLaMA-Factory config names; unknown where a file is not here.

    Each set is cut to ``max_samples`` (llamafactory 0.9.5 data/loader.py), then ``val_size`` is taken off.

    Raises:
        InputError: dataset_info.json or a data file is malformed, or lacks the name.
    """
    names = settings.names("dataset")
    if not names:
        return Lengths()
    where = settings.where("dataset")
    info = _dataset_info(settings)
    if info is None:
        notes.warn(f"{where}: no {dataset_info.FILE_NAME} beside the config, so the number of samples is unknown")
        return Lengths()
    path, table = info
    cap = settings.optional_integer("max_samples", minimum=1)
    counts: list[FileCount] = []
    for name in names:
        found = _one(table, path, name, where, notes)
        if found is None:
            return Lengths()
        counts.append(replace(found, samples=min(found.samples, cap)) if cap else found)
    if settings.flag("streaming") or settings.text("mix_strategy") != "concat":
        notes.warn(f"{where}: with streaming or interleaving the number of samples is unknown")
        return Lengths()
    total = sum(c.samples for c in counts)
    if total == 0:
        raise InputError("the data sets hold no samples", where=where, fix="name the training data")
    means = [(c.mean, c.samples) for c in counts if c.mean is not None]
    mean = sum(m * n for m, n in means) / sum(n for _, n in means) if len(means) == len(counts) else None
    longest = max((c.longest or 0) for c in counts) or None
    merged = FileCount(_without_validation(settings, total), mean, longest)
    return _measured(merged, f"{path.name} ({', '.join(names)})", notes)


def _measured(found: FileCount, name: str, notes: Notes) -> Lengths:
    notes.source("lengths.samples", Source(Origin.STATED, name))
    if found.mean is None:
        return Lengths(samples=found.samples, source=name)
    for field in ("mean", "tokens"):
        notes.assumed(f"lengths.{field}", RATIO)
    notes.assume(
        f"tokens of {name} by {RATIO}: {found.mean:.0f} a sample, the longest about {found.longest}; "
        "memory is planned at the stated length, not at this one"
    )
    return Lengths(mean=found.mean, samples=found.samples, tokens=round(found.mean * found.samples), source=name)


def _dataset_info(settings: Settings) -> tuple[Path, Mapping[str, tuple[object, str]]] | None:
    folder = settings.text("dataset_dir") or "data"
    found = find(settings.said, str(Path(folder) / dataset_info.FILE_NAME))
    return None if found is None else (found, dataset_info.read(found))


def _one(table: Mapping[str, tuple[object, str]], path: Path, name: str, where: str, notes: Notes) -> FileCount | None:
    """Count of one data set; None, with a warning, where it cannot be counted here."""
    base, mark, suffix = name.rpartition("#")
    sampled = None
    if name not in table and mark and suffix.isdigit() and int(suffix) > 0:  # ms-swift's "dataset#500"
        name, sampled = base, int(suffix)
        notes.warn(
            f"{where}: {base}#{suffix} is ms-swift's way to say {suffix} samples; LLaMA-Factory looks it up whole"
        )
    if name not in table:
        raise InputError(f"{path} has no data set {name[:60]!r}", where=where, fix="correct the name, or add an entry")
    entry = dataset_info.entry(name, *table[name])
    file = path.parent / entry.file if entry.file else None
    found = count(file) if file is not None and file.is_file() else None
    if found is None:
        notes.warn(
            f"{where}: the data of {name} is not a file here that can be counted; its number of samples is unknown"
        )
        return None
    drawn = sampled or entry.num_samples  # data/loader.py draws with repetition where the file holds fewer
    return replace(found, samples=drawn) if drawn else found


def _without_validation(settings: Settings, samples: int) -> int:
    """What ``val_size`` leaves: a share below 1, else a number (data/data_utils.py split_dataset)."""
    size = settings.number("val_size") or 0.0
    if size < 0 or (size > 1 and size >= samples):
        raise InputError(f"val_size leaves none of {samples} samples", where=settings.where("val_size"), fix="lower it")
    return samples - (int(size) if size > 1 else math.ceil(samples * size))
