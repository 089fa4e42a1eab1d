"""The command line: exit codes, one line for every error, nothing imported that is not needed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import pytest

from finefit import __version__, api
from finefit.app import cli
from finefit.errors import NotModelled
from finefit.memory.estimate import estimate
from finefit.resolve import resolve_config

EXAMPLE = Path(__file__).parents[2] / "src" / "finefit" / "examples" / "llama3_8b_qlora.yaml"
CONFIGS = Path(__file__).parents[3] / "shared" / "configs" / "llamafactory"
MODEL = "EleutherAI/pythia-70m"
FITTING = ["plan", MODEL, "--method", "lora", "--seq", "512", "--gpu", "RTX 4090", "--as-of", "2026-11-30"]


def run(*arguments: str) -> int:
    return cli.main(list(arguments))


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (FITTING, 0),
        (["plan", MODEL, "--method", "lora", "--seq", "512"], 0),
        (["plan", MODEL], 0),
        (["memory", MODEL], 0),
        (["memory", MODEL, "--method", "full", "--seq", "512", "--gpu", "RTX 4090"], 0),
        (["memory", MODEL, "--method", "full", "--seq", "262144", "--batch", "8", "--gpu", "RTX 4090"], 1),
        (["gpus"], 0),
        (["models"], 0),
        (["--version"], 0),
        (["plan", "--help"], 0),
        ([], 0),
    ],
)
def test_exit_codes(arguments: list[str], code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*arguments) == code
    captured = capsys.readouterr()
    assert captured.out and not captured.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["plan"], "nothing to plan"),
        (["frob"], "invalid choice"),
        (["memory"], "MODEL"),
        (["plan", MODEL, "--rank", "many"], "--rank"),
        (["plan", MODEL, "--seq", "-5", "--method", "lora"], "--seq"),
        (["plan", MODEL, "--no-such-flag"], "--no-such-flag"),
        (["plan", "no/such-model"], "no/such-model"),
        (["plan", "missing.yaml"], "missing.yaml"),
        (["plan", str(EXAMPLE), "--gpu", "RTX 9999"], "RTX 9999"),
        (["plan", str(EXAMPLE), "--set", "cutoff_len"], "KEY=VALUE"),
        (["plan", str(EXAMPLE), "--kinds", "free"], "free"),
        (["plan", str(EXAMPLE), "--lang", "xx"], "--lang"),
        (["plan", str(EXAMPLE), "--as-of", "soon"], "--as-of"),
        (["plan", str(EXAMPLE), "--budget", "2 apples"], "--budget"),
    ],
)
def test_wrong_input_is_one_line_and_2(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*arguments) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("error: ") and captured.err.count("\n") == 1
    assert words in captured.err and "Traceback" not in captured.err


class _Answer:
    """An answer of which the exit code sees only this much."""

    def __init__(self, fits: str, gpus: bool = True) -> None:
        self.fits = type("Fits", (), {"value": fits})
        self.cluster = object() if gpus else None


class TestExitCodeOfAnAnswer:
    CODES: ClassVar = {
        ("yes", False): 0,
        ("tight", False): 0,
        ("tight", True): 1,
        ("no", False): 1,
        ("unknown", False): 4,
    }

    @pytest.mark.parametrize(("case", "code"), CODES.items())
    def test_with_gpus(self, case: tuple[str, bool], code: int) -> None:
        assert cli.exit_code(_Answer(case[0]), strict=case[1]) == code  # type: ignore[arg-type]

    def test_without_gpus(self) -> None:
        assert cli.exit_code(_Answer("unknown", gpus=False)) == 0  # type: ignore[arg-type]


def test_json_is_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*FITTING, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == "finefit/plan/1" and found["finefit_version"] == __version__
    assert found["as_of"] == "2026-11-30"


def test_a_bug_is_short_and_not_a_verdict(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(*_: object, **__: object) -> None:
        raise KeyError("oops")

    monkeypatch.setattr(api, "memory", broken)
    monkeypatch.delenv("FINEFIT_DEBUG", raising=False)
    assert run("memory", MODEL) == 70
    assert "bug in finefit" in (told := capsys.readouterr().err) and "Traceback" not in told
    monkeypatch.setenv("FINEFIT_DEBUG", "1")
    assert run("memory", MODEL) == 70
    assert "Traceback" in capsys.readouterr().err


def test_memory_imports_neither_parsers_nor_drawing_nor_numpy() -> None:
    """Issue 2, item 9: the whole process has 0.35 s, and each of these takes 30 to 200 ms of it."""
    code = (
        "import sys; from finefit.app.cli import main; "
        f"main(['memory', {MODEL!r}, '--method', 'qlora', '--seq', '512', '--gpu', 'RTX 4090', '--json']); "
        "heavy = {'yaml', 'rich', 'pydantic', 'numpy', 'torch', 'typer', 'finefit.speed', 'finefit.cost'}; "
        "sys.exit(' '.join(heavy & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_installed_command_reads_configs_from_elsewhere(tmp_path: Path) -> None:
    config = tmp_path / "train.yaml"
    config.write_text(
        f"model_name_or_path: {MODEL}\nstage: pt\ndo_train: true\nfinetuning_type: full\ndataset: none\n"
        "cutoff_len: 256\nbf16: true\noutput_dir: out\n",
        encoding="utf-8",
    )
    done = subprocess.run(
        [sys.executable, "-m", "finefit.app.cli", "plan", "train.yaml", "--gpu", "RTX 4090", "--lang", "en"],
        capture_output=True, text=True, check=False, cwd=tmp_path, env={**os.environ, "COLUMNS": "80"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "GeForce RTX 4090" in done.stdout and "pythia-70m" in done.stdout


@pytest.mark.skipif(not CONFIGS.is_dir(), reason="the configs of ../shared are not here")
def test_every_real_config_gives_a_plan_or_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All LLaMA-Factory train files of the v0 schema give a plan but one, which gets one sentence."""
    planned, refused = {}, {}
    for file in sorted(CONFIGS.glob("*.yaml")):
        copy = tmp_path / file.name.replace("__", "/")
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(file.read_bytes())
        try:
            found = resolve_config(copy)
            assert found.recipe is not None
            planned[file.name] = (copy, estimate(found.model, found.recipe).allocated)
        except NotModelled as error:
            refused[file.name] = (copy, str(error))
    assert len(planned) >= 19 and all(nbytes > 2**30 for _, nbytes in planned.values())
    assert all("\n" not in sentence and " — " in sentence for _, sentence in refused.values())
    experts, sentence = refused["examples__ktransformers__train_lora__qwen3moe_lora_sft_kt.yaml"]
    assert "use_kt" in sentence
    assert run("plan", str(experts)) == 2 and "use_kt" in capsys.readouterr().err
    assert run("plan", str(planned["examples__train_lora__qwen3_lora_sft.yaml"][0]), "--gpu", "RTX 4090", "--json") == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == "single_card_ok"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no device that is always full")
def test_an_answer_that_cannot_be_written_is_no_bug() -> None:
    command = [sys.executable, "-m", "finefit.app.cli", "gpus"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("error: stdout: the answer cannot be written")
