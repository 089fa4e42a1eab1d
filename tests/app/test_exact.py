"""``finefit memory --exact`` answers from a stored trace and says so, and says how to make one where there is none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from finefit.app.cli import main
from finefit.memory import store

SHIPPED = ["memory", "Qwen/Qwen3-8B", "--method", "qlora", "--seq", "2048", "--checkpointing", "full"]


@pytest.fixture(autouse=True)
def _empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "cache_folder", lambda: tmp_path)


def answer(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    main([*arguments, "--json"])
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.parametrize("gpu", [[], ["--gpu", "RTX 4090"], ["--gpu", "B200"]])
def test_a_stored_trace_answers(gpu: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    exact, modelled = (answer([*SHIPPED, *gpu, *more], capsys) for more in (["--exact"], []))
    assert exact["exact"] is True
    assert any("transformers 5.24.0" in str(line) for line in exact["assumptions"])  # type: ignore[union-attr]
    assert modelled["exact"] is None
    for name in ("allocated_bytes", "reserved_bytes"):
        assert exact["peak"][name] == pytest.approx(modelled["peak"][name], rel=0.02)  # type: ignore[index]


def test_without_a_trace_the_model_answers_and_says_how_to_make_one(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer([*SHIPPED, "--exact", "--accum", "4"], capsys)
    assert found["exact"] is False
    assert any("finefit trace" in str(line) for line in found["warnings"])  # type: ignore[union-attr]


def test_another_length_needs_no_other_trace(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer([*SHIPPED[:5], "3333", *SHIPPED[6:], "--no-padded", "--rank", "48", "--exact"], capsys)
    assert found["exact"] is True
