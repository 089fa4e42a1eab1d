"""Any configuration as written: the kind of file by its name, the tool by its keys, each value with its line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from finefit.errors import InputError
from finefit.formats import json_file, python_file, shell, toml_file, yaml11
from finefit.formats.launch import Launch, flags, launches
from finefit.formats.said import Entry, Said
from finefit.formats.tools import TOOLS, recognise
from finefit.formats.yaml11 import Dialect, Document

_HANDED_ON = ("nproc_per_node", "nnodes", "num_processes", "num_machines")
SCRIPTS = (".sh", ".bash", ".slurm", ".sbatch", ".zsh")
_COMMENT = re.compile(r"(?:^|\s)#(.*)$")
_SLURM = re.compile(r"^#\s*SBATCH\s+(--?[\w-]+)(?:[= ]\s*(\S+))?")


def read(path: str | Path, tool: str | None = None, *, text: str | None = None) -> Said:
    """A configuration or launch script as its keys, values and lines.

    Args:
        path: a YAML, JSON or TOML file, a shell script, or a Python file (read, never run).
        tool: a name of ``TOOLS`` to read it as; told by its keys if left out.
        text: what would stand in the file, instead of what does.

    Raises:
        InputError: the file is missing, malformed, or no training configuration of a known tool.
    """
    if tool is not None and tool not in TOOLS:
        raise InputError(f"{tool[:40]!r} is no format", where="--format", fix=f"write one of {', '.join(TOOLS)}")
    file = Path(path)
    text = yaml11.read_text(file) if text is None else text
    suffix = file.suffix.lower()
    if is_script(file, text):
        return _script(text, file, tool)
    if suffix == ".py":
        document = python_file.load_tree(text, str(path))
    elif suffix == ".toml":
        document = toml_file.load_tree(text, str(path))
    elif suffix == ".json":
        document = json_file.load_tree(text, str(path))
    else:
        document = yaml11.load_tree(text, str(path))
        found = tool or recognise([key for key, _, _ in document.items])
        if found and TOOLS[found].dialect is Dialect.OMEGACONF:
            document = yaml11.load_tree(text, str(path), Dialect.OMEGACONF)
    found = tool or recognise([key for key, _, _ in document.items])
    entries = {key: Entry(value, f"{path}:{line}") for key, value, line in document.items}
    if found is None:
        raise _unknown(entries, path)
    said = Said(
        found,
        TOOLS[found].version,
        file,
        MappingProxyType(entries),
        _duplicates(document, found, str(path)),
        comments=_comments(text) if suffix != ".json" else (),
    )
    return _inner(said, text) if found in ("skypilot", "dstack") else said


def is_script(file: Path, text: str) -> bool:
    """Whether a file is a shell script, by its ending or its first line."""
    return file.suffix.lower() in SCRIPTS or text.startswith("#!")


def _script(text: str, file: Path, tool: str | None) -> Said:
    script = shell.read(text, str(file))
    facts = _slurm(script.comments, str(file))
    return _launched(script, file, facts, tool)


def _launched(script: shell.Script, file: Path, facts: Mapping[str, Entry], tool: str | None) -> Said:
    """The first training command of a script as a configuration."""
    run, found, others = training(script, str(file), tool)
    given = flags(run.arguments, str(file))
    warnings = list(script.warnings)
    if others:
        lines = ", ".join(str(line) for line in others[:5])
        warnings.append(
            f"{file}:{run.line}: this script starts {len(others) + 1} runs; the first is read here "
            f"(others: line {lines})"
        )
    entries = dict(given)
    named = next((w.text for w in run.arguments[:1] if w.text.lower().endswith((".yaml", ".yml", ".json"))), None)
    named = named or next((str(given[k].value) for k in ("config",) if k in given and given[k].value), None)
    if named is not None:
        entries = {**_named_config(named, file, found), **entries}
    # "axolotl train x.yaml -- --nproc_per_node=8", "trl sft --num_processes 8": handed on to the launcher
    handed = {key: entry for key, entry in given.items() if key in _HANDED_ON}
    return Said(
        found,
        TOOLS[found].version,
        file,
        MappingProxyType(entries),
        tuple(warnings),
        program=run.program,
        launch=MappingProxyType({**facts, **handed, **run.facts}),
        comments=script.comments,
    )


def training(script: shell.Script, name: str, tool: str | None) -> tuple[Launch, str, list[int]]:
    """The first training command of a script, its tool, and the lines of the others.

    Raises:
        InputError: no command starts a training run that is known.
    """
    known = [(run, tool or run.tool or recognise(flags(run.arguments, name))) for run in launches(script, name)]
    chosen = [(run, found) for run, found in known if found is not None]
    if not chosen:
        raise InputError(
            "no command of this script starts a training run that is known",
            where=name,
            fix="name the config file itself, or write the command with its flags "
            "(llamafactory-cli, swift, axolotl, trl, tune, litgpt, torchrun, accelerate launch)",
        )
    return *chosen[0], [other.line for other, _ in chosen[1:]]


def _named_config(name: str, file: Path, tool: str) -> dict[str, Entry]:
    """The configuration a command line names, beside the script or in a folder above it; {} where it is not here."""
    for folder in (file.absolute().parent, *file.absolute().parents):
        candidate = folder / name
        try:
            if candidate.is_file():
                return dict(read(candidate, tool).entries)
        except (OSError, ValueError):
            break
    return {}


def _inner(said: Said, text: str) -> Said:
    """A cloud task with the training command that its run section starts."""
    key = "run" if said.tool == "skypilot" else "commands"
    entry = said.entries.get(key)
    body = entry.value if entry else None
    if isinstance(body, list):
        body = "\n".join(str(line) for line in body)
    if not isinstance(body, str) or entry is None:
        return said
    line = int(entry.place.rpartition(":")[2] or 1)
    try:
        script = shell.read(body, str(said.path), first_line=line + 1)
        run = _launched(script, said.path, {}, None)
    except InputError:
        return said
    prefixed = {f"{run.tool}:{name}": value for name, value in run.entries.items()}
    return Said(
        said.tool,
        said.version,
        said.path,
        MappingProxyType({**said.entries, **prefixed}),
        (*said.warnings, *run.warnings),
        program=f"{run.tool} {run.program}",
        launch=run.launch,
        comments=said.comments,
    )


def _comments(text: str) -> tuple[tuple[int, str], ...]:
    """Comments of a YAML, TOML or Python text; a number sign inside a value may be among them."""
    found = ((number, _COMMENT.search(line)) for number, line in enumerate(text.splitlines(), 1))
    return tuple((number, match[1]) for number, match in found if match)


def _slurm(comments: tuple[tuple[int, str], ...], name: str) -> dict[str, Entry]:
    """``#SBATCH --nodes=2 --gres=gpu:8`` as facts, named slurm.nodes, slurm.gres, ..."""
    out: dict[str, Entry] = {}
    short = {"-N": "nodes", "-n": "ntasks", "-G": "gpus"}
    for line, row in comments:
        if match := _SLURM.match(row):
            key = short.get(match[1], match[1].lstrip("-"))
            out[f"slurm.{key}"] = Entry(match[2] or True, f"{name}:{line}")
    return out


def _duplicates(document: Document, tool: str, name: str) -> tuple[str, ...]:
    title, strict = TOOLS[tool].title, TOOLS[tool].dialect is Dialect.OMEGACONF
    end = f"the last value is taken here, {title} refuses such a file" if strict else "the last value counts"
    return tuple(f"{name}:{line}: {key} is written twice; {end}" for key, line in document.duplicates)


def _unknown(entries: Mapping[str, Entry], path: str | Path) -> InputError:
    if "architectures" in entries or "model_type" in entries:
        return InputError(
            "this is a model's config.json, not a training config",
            where=str(path),
            fix="plan it as a model, with --method and --seq",
        )
    return InputError(
        "no key here tells which tool this configuration is for",
        where=str(path),
        fix="name another file, or say whose it is: --format axolotl",
    )
