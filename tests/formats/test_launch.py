"""Command lines of tools and launchers."""

from __future__ import annotations

import pytest

from finefit.formats import shell
from finefit.formats.launch import flags, launches, scalar


def launch(text: str):
    (found,) = launches(shell.read(text, "run.sh"), "run.sh")
    return found


@pytest.mark.parametrize(
    ("text", "tool", "program", "facts"),
    [
        ("FORCE_TORCHRUN=1 llamafactory-cli train x.yaml", "llamafactory", "llamafactory-cli train", {}),
        ("torchrun --nproc_per_node 8 --nnodes=2 -m verl.trainer.sft_trainer a=1", "verl", "verl.trainer.sft_trainer",
         {"nproc_per_node": 8, "nnodes": 2}),
        ("accelerate launch --config_file f.yaml --num_processes 4 swift/cli/sft.py --model m", "ms-swift",
         "swift/cli/sft.py", {"config_file": "f.yaml", "num_processes": 4}),
        ("uv run --frozen --extra megatron python3 -m verl.trainer.main_ppo x=1", "verl", "verl.trainer.main_ppo", {}),
        ("nohup srun -N 2 megatron sft --model m > log 2>&1 &", "ms-swift", "megatron sft", {}),
        ("tune run --nproc_per_node 2 lora_finetune_distributed --config x", "torchtune", "lora_finetune_distributed",
         {"nproc_per_node": 2}),
        ("python -m torch.distributed.run --nproc_per_node=4 train.py --model_name_or_path m", None, "train.py",
         {"nproc_per_node": 4}),
        ("cd /x && python3 src/train.py --stage sft", None, "src/train.py", {}),
    ],
)  # fmt: skip
def test_tools_and_launchers(text, tool, program, facts):
    found = launch(text)
    assert (found.tool, found.program) == (tool, program)
    assert {key: found.facts[key].value for key in facts} == facts


@pytest.mark.parametrize(
    "text", ["swift infer --model m", "llamafactory-cli webui", "tune download x", "pip install trl"]
)
def test_other_commands_start_no_training(text):
    assert launches(shell.read(text, "run.sh"), "run.sh") == []


def test_flags():
    """Forms that real scripts mix: --a b, --a=b, a switch, several values, dotted hydra keys, a plus sign."""
    words = launch("swift sft --a 1 --b=2e-5 --flag --list x 'y z' --j '{\"k\": false}' +m.n=null k.l=[1,2]").arguments
    read = {key: entry.value for key, entry in flags(words, "run.sh").items()}
    assert read == {
        "a": 1,
        "b": 2e-5,
        "flag": True,
        "list": ["x", "y z"],
        "j": {"k": False},
        "m.n": None,
        "k.l": "[1,2]",
    }


def test_scalars_are_read_as_argparse_reads_them():
    """``int("010")`` is 10, where YAML 1.1 reads 8; ``1e9`` is no integer."""
    assert [scalar(t) for t in ("010", "1e9", "True", "on", "None", "a#500")] == [10, 1e9, True, "on", None, "a#500"]
