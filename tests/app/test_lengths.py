"""The command ``finefit lengths`` as people run it."""

from __future__ import annotations

import json

import pytest

from finefit.app.cli import main


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "data.jsonl"
    rows = [{"instruction": "a" * 30, "output": "b" * (97 if i < 198 else 9_997)} for i in range(200)]
    path.write_text("\n".join(map(json.dumps, rows)) + "\nnot json\n", "utf-8")
    return path


def _object(capsys, *arguments):
    assert main(["lengths", *map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_lengths_by_the_rule_of_thumb(capsys, data):
    found = _object(capsys, data, "--model", "Qwen/Qwen2.5-7B", "--template", "none", "--batch", 2)
    # 30 + 1 + 97 characters at 0.3 tokens are 38.4; 30 + 1 + 9,997 are 3008.4
    assert (found["samples"], found["longest"], found["longest_line"]) == (200, 3008, 199)
    assert found["percentiles"] == {"50": 38, "90": 38, "95": 38, "99": 38}
    assert found["tokens"] == 198 * 38 + 2 * 3008
    assert found["exact"] is False and found["error"] == {"low": -0.31, "high": 0.52}
    assert found["bad_rows"] == 1 and found["bad_rows_named"] == [{"line": 201, "reason": "not JSON"}]
    assert found["batches"]["padding"]["longest_batch_tokens"] == 2 * 3008
    without = found["without_longest_percent"]
    assert (without["samples"], without["longest"], without["tokens_saved"]) == (2, 38, 2 * 3008)
    assert without["memory_saved_bytes"] is None


def test_what_the_longest_samples_cost(capsys, data):
    arguments = (data, "--model", "Qwen/Qwen2.5-7B", "--method", "lora", "--gpu", "H100", "--batch", 2)
    without = _object(capsys, *arguments, "--seq", 2048)["without_longest_percent"]
    assert without["memory_saved_bytes"] > 0 and without["seconds_saved"] > 0
    assert float(without["price_saved"]["amount"]) > 0


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--template", "nope"], "no template"),
        (["--format", "nope"], "no shape"),
        (["--batch", "0"], "--batch"),
        (["--tokenizer", "/nope"], "no file"),
    ],
)
def test_wrong_input_is_one_line(capsys, data, arguments, word):
    assert main(["lengths", str(data), "--model", "Qwen/Qwen2.5-7B", *arguments]) == 2
    said = capsys.readouterr().err
    assert word in said and said.count("\n") == 1


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_page_names_bad_rows(capsys, data, language):
    assert main(["lengths", str(data), "--model", "Qwen/Qwen2.5-7B", "--lang", language]) == 0
    said = capsys.readouterr().out
    assert "201" in said and ("不是 JSON" if language == "zh" else "not JSON") in said
