"""The command ``finefit trace``: what it prints and what it refuses."""

from __future__ import annotations

import json
import sys

import pytest

from finefit.app.cli import main

MODEL = ["trace", "Qwen/Qwen2.5-0.5B", "--seq", "128", "--batch", "1"]


def test_without_torch_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name in [n for n in sys.modules if n.startswith("finefit.lab")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert main([*MODEL, "--method", "full"]) == 2
    assert "pip install 'finefit[trace]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        (["--eval-batch", "0"], "--eval-batch"),
        (["--gpu", "RTX 9999"], "RTX 9999"),
        (["--set", "cutoff_len=1"], "--set"),
    ],
)
def test_wrong_input_is_one_sentence(extra: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*MODEL, "--method", "full", *extra]) == 2
    assert said in capsys.readouterr().err


def test_a_length_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "Qwen/Qwen2.5-0.5B", "--method", "full"]) == 2
    assert "--seq" in capsys.readouterr().err


@pytest.fixture
def _traceable() -> None:
    for name in ("torch", "transformers", "peft", "trl"):
        pytest.importorskip(name, reason="needs the trace extra: pip install 'finefit[trace]'")


@pytest.mark.usefixtures("_traceable")
def test_json_adds_up(capsys: pytest.CaptureFixture[str]) -> None:
    # 494,032,768 parameters in bf16 (the model's card), with two fused states each
    assert main([*MODEL, "--method", "full", "--optimizer", "adamw_torch_fused", "--eval-batch", "2", "--json"]) == 0
    out = json.loads(capsys.readouterr().out)
    assert out["schema"] == "finefit/trace/1"
    peak, parts = out["peak"]["allocated_bytes"], out["parts"]
    assert sum(parts.values()) == sum(t["nbytes"] * t["count"] for t in out["tensors"]) == peak
    assert peak == max(phase["allocated_bytes"] for phase in out["phases"])
    assert parts["weights"] == pytest.approx(2 * 494_032_768, rel=1e-4)
    assert parts["optimizer"] == pytest.approx(4 * 494_032_768, rel=1e-3)  # blocks of 512, step counts
    assert peak <= out["peak"]["required_bytes"] <= out["peak"]["reserved_bytes"]
    assert out["peak"]["without_assumed_bytes"] < peak
    assert {"forward", "backward", "evaluation"} <= {phase["phase"] for phase in out["phases"]}
    assert out["inputs"]["eval_batch"] == {"value": 2, "source": "stated (--eval-batch)"}
    assert all(term["source"] for term in out["assumed"])


@pytest.mark.usefixtures("_traceable")
def test_text_names_the_peak_and_what_was_assumed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*MODEL, "--method", "lora", "--gpu", "H100"]) == 0
    out = capsys.readouterr().out
    for said in ("Peak: ", "Peak of each phase", "Parts at the peak", "cublas_workspace: 32.0 MiB at most", "torch 2."):
        assert said in out
    assert max(len(line) for line in out.splitlines()) <= 80


def test_libraries_of_another_release_are_named() -> None:
    from finefit import api
    from finefit.app.trace_command import _warnings

    resolved, _ = api.workload("Qwen/Qwen2.5-0.5B", method="full", seq=128)
    assert resolved.recipe is not None
    said = _warnings(resolved, resolved.recipe, {"transformers": "4.48.1", "torch": "2.13.0+cpu"})
    assert said == [*resolved.warnings, "transformers 4.48.1 ran, and the recipe is for 5.24.0"]
