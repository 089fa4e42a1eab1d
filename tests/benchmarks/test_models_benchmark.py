"""benchmarks.models: counts against a manifest, refusals in one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks.models import main, read, summary

LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "vocab_size": 100,
}
# 2·100·64 + 2·(4·64² + 3·64·128 + 2·64) + 64
COUNT = 95_040


def folder(path: Path, *rows: tuple[str, dict[str, object], str]) -> Path:
    lines = ["file,hf_id,model_type,tf524_params"]
    for name, config, count in rows:
        (path / name).write_text(json.dumps(config), encoding="utf-8")
        lines.append(f"{name},org/{name},{config.get('model_type', '')},{count}")
    (path / "MANIFEST.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_counts_are_compared_and_refusals_are_one_sentence(tmp_path: Path) -> None:
    where = folder(
        tmp_path,
        ("right.json", LLAMA, str(COUNT)),
        ("wrong.json", LLAMA, str(COUNT + 1)),
        ("unknown.json", {**LLAMA, "model_type": "rwkv"}, "5"),
        ("uncounted.json", LLAMA, ""),
    )
    found = summary(read(where))
    assert found["scored"] == 2
    assert found["agreement"] == 0.5
    assert found["worst"] == [{"file": "wrong.json", "predicted": COUNT, "measured": COUNT + 1}]
    assert found["skipped"] == {"refused in one sentence": 1, "the library has no count": 1}
    assert main([str(where)]) == 1


def test_counts_do_not_depend_on_the_column_they_are_compared_with(tmp_path: Path) -> None:
    with_counts, without = tmp_path / "a", tmp_path / "b"
    with_counts.mkdir()
    without.mkdir()
    ours = [r.ours for r in read(folder(with_counts, ("x.json", LLAMA, "7")))]
    assert ours == [r.ours for r in read(folder(without, ("x.json", LLAMA, "")))] == [COUNT]


def test_a_folder_without_manifest_is_wrong_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 2
    assert "MANIFEST.csv" in capsys.readouterr().err
