"""The throughput benchmark: one mapping, no peeking, every row scored or counted."""

import csv
import json

import pytest
from benchmarks.throughput import NEEDED, OPTIONAL, VALUE_COLUMNS, main, predict, question, read, run

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
        ({"method": "boft"}, "method boft"),
        ({"dtype": "fp8"}, "precision fp8"),
        ({"grade": "C"}, "grade C"),
        ({"model": "nobody/nothing-7b"}, "model not in the catalogue"),
        ({"gpu": "Voodoo 2"}, "GPU not known"),
        ({"offload": "optim cpu"}, "offload"),
        ({"tp": "2"}, "model parallel"),
        ({"grad_ckpt": ""}, "checkpointing not stated"),
        ({"tokens_per_microbatch": ""}, "tokens a micro-batch not stated"),
        ({"tok_s_gpu": ""}, "no measured throughput"),
        ({"n_gpus": "16", "n_nodes": "2"}, "not modelled yet: time across machines"),
    ],
)
def test_other_rows_are_counted_with_a_reason(tmp_path, change, reason):
    path = rows_in(tmp_path, ROW)
    result = run([read(path)[0] | change])
    assert result["scored"] == 0
    assert [key[: len(reason)] for key in result["skipped"]] == [reason]


def test_an_unknown_source_and_framework_still_score(tmp_path):
    strange = ROW | {"source": "a blog", "kernels": "", "attn_impl": "", "grad_accum": ""}
    result = run(read(rows_in(tmp_path, strange)))
    assert result["scored"] == 1
    assert result["assumed"] == {"accumulation: 1": 1, "attention: flash": 1, "kernels: eager": 1}


def test_json_holds_the_contract(tmp_path, capsys):
    assert main([str(rows_in(tmp_path, ROW)), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    keys = {"scored", "skipped", "median_abs_error", "p90_abs_error", "under_share", "coverage", "agreement"}
    assert keys | {"groups", "peers", "worst"} <= set(result)


def test_a_table_without_the_columns_is_refused(tmp_path, capsys):
    path = tmp_path / "other.csv"
    path.write_text("a,b\n1,2\n", encoding="utf-8")
    assert main([str(path)]) == 2
    assert "no column" in capsys.readouterr().err
