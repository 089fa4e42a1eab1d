"""The command ``finefit trace``: what it prints and what it refuses."""

from __future__ import annotations

import csv
import json
import re
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from finefit.app.cli import main
from finefit.errors import NotModelled

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


@pytest.mark.usefixtures("_traceable")
def test_libraries_of_another_release_are_named() -> None:
    from finefit import api
    from finefit.lab.notes import warnings

    resolved, _ = api.workload("Qwen/Qwen2.5-0.5B", method="full", seq=128)
    assert resolved.recipe is not None
    said = list(warnings(resolved.recipe, None, {"transformers": "4.48.1", "torch": "2.13.0+cpu"}))
    assert said == ["transformers 4.48.1 ran, and the recipe is for 5.24.0"]


@pytest.mark.usefixtures("_traceable")
def test_chinese_says_the_same_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*MODEL, "--method", "full", "--lang", "zh"]) == 0
    chinese, kept = capsys.readouterr()
    assert main([*MODEL, "--method", "full", "--lang", "en"]) == 0
    english = capsys.readouterr().out
    assert "各阶段峰值" in chinese
    assert "已为 finefit memory --exact 保存" in kept
    numbers = re.compile(r"([\d.]+)\s+([GM]iB)")
    shown = [numbers.findall(out) for out in (chinese, english)]
    assert shown[0] == shown[1]
    assert len(shown[0]) > 40


# transformers 5.24.0 models/helium; the tests take it for a model that finefit does not know.
HELIUM = {
    "model_type": "helium",
    "architectures": ["HeliumForCausalLM"],
    "dtype": "bfloat16",
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "intermediate_size": 256,
    "vocab_size": 1000,
    "tie_word_embeddings": False,
    "pad_token_id": 0,
}


@pytest.fixture
def _unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(text: str, *, where: str | None = None) -> None:
        raise NotModelled(f"{text} is not modelled")

    for module in ("models", "flags"):
        monkeypatch.setattr(f"finefit.resolve.{module}.resolve_model", refuse)


def folder(path: Path, config: dict[str, Any]) -> str:
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps(config))
    return str(path)


def count(kind: str, rows: list[dict[str, str]]) -> int:
    return sum(int(row["bytes"]) for row in rows if row["category"] == kind and row["phase"] == "load")


@pytest.mark.usefixtures("_traceable", "_unknown")
def test_a_model_that_is_not_modelled_is_traced_from_its_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*args: object) -> None:
        raise AssertionError("a trace uses no network")

    monkeypatch.setattr(socket.socket, "connect", unreachable)
    model, table = folder(tmp_path / "helium", HELIUM), tmp_path / "allocations.csv"
    assert main(["memory", model, "--method", "full", "--seq", "64"]) == 2  # not modelled
    capsys.readouterr()
    assert main(["trace", model, "--method", "full", "--seq", "64", "--timeline", str(table)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "finefit does not model helium" in said

    with table.open() as file:
        rows = list(csv.DictReader(file))
    h, f, v = 128, 256, 1000
    parameters = 2 * v * h + h + 2 * (3 * h * h + 3 * h * f + 2 * h)  # k and v are half as wide as q and o
    assert 2 * parameters <= count("weights", rows) < 2 * parameters + 20 * 512  # blocks of 512
    states = [r for r in rows if r["category"] == "optimizer" and int(r["bytes"]) > 512]
    assert sum(int(r["bytes"]) for r in states) == pytest.approx(4 * parameters, rel=0.02)
    assert {r["phase"] for r in rows} == {"load", "forward", "loss", "backward", "optimizer"}
    assert all(r["category"] and r["op"] for r in rows)
    assert all(bool(r["source"]) == (r["assumed"] == "1") for r in rows)
    assert all(not r["freed_at"] or int(r["freed_at"]) > int(r["allocated_at"]) for r in rows)


@pytest.mark.usefixtures("_traceable", "_unknown")
def test_the_table_of_allocations_adds_up_to_the_peak(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, table = folder(tmp_path / "helium", HELIUM), tmp_path / "allocations.csv"
    flags = ["--method", "lora", "--targets", "all-linear", "--seq", "64", "--json", "--timeline", str(table)]
    assert main(["trace", model, *flags]) == 0
    out = json.loads(capsys.readouterr().out)
    assert out["inputs"]["lora.targets"]["value"] == ["all-linear"]
    with table.open() as file:
        rows = list(csv.DictReader(file))
    changes = [(int(r["allocated_at"]), int(r["bytes"])) for r in rows]
    changes += [(int(r["freed_at"]), -int(r["bytes"])) for r in rows if r["freed_at"]]
    last = min(int(r["allocated_at"]) for r in rows if r["step"] == "2")
    live = peak = 0
    for event, change in sorted(changes):
        live += change
        peak = max(peak, live) if event >= last else peak
    assert peak == out["peak"]["allocated_bytes"]
    assert out["events"] == len(changes)


@pytest.mark.usefixtures("_traceable")
def test_attention_that_nobody_stated_is_the_librarys_choice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Gemma 2 has no SDPA (transformers 5.24.0 models/gemma2), so its scores are b*heads*s*s."""
    sizes = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    gemma = {"model_type": "gemma2", "dtype": "bfloat16", "vocab_size": 1000, "intermediate_size": 256, **sizes}
    model, table = folder(tmp_path / "gemma", {**gemma, "head_dim": 32}), tmp_path / "allocations.csv"
    command = ["trace", model, "--method", "full", "--seq", "64", "--batch", "1", "--timeline", str(table)]
    assert main(command) == 0
    with table.open() as file:
        scores = [r for r in csv.DictReader(file) if r["op"] == "_softmax"]
    assert {int(r["bytes"]) for r in scores} == {4 * 4 * 64 * 64}  # fp32
    assert main([*command, "--attention", "sdpa"]) == 2
    assert "use eager" in capsys.readouterr().err


# A model of one linear layer between embedding and head, whose code says when it runs.
CODE = """
import pathlib
import torch
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput

pathlib.Path(__file__).with_name("ran").touch()
pathlib.Path({marker!r}).touch()


class OwnConfig(PretrainedConfig):
    model_type = "own_of_a_test"

    def __init__(self, hidden_size=64, vocab_size=512, num_hidden_layers=1, **rest):
        self.hidden_size, self.vocab_size, self.num_hidden_layers = hidden_size, vocab_size, num_hidden_layers
        super().__init__(**rest)


class OwnForCausalLM(PreTrainedModel):
    config_class = OwnConfig
    base_model_prefix = "body"
    _supports_sdpa = True

    def __init__(self, config):
        super().__init__(config)
        self.body = torch.nn.Embedding(config.vocab_size, config.hidden_size)
        self.middle = torch.nn.Linear(config.hidden_size, config.hidden_size, bias=False)
        self.lm_head = torch.nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def get_input_embeddings(self):
        return self.body

    def get_output_embeddings(self):
        return self.lm_head

    def forward(self, input_ids, labels=None, attention_mask=None, use_cache=None, **rest):
        logits = self.lm_head(self.middle(self.body(input_ids)))
        return CausalLMOutput(loss=self.loss_function(logits, labels, self.config.vocab_size), logits=logits)
"""
OWN = {
    "model_type": "own_of_a_test",
    "architectures": ["OwnForCausalLM"],
    "auto_map": {"AutoConfig": "modeling.OwnConfig", "AutoModelForCausalLM": "modeling.OwnForCausalLM"},
    "hidden_size": 64,
    "vocab_size": 512,
    "dtype": "bfloat16",
}


@pytest.mark.usefixtures("_traceable")
def test_code_of_a_folder_runs_only_when_it_is_trusted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    marker = tmp_path / "ran"
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    model = folder(tmp_path / "own", OWN)
    (tmp_path / "own" / "modeling.py").write_text(CODE.format(marker=str(marker)))
    command = ["trace", model, "--method", "full", "--seq", "64", "--json"]
    assert main(command) == 2
    assert "--trust-remote-code" in capsys.readouterr().err
    assert not marker.exists()
    assert main([*command, "--trust-remote-code"]) == 0
    assert marker.exists()
    weights = json.loads(capsys.readouterr().out)["parts"]["weights"]
    assert weights == 2 * (2 * 512 * 64 + 64 * 64)  # whole blocks of 512


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"model_type": "nobody_has_heard_of_it"}, "knows no model type"),
        ({**OWN, "auto_map": {"AutoConfig": "someone/else--modeling.OwnConfig"}}, "another repository"),
        ({"model_type": "clip", "architectures": ["CLIPModel"]}, "no language model of type 'clip'"),
    ],
)
@pytest.mark.usefixtures("_traceable")
def test_what_no_library_can_build_is_refused(
    config: dict[str, Any], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["trace", folder(tmp_path / "model", config), "--method", "full", "--seq", "64", "--trust-remote-code"]
    assert main(command) == 2
    assert said in capsys.readouterr().err


def test_a_name_brings_no_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*MODEL, "--method", "full", "--trust-remote-code"]) == 2
    assert "--trust-remote-code" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "kind", "said"),
    [
        (["--sharding", "fsdp"], "all_gather", "FSDP2 with a unit a layer"),
        (["--sharding", "zero2"], "reduce_bucket", "zero2 is modelled over the trace of one GPU"),
        ([], "ddp_bucket", "ddp is modelled over the trace of one GPU"),
        (["--tensor-parallel", "2"], "", "layers are split by the plan of transformers"),
    ],
)
@pytest.mark.usefixtures("_traceable")
def test_one_rank_of_a_spread_run(
    flags: list[str], kind: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    llama = {
        "model_type": "llama",
        "dtype": "bfloat16",
        "hidden_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "intermediate_size": 256,
        "vocab_size": 1000,
    }
    table = tmp_path / "allocations.csv"
    model = folder(tmp_path / "llama", llama)
    command = ["trace", model, "--method", "full", "--seq", "64", "--gpu", "2x H100", "--timeline", str(table)]
    assert main([*command, *flags]) == 0
    out, kept = capsys.readouterr()
    assert said in " ".join(out.split())
    assert "not stored" in kept
    if kind:
        assert kind in table.read_text()
    if "modelled" in said:
        assert "modelled sharding" in table.read_text()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--sharding", "zero3"], "sharding 'zero3' of this recipe cannot be traced"),
        (["--sharding", "fsdp", "--tensor-parallel", "2"], "--tensor-parallel"),
        (["--tensor-parallel", "1"], "--tensor-parallel"),
    ],
)
@pytest.mark.usefixtures("_traceable")
def test_what_cannot_be_spread_is_refused(flags: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*MODEL, "--method", "full", "--gpu", "2x H100", *flags]) == 2
    assert said in capsys.readouterr().err
