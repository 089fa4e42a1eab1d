"""Command lines of training tools: which tool a command starts, with which flags, on how many GPUs.

Launchers as their documentation has them: torchrun (torch 2.13 ``distributed/run.py``), ``accelerate launch``
(accelerate 1.15.0 ``commands/launch.py``), ``deepspeed`` (deepspeed 0.19.8 ``launcher/runner.py``), and the
entry points of LLaMA-Factory, ms-swift, Axolotl, TRL, torchtune, LitGPT, verl and torchtitan.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from finefit.formats.said import Entry
from finefit.formats.shell import Command, Script, Word
from finefit.formats.shell_expand import UNKNOWN

_WRAPPERS = {"nohup", "sudo", "time", "exec", "env", "stdbuf", "timeout", "srun", "uv", "command", "bash", "sh"}
_PYTHON = re.compile(r"^(?:.*/)?python(?:\d(?:\.\d+)?)?$")
_NUMBER = re.compile(r"^[-+]?\d+$")
_FLOAT = re.compile(r"^[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?$")
_HYDRA = re.compile(r"^\+{0,2}~?([A-Za-z_][\w./@-]*)=(.*)$", re.S)
# Flags of launchers that stand alone; every other takes a value
_SWITCHES = {
    "--standalone", "--no-python", "--run-path", "--multi_gpu", "--use_deepspeed", "--use_fsdp", "--no_python",
    "--use_megatron_lm", "--same_network", "--cpu", "--tpu", "--quiet", "--no_ssh", "--force_multi",
    "--no_local_rank", "--enable_each_rank_log", "--use_cpu", "--debug", "--module", "-m",
}  # fmt: skip
# Where a program's name tells the tool and its first argument the subcommand
_PROGRAMS = {
    "llamafactory-cli": "llamafactory",
    "lmf": "llamafactory",
    "swift": "ms-swift",
    "megatron": "ms-swift",
    "axolotl": "axolotl",
    "trl": "trl",
    "tune": "torchtune",
    "litgpt": "litgpt",
    "automodel": "nemo-automodel",
}
_LAUNCHER_MODULES = ("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch")
# Subcommands that train: "llamafactory-cli train", "swift rlhf", "trl dpo", "litgpt finetune_lora"
_TRAINING = ("train", "sft", "pt", "rlhf", "dpo", "grpo", "kto", "reward", "rloo", "finetune", "pretrain")
# Modules and scripts that start a tool, by a part of their path
_SCRIPTS = (
    ("verl.trainer", "verl"),
    ("verl/trainer", "verl"),
    ("swift/cli/", "ms-swift"),
    ("swift.cli.", "ms-swift"),
    ("torchtitan.train", "torchtitan"),
    ("torchtitan/train", "torchtitan"),
    ("axolotl.cli.train", "axolotl"),
    ("llamafactory", "llamafactory"),
    ("litgpt", "litgpt"),
)


@dataclass(frozen=True, slots=True)
class Launch:
    """One training command.

    Attributes:
        tool: whose it is; None where only its flags can tell ("python train.py --model_name_or_path ...").
        program: entry point and subcommand ("swift sft", "verl.trainer.main_ppo").
        arguments: what follows it.
        facts: what the launcher and the environment say, by name: nproc_per_node, nnodes, num_processes,
            num_machines, config_file, CUDA_VISIBLE_DEVICES, NPROC_PER_NODE, NNODES, USE_V1.
        line: where the command begins.
    """

    tool: str | None
    program: str
    arguments: tuple[Word, ...]
    facts: Mapping[str, Entry] = field(default_factory=lambda: MappingProxyType({}))
    line: int = 1


def launches(script: Script, name: str) -> list[Launch]:
    """Every command of a script that starts training, in order."""
    return [found for command in script.commands if (found := _launch(command, name)) is not None]


def flags(arguments: Sequence[Word], name: str) -> dict[str, Entry]:
    """``--key value``, ``--key=value`` and ``key=value`` as entries; a flag alone is true, several values a list.

    Values are read as argparse reads them by their type: whole numbers are decimal ("010" is 10).
    """
    out: dict[str, Entry] = {}
    for found in occurrences(arguments):
        if found.equals:
            value = scalar(found.word.text.partition("=")[2])
        else:
            values = [scalar(word.text) for word in found.values]
            value = True if not values else values[0] if len(values) == 1 else values
        out[found.key] = Entry(value, f"{name}:{found.word.line}")
    return out


@dataclass(frozen=True, slots=True)
class Occurrence:
    """A setting on a command line: its word, and the words of its values where they are not part of it.

    ``equals``: "--key=value" or "key=value" in one word; ``dashes``: "--" comes before it.
    """

    key: str
    word: Word
    values: tuple[Word, ...] = ()
    equals: bool = False
    dashes: bool = True


def occurrences(arguments: Sequence[Word]) -> list[Occurrence]:
    """Every setting among the arguments, in order."""
    out: list[Occurrence] = []
    at = 0
    while at < len(arguments):
        word = arguments[at]
        at += 1
        if word.text.startswith("--") and len(word.text) > 2:
            key, equals, _ = word.text[2:].partition("=")
            values: list[Word] = []
            while not equals and at < len(arguments) and not arguments[at].text.startswith("--"):
                if _HYDRA.match(arguments[at].text) and values:
                    break
                values.append(arguments[at])
                at += 1
            key = key.replace("-", "_") if "." not in key else key
            out.append(Occurrence(key, word, tuple(values), bool(equals)))
        elif match := _HYDRA.match(word.text):
            out.append(Occurrence(match[1].replace("/", "."), word, equals=True, dashes=False))
    return out


def scalar(text: str) -> object:
    """A word of a command line as a value: number, true or false, JSON object, null, else text.

    A word of which only a run could tell all is None, as null is: nobody says here.
    """
    if UNKNOWN in text:
        return None
    lowered = text.lower()
    if lowered in ("true", "false"):
        return lowered == "true"
    if lowered in ("null", "none"):
        return None
    if _NUMBER.match(text) and len(text) < 30:
        return int(text)
    if _FLOAT.match(text):
        return float(text)
    if text.startswith("{") and len(text) < 10_000:
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text
    return text


def _launch(command: Command, name: str) -> Launch | None:
    words = _unwrapped(command.words)
    facts = {key: Entry(word.text, f"{name}:{word.line}") for key, word in command.environment.items() if word.known}
    for key, word in command.environment.items():
        if not word.known:
            facts[key] = Entry(None, f"{name}:{word.line}")
    words = _launcher(words, facts, name)
    if not words:
        return None
    program, rest = words[0].text, words[1:]
    base = program.rpartition("/")[2]
    tool = _PROGRAMS.get(base)
    if tool is not None:
        sub = rest[0].text if rest else ""
        if tool == "nemo-automodel":
            return Launch(tool, base, tuple(rest), MappingProxyType(facts), command.line)
        if tool == "torchtune":
            return _tune(rest, facts, name, command.line)
        if not sub.startswith(_TRAINING):
            return None
        return Launch(tool, f"{base} {sub}", tuple(rest[1:]), MappingProxyType(facts), command.line)
    tool = next((found for part, found in _SCRIPTS if part in program), None)
    if tool is None and not (program.endswith(".py") and any(w.text.startswith("--") for w in rest)):
        return None
    return Launch(tool, program, tuple(rest), MappingProxyType(facts), command.line)


def _unwrapped(words: Sequence[Word]) -> list[Word]:
    """Without nohup, srun, uv run and the like, up to the program they start."""
    left = list(words)
    while left and left[0].text.rpartition("/")[2] in _WRAPPERS:
        wrapper = left.pop(0).text
        option = False
        while left and (not _starts(left[0].text) or (option and left[0].text in _PROGRAMS)):
            option = left[0].text.startswith("--")  # "uv run --extra megatron python3": a name, not the program
            left.pop(0)
        if not left and wrapper in ("bash", "sh"):
            return []
    return left


def _starts(text: str) -> bool:
    base = text.rpartition("/")[2]
    return bool(
        _PYTHON.match(text)
        or base in _PROGRAMS
        or base in _WRAPPERS
        or base in ("torchrun", "accelerate", "deepspeed")
        or text.endswith(".py")
    )


def _launcher(words: list[Word], facts: dict[str, Entry], name: str) -> list[Word]:
    """Take a launcher's own options off; the module or script with its arguments stays."""
    while words:
        base = words[0].text.rpartition("/")[2]
        if base in ("torchrun", "deepspeed"):
            words = _options(words[1:], facts, name)
        elif base == "accelerate" and len(words) > 1 and words[1].text == "launch":
            words = _options(words[2:], facts, name)
        elif _PYTHON.match(words[0].text):
            words = [word for word in words[1:] if word.text != "-u"] if words[1:2] else []
            if words and words[0].text == "-m":
                words = words[1:]
                if words and words[0].text in _LAUNCHER_MODULES:
                    words = _options(words[1:], facts, name)
                else:
                    return words
            elif words and words[0].text.startswith("-"):
                return []
            else:
                return words
        else:
            return words
    return words


def _options(words: Sequence[Word], facts: dict[str, Entry], name: str) -> list[Word]:
    at = 0
    while at < len(words) and words[at].text.startswith("-"):
        key, equals, value = words[at].text.partition("=")
        place = f"{name}:{words[at].line}"
        at += 1
        if key in ("-m", "--module"):
            break
        if not equals and key not in _SWITCHES and at < len(words):
            value = words[at].text
            at += 1
        known = Word(value, 0).known
        facts[key.lstrip("-").replace("-", "_")] = Entry(scalar(value) if known else None, place)
    return list(words[at:])


def _tune(rest: Sequence[Word], facts: dict[str, Entry], name: str, line: int) -> Launch | None:
    if not rest or rest[0].text != "run":
        return None
    words = _options(rest[1:], facts, name)
    if not words:
        return None
    return Launch("torchtune", words[0].text, tuple(words[1:]), MappingProxyType(facts), line)
