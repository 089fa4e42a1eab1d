"""A remedy written into its config: planned again, the config asks for what the remedy said."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from finefit import api
from finefit.app.cli import main
from finefit.errors import InputError, NotModelled
from finefit.planner.apply import apply_plan
from finefit.planner.levers import changed_fields
from finefit.report.json_output import dumps

FILES = {
    "lf.yaml": """# mine
model_name_or_path: Qwen/Qwen2.5-7B-Instruct
finetuning_type: full
stage: sft
dataset: d
template: qwen
cutoff_len: 4096
per_device_train_batch_size: 4  # rows
bf16: true
disable_gradient_checkpointing: true
""",
    "ax.yaml": """base_model: Qwen/Qwen2.5-7B-Instruct
sequence_len: 4096
micro_batch_size: 4
gradient_accumulation_steps: 2
optimizer: adamw_torch_fused
bf16: auto
datasets:
  - path: x
    type: alpaca
""",
    "trl.yaml": """model_name_or_path: Qwen/Qwen2.5-7B-Instruct
dataset_name: x
max_length: 4096
per_device_train_batch_size: 4
gradient_checkpointing: false
dtype: bfloat16
""",
    "swift.sh": """NPROC_PER_NODE=2 swift sft \\
    --model Qwen/Qwen2.5-7B-Instruct \\
    --tuner_type full \\
    --torch_dtype bfloat16 \\
    --per_device_train_batch_size 4 \\
    --max_length 4096 \\
    --gradient_checkpointing false
""",
    "tune.yaml": """# tune run full_finetune_single_device --config tune
model:
  _component_: torchtune.models.qwen2_5.qwen2_5_7b_instruct
tokenizer:
  max_seq_len: 4096
checkpointer:
  checkpoint_dir: /tmp/Qwen2.5-7B-Instruct
optimizer:
  _component_: torch.optim.AdamW
  fused: True
loss:
  _component_: torchtune.modules.loss.LinearCrossEntropyLoss
batch_size: 4
dtype: bf16
""",
}


def planned(folder, name, gpu="A100 40GB"):
    config, plan = folder / name, folder / "plan.json"
    config.write_text(FILES[name])
    answer = api.plan(config, gpu=gpu)
    plan.write_text(dumps(answer))
    return config, plan, answer


@pytest.mark.parametrize("name", FILES)
def test_the_changed_config_asks_for_what_the_remedy_said(tmp_path, name):
    config, plan, answer = planned(tmp_path, name)
    written = set()
    for number, remedy in enumerate(answer.remedies, 1):
        try:
            applied = apply_plan(plan, config, remedy=number)
        except NotModelled as error:
            assert error.fix
            continue
        config.write_text(applied.new)
        again = api.plan(config, gpu="A100 40GB").recipe
        config.write_text(FILES[name])
        if remedy.kind.endswith("shard"):  # how a launcher spreads a run is not in every config
            continue
        written |= set(remedy.kind.split("+"))
        differs = changed_fields(remedy.recipe, again)
        if name == "trl.yaml":  # TRL 1.16.0 casts adapters on a quantised base to bf16
            differs.pop("lora.dtype", None)
        assert differs == {}, remedy.kind
        assert again.micro_batch * again.grad_accum == answer.recipe.micro_batch * answer.recipe.grad_accum
    assert {"micro_batch", "checkpointing", "shorter"} <= written
    assert name == "tune.yaml" or {"lora", "qlora", "optimizer_8bit"} <= written


def test_accumulation_is_written_where_a_default_would_change_the_global_batch(tmp_path):
    config, plan, answer = planned(tmp_path, "swift.sh", gpu="2x A100 40GB")
    assert answer.recipe.grad_accum == 2  # ceil(16 / (4 x 2)), ms-swift 4.6.0
    number = next(n for n, one in enumerate(answer.remedies, 1) if one.kind == "checkpointing")
    assert "--gradient_accumulation_steps 2" in apply_plan(plan, config, remedy=number).new


def test_more_gpus_divide_the_accumulation(tmp_path):
    config, plan, _ = planned(tmp_path, "ax.yaml")
    answer = json.loads(plan.read_text())
    answer["remedies"] = [
        {
            "kind": "shard",
            "change": "FSDP on 2 GPUs",
            "fits": "yes",
            "settings": {
                "sharding.kind": {"before": "none", "after": "fsdp"},
                "sharding.ranks": {"before": "1", "after": "2"},
            },
        }
    ]
    plan.write_text(json.dumps(answer))
    applied = apply_plan(plan, config)
    assert "gradient_accumulation_steps: 1" in applied.new
    assert "fsdp_version: 2" in applied.new
    assert applied.notes == ("start the run on 2 GPUs",)


def test_the_command_shows_a_diff_and_writes_only_when_told(tmp_path, capsys):
    config, plan, _ = planned(tmp_path, "lf.yaml")
    assert main(["apply", str(plan), "--to", str(config)]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"--- {config}\n+++ {config}\n@@ ")
    assert config.read_text() == FILES["lf.yaml"]
    new = tmp_path / "new.yaml"
    assert main(["apply", str(plan), "--to", str(config), "-o", str(new)]) == 0
    assert main(["apply", str(plan), "--to", str(config), "-o", str(new)]) == 2
    assert "exists" in capsys.readouterr().err
    assert config.read_text() == FILES["lf.yaml"]
    config.chmod(0o640)
    assert main(["apply", str(plan), "--to", str(config), "--in-place"]) == 0
    assert config.read_text() == new.read_text() != FILES["lf.yaml"]
    assert config.stat().st_mode & 0o777 == 0o640
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lf.yaml", "new.yaml", "plan.json"]


def test_a_plan_of_another_run_is_refused(tmp_path):
    config, plan, _ = planned(tmp_path, "lf.yaml")
    config.write_text(FILES["lf.yaml"].replace("4096", "2048"))
    with pytest.raises(InputError, match="seq_len 4096, the config has 2048"):
        apply_plan(plan, config)


def test_what_is_no_plan_is_refused(tmp_path):
    config, plan, answer = planned(tmp_path, "lf.yaml")
    for text in ("{}", "[]", "", '{"schema": "finefit/plan/1", "kind": "methods"}'):
        plan.write_text(text)
        with pytest.raises(InputError):
            apply_plan(plan, config)
    plan.write_text(dumps(answer))
    for number in (0, -1, 99):
        with pytest.raises(InputError, match="remedies"):
            apply_plan(plan, config, remedy=number)


_JUNK = st.none() | st.integers() | st.text(max_size=3) | st.lists(st.none(), max_size=1) | st.just({})


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_damaged_plan_is_refused_or_applied(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("plan")
    config, plan = folder / "lf.yaml", folder / "plan.json"
    config.write_text(FILES["lf.yaml"])
    pair = {"before": data.draw(st.just("4") | _JUNK), "after": data.draw(st.just("2") | _JUNK)}
    names = ("task", "method", "seq_len", "micro_batch", "grad_accum", "checkpointing", "sharding.ranks")
    values = ("sft", "full", 4096, 4, 1, "none", 1)
    remedy = {
        "kind": data.draw(st.sampled_from(["micro_batch", "shorter", "shard", "x", "lora+qlora"]) | _JUNK),
        "change": "",
        "settings": {data.draw(st.sampled_from([*names, "lora.rank"])): data.draw(st.just(pair) | _JUNK)},
    }
    made = {
        "schema": "finefit/plan/1",
        "kind": "plan",
        "inputs": {name: {"value": value} for name, value in zip(names, values, strict=True)},
        "remedies": data.draw(st.just([remedy]) | _JUNK),
    }
    plan.write_text(json.dumps(made))
    try:
        assert apply_plan(plan, config).new
    except InputError as error:
        assert error.fix


EVALUATING = {
    "lf.yaml": FILES["lf.yaml"].replace("finetuning_type: full", "finetuning_type: lora")
    + "per_device_eval_batch_size: 64\nval_size: 0.1\neval_strategy: steps\neval_steps: 50\n",
    "ax.yaml": FILES["ax.yaml"]
    + "adapter: lora\nlora_r: 8\nlora_target_linear: true\neval_batch_size: 64\nval_set_size: 0.1\n",
}


@pytest.mark.parametrize("name", EVALUATING)
def test_a_smaller_evaluation_batch_is_written(tmp_path, name, capsys) -> None:
    config, plan = tmp_path / name, tmp_path / "plan.json"
    config.write_text(EVALUATING[name])
    main(["plan", str(config), "--gpu", "H100 80GB", "--json"])
    answer = json.loads(capsys.readouterr().out)
    plan.write_text(json.dumps(answer))
    number = next(n for n, one in enumerate(answer["remedies"], 1) if one["kind"] == "evaluation")
    applied = apply_plan(plan, config, remedy=number)
    changed = [line for line in applied.new.splitlines() if line not in applied.old.splitlines()]
    assert [line.partition(":")[2].strip() for line in changed if "eval" in line] == ["4"]
