"""Whether a run can go on after an interruption, by what its config saves."""

from __future__ import annotations

from pathlib import Path

import pytest

from finefit.resolve import resolve_config

BASE = (
    "model_name_or_path: EleutherAI/pythia-70m\nstage: pt\ndo_train: true\nfinetuning_type: full\ndataset: none\n"
    "cutoff_len: 256\nbf16: true\noutput_dir: out\nnum_train_epochs: 2\n"
)


@pytest.mark.parametrize(
    ("lines", "steps", "resumable"),
    [
        ("", 10_000, True),  # transformers saves every 500 steps
        ("", 400, False),  # nothing before the end
        ("", None, True),
        ("save_strategy: 'no'\n", 10_000, False),
        ("save_only_model: true\n", 10_000, False),
        ("save_strategy: epoch\n", 10_000, True),
        ("save_strategy: epoch\nnum_train_epochs: 1\n", 10_000, False),
        ("save_steps: 0.1\n", 10_000, True),  # a share of the run
    ],
)
def test_resumable(tmp_path: Path, lines: str, steps: int | None, resumable: bool) -> None:
    config = tmp_path / "train.yaml"
    config.write_text(
        BASE.replace("num_train_epochs: 2\n", "") + (lines if "epochs" in lines else lines + "num_train_epochs: 2\n")
    )
    found = resolve_config(config)
    assert found.saving is not None and found.recipe is not None
    assert found.saving.resumable(steps, found.recipe.epochs) is resumable
