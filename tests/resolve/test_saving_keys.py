"""Which configs save something a run can go on from, in each tool's own words."""

from __future__ import annotations

from pathlib import Path

import pytest

from finefit import pricing
from finefit.errors import InputError
from finefit.formats import config
from finefit.resolve.readings import reading_of
from finefit.resolve.saving_keys import saving_said
from finefit.workload.saving import Saving

CONFIGS = Path(__file__).parents[3] / "shared" / "configs"


def said(tool: str, text: str, folder: Path, name: str = "run.yaml") -> Saving | None:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    read = config.read(path, tool)
    return saving_said(read, reading_of(read))


TRL = "model_name_or_path: Qwen/Qwen3-0.6B\ndataset_name: x\nmax_length: 512\n"
AXOLOTL = "base_model: Qwen/Qwen3-0.6B\nsequence_len: 512\nmicro_batch_size: 1\nnum_epochs: 2\ndatasets: [{path: x}]\n"


@pytest.mark.parametrize(
    ("tool", "text", "strategy", "steps", "resumable"),
    [
        # TrainingArguments(output_dir="x") of transformers 5.24.0 prints save_strategy steps, save_steps 500
        ("trl", TRL, "steps", 500, True),
        ("trl", TRL + "save_strategy: no\n", "no", 500, False),
        ("trl", TRL + "save_only_model: true\n", "steps", 500, False),
        ("axolotl", AXOLOTL, "epoch", 0, True),
        ("axolotl", AXOLOTL + "saves_per_epoch: 2\n", "steps", 0.25, True),
        ("axolotl", AXOLOTL + "save_steps: 50\nsave_strategy: 'no'\n", "steps", 50, True),
        ("axolotl", AXOLOTL + "save_strategy: 'no'\n", "no", 0, False),
        ("axolotl", AXOLOTL + "save_only_model: true\n", "epoch", 0, False),
    ],
)
def test_keys_of_the_trainer(
    tool: str, text: str, strategy: str, steps: float, resumable: bool, tmp_path: Path
) -> None:
    found = said(tool, text, tmp_path)
    assert found is not None
    assert (found.strategy, found.steps, found.resumable(1000, 2)) == (strategy, steps, resumable)


@pytest.mark.skipif(not CONFIGS.exists(), reason="the collected configs are not here")
@pytest.mark.parametrize(
    ("pattern", "key", "resumable"),
    [
        ("litgpt/*llama-3-8b__lora.yaml", "train.save_interval", False),  # finetune/lora.py saves adapters alone
        ("litgpt/*llama-3-8b__full.yaml", "train.save_interval", True),  # finetune/full.py saves its whole state
        ("torchtitan/*llama3_405b.toml", "checkpoint.enable", False),  # enable = false
        ("nemo-automodel/*gemma_2_9b_it_squad_peft.yaml", "checkpoint.enabled", False),
        ("nemo-rl/*sft_openmathinstruct2.yaml", "checkpointing.save_period", True),
    ],
)
def test_real_configs(pattern: str, key: str, resumable: bool) -> None:
    (path,) = CONFIGS.glob(pattern)
    read = config.read(path)
    found = saving_said(read, reading_of(read))
    assert found is not None
    assert (found.key, found.resumable(100_000, 3)) == (key, resumable)


def test_spot_is_refused_at_the_line_that_decides(tmp_path: Path) -> None:
    path = tmp_path / "trl.yaml"
    path.write_text(TRL + "save_strategy: no\nuse_peft: true\nmax_steps: 100\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"trl\.yaml:4: save_strategy"):
        pricing.cost(path, gpu="RTX 4090", terms="spot", as_of="2026-12-01")
    answer = pricing.cost(path, gpu="RTX 4090", as_of="2026-12-01")
    (spot,) = (line for line in answer.terms if line.kind == "spot")
    assert spot.refused is not None


def test_a_value_that_a_script_fills_in_is_not_known(tmp_path: Path) -> None:
    assert said("trl", TRL + "save_steps: ${STEPS}\n", tmp_path) is None
