"""The throughput benchmark: one mapping, no peeking, every row scored or counted."""

import csv
import json

import numpy as np
import pytest
from benchmarks.throughput import NEEDED, OPTIONAL, main, predict, read, run, scored, written
from benchmarks.throughput_core import Skip, funnel, kind_of
from benchmarks.throughput_fit import Fit, left_out
from benchmarks.throughput_rows import VALUE_COLUMNS, question

from finefit.speed.constants import constant, entry
from finefit.workload.parameters import parameter_count

ROW = {
    # torchtune README.md@bd2a0fc, optimisation flags
    "id": "row",
    "source": "torchtune",
    "grade": "A",
    "model": "meta-llama/Llama-3.2-3B",
    "params_total_b": "3.213",
    "params_active_b": "3.213",
    "method": "full",
    "dtype": "bf16",
    "micro_batch": "2",
    "grad_accum": "1",
    "tokens_per_microbatch": "8192.0",
    "packing": "packed",
    "grad_ckpt": "none",
    "attn_impl": "flex/SDPA",
    "kernels": "torch.compile",
    "n_gpus": "1",
    "n_nodes": "1",
    "gpu": "A100-SXM-80GB",
    "tok_s_gpu": "8998",
    "step_s": "0.91",
    "value": "8998",
    "notes": "",
}


def rows_in(tmp_path, *rows):
    path = tmp_path / "runs.csv"
    names = sorted({*NEEDED, *OPTIONAL, *VALUE_COLUMNS, *ROW})
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names, restval="")
        writer.writeheader()
        writer.writerows(rows)
    return path


def test_a_published_row_is_scored(tmp_path):
    result = run(read(rows_in(tmp_path, ROW)))
    assert result["scored"] == 1
    assert result["median_abs_error"] < 0.2
    assert result["worst"][0]["measured"] == pytest.approx(8192 / 8998)


def test_predictions_do_not_see_what_was_measured(tmp_path):
    whole = read(rows_in(tmp_path, ROW))[0]
    blank = {k: "" if k in VALUE_COLUMNS else v for k, v in whole.items()}
    assert predict(question(blank)) == predict(question(whole))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"dtype": ""}, "precision not stated"),
        ({"grade": "C"}, "grade C"),
        ({"model": "nobody/nothing-7b", "params_total_b": ""}, "model not in the catalogue"),
        ({"gpu": "Voodoo 2"}, "GPU not known"),
        ({"gpu": "MI300X"}, "not modelled: no training speed of Instinct MI300X"),
        ({"tokens_per_microbatch": ""}, "tokens a micro-batch not stated"),
        ({"tok_s_gpu": ""}, "no measured throughput"),
        ({"n_gpus": "512", "n_nodes": "64"}, "more than 256 GPUs"),
    ],
)
def test_other_rows_are_counted_with_a_reason(tmp_path, change, reason):
    result = run([read(rows_in(tmp_path, ROW))[0] | change])
    assert result["scored"] == 0
    assert [key[: len(reason)] for key in result["skipped"]] == [reason]


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({}, "dense 16-bit"),
        ({"grad_ckpt": "?"}, "dense 16-bit"),
        ({"grad_ckpt": "selective(layer)"}, "dense 16-bit"),
        ({"tp": "2", "n_gpus": "8"}, "dense 16-bit"),
        ({"pp": "4", "n_gpus": "8", "grad_accum": "8"}, "dense 16-bit"),
        ({"n_gpus": "16", "n_nodes": "2", "zero": "3", "interconnect": "NVSwitch + IB 8x200"}, "dense 16-bit"),
        ({"zero": "HSDP", "n_gpus": "16", "n_nodes": "2"}, "dense 16-bit"),
        ({"method": "boft", "lora_targets": "q_proj,v_proj"}, "dense 16-bit"),
        ({"model": "nobody/nothing-7b", "params_total_b": "7.1", "params_active_b": "7.1"}, "dense 16-bit"),
        ({"model": "mosaicml/mpt-3b(yaml)"}, "dense 16-bit"),
        ({"gpu": "H100-SXM-96GB(500W)"}, "dense 16-bit"),
        ({"dtype": "fp8", "gpu": "H100-SXM-80GB"}, "fp8"),
        ({"offload": "param+optim cpu"}, "offload"),
        ({"model": "Qwen/Qwen3-30B-A3B", "params_total_b": "30.5", "params_active_b": "3.3"}, "moe"),
    ],
)
def test_no_kind_of_run_is_dropped(tmp_path, change, kind):
    result = run([read(rows_in(tmp_path, ROW))[0] | change], refit=False)
    scored = {"dense 16-bit": result["scored"]} | {name: each["scored"] for name, each in result["apart"].items()}
    assert {name for name, rows in scored.items() if rows} == {kind}


def test_the_funnel_says_what_each_condition_takes(tmp_path):
    rows = [{}, {"dtype": "fp8"}, {"grade": "C"}, {"grade": "C", "dtype": "fp8", "offload": "optim cpu"}]
    found = funnel(read(rows_in(tmp_path, *(ROW | row for row in rows))))
    assert [(step["fail"], step["fail_alone"], step["left"]) for step in found] == [
        (2, 1, 2),
        (2, 1, 1),
        (0, 0, 1),
        (0, 0, 1),
        (1, 0, 1),
    ]


@pytest.mark.parametrize(
    "change",
    [{}, {"dtype": "fp8"}, {"grade": "C"}, {"offload": "cpu"}, {"n_gpus": "512"}, {"dtype": ""}, {"quant": "bnb-nf4"}],
)
def test_the_funnel_ends_at_the_core(tmp_path, change):
    row = read(rows_in(tmp_path, ROW | change))[0]
    try:
        core = kind_of(row) == "dense 16-bit"
    except Skip:
        core = False
    assert funnel([row])[-1]["left"] == core


def test_an_unknown_source_and_framework_still_score(tmp_path):
    strange = ROW | {"source": "a blog", "kernels": "", "grad_accum": ""}
    result = run(read(rows_in(tmp_path, strange)), refit=False)
    assert result["scored"] == 1
    assert result["assumed"] == {"accumulation: 1": 1, "kernels: eager": 1}


@pytest.mark.parametrize(
    ("model", "parameters"),  # the sizes llm-foundry's README prints for its yamls
    [("mosaicml/mpt-125m(llm-foundry yaml)", 0.124), ("mosaicml/mpt-1b(yaml)", 1.311), ("mosaicml/mpt-30b", 29.956)],
)
def test_mosaics_models_have_their_published_size(tmp_path, model, parameters):
    asked = question(read(rows_in(tmp_path, ROW | {"model": model}))[0])
    assert parameter_count(asked.model) / 1e9 == pytest.approx(parameters, rel=0.01)


@pytest.mark.parametrize(
    ("text", "gbit"),
    [
        ("NVLink/NVSwitch + RoCE 1600Gb/s/node", 1600),
        ("NVSwitch + IB 8x400", 3200),
        ("NVLink + unspecified network", None),
        ("NVLink 400GB/s", None),
    ],
)
def test_networks_are_read_in_bits(tmp_path, text, gbit):
    asked = question(read(rows_in(tmp_path, ROW | {"interconnect": text, "n_gpus": "16", "n_nodes": "2"}))[0])
    assert asked.cluster.network == (None if gbit is None else gbit * 1e9 / 8)


def invented(count=60):
    """Rows whose times finefit itself predicts, from three sources, A100 running 10 % slower than installed."""
    out = []
    for at in range(count):
        row = ROW | {"id": f"T{at:04d}", "source": "abc"[at % 3], "micro_batch": str(1 + at % 8)}
        row["tokens_per_microbatch"] = str(4096 * (1 + at % 8))
        row |= {
            "grad_ckpt": ("none", "full")[at // 2 % 2],
            "model": ("meta-llama/Llama-3.2-3B", "Qwen/Qwen2.5-7B")[at % 2],
        }
        time = predict(question({name: row.get(name, "") for name in (*NEEDED, *OPTIONAL)}))
        out.append(dict.fromkeys(OPTIONAL, "") | row | {"tok_s_gpu": str(time.tokens / time.seconds / 1.1)})
    return out


def test_a_refit_finds_a_slower_card():
    rows = invented()
    result = run(rows)
    assert result["median_abs_error"] == pytest.approx(1 - 1 / 1.1, abs=1e-3)
    assert result["cross_validation"]["median_abs_error"] < 0.02
    assert result["source_left_out"]["median_abs_error"] < 0.02
    fitted = written(rows)
    assert fitted["gemm"]["a100"]["value"] < 0.95 * constant("gemm", "a100")
    assert fitted["gemm"]["a100"]["rows"] == {"a": 20, "b": 20, "c": 20}
    assert fitted["gemm"]["rtx-4090"] == entry("gemm", "rtx-4090")  # no row on it: untouched
    assert fitted["fit"]["rows"]["dense 16-bit"] == "T0000-T0059"


def test_many_rows_at_once_are_predicted_as_each_alone():
    rows, _ = scored(invented(12))
    fit = Fit([row.measured for row in rows], {})
    installed = np.log([constant(*fit.keys[at].split(".")) for at in fit.free])
    assert fit.seconds(installed) == pytest.approx([row.time.seconds for row in rows], rel=1e-12)


def test_left_out_rows_do_not_vote():
    """Rows of one source are predicted alike whatever was measured in that source."""
    rows = invented(30)
    shifted = [row | {"tok_s_gpu": str(float(row["tok_s_gpu"]) / 2)} if row["source"] == "a" else row for row in rows]
    first, second = ([row.measured for row in scored(each)[0]] for each in (rows, shifted))
    mine = [at for at, row in enumerate(first) if row.source == "a"]
    one, two = (left_out(each, lambda row: row.source)[mine] for each in (first, second))
    assert one == pytest.approx(two, rel=1e-12)


def test_json_holds_the_contract(tmp_path, capsys):
    assert main([str(rows_in(tmp_path, ROW)), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["cross_validation"]["scored"] == result["source_left_out"]["scored"] == 1
    keys = {"scored", "skipped", "median_abs_error", "p90_abs_error", "under_share", "coverage", "agreement"}
    assert keys | {"groups", "peers", "worst"} <= set(result)


def test_a_table_without_the_columns_is_refused(tmp_path, capsys):
    path = tmp_path / "other.csv"
    path.write_text("a,b\n1,2\n", encoding="utf-8")
    assert main([str(path)]) == 2
    assert "no column" in capsys.readouterr().err
