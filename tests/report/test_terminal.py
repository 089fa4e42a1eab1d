"""What the report says, and that it stays readable: 80 cells, both languages, any stream."""

from __future__ import annotations

import dataclasses
import io
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import report_answers as answers

from finefit import api
from finefit.planner.answer import Fits, MemoryAnswer
from finefit.planner.plan import LargestModels, MethodTable, Plan, TableCell
from finefit.report.layout import width
from finefit.report.terminal import draw, page, render
from finefit.units import GIB

Answer = MemoryAnswer | Plan | MethodTable | LargestModels
EXAMPLE = Path(__file__).resolve().parents[2] / "src" / "finefit" / "examples" / "llama3_8b_qlora.yaml"
MAKERS: list[Callable[[], Answer]] = [
    answers.plan,
    answers.too_large,
    answers.without_gpu,
    answers.memory,
    answers.method_table,
    lambda: answers.method_table(answers.CLUSTER),
    answers.largest_models,
]


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("make", MAKERS)
def test_no_line_is_wider_than_80_cells(make: Callable[[], Answer], language: str) -> None:
    assert [line for line in render(make(), language).splitlines() if width(line) > 80] == []


@pytest.mark.parametrize("make", MAKERS)
def test_no_hole_is_left_open(make: Callable[[], Answer]) -> None:
    for language in ("en", "zh"):
        assert re.findall(r"\{[a-z_]+\}", render(make(), language)) == []


def test_the_verdict_comes_first() -> None:
    lines = render(answers.plan()).splitlines()
    assert lines[0] == "meta-llama/Meta-Llama-3-8B · QLoRA · 2 x Card X"
    assert lines[1] == "Fits. One card is enough."
    assert lines[2] == "Each GPU needs 14.00 to 16.00 GiB and has 23.00 GiB."
    assert "1 of the 2 GPUs would do: 2 times the price an hour for 1.8 times the speed." in lines
    assert "The whole run: at most 9.03 h, 9.00 USD." in lines


def test_the_four_steps_in_order() -> None:
    report = render(answers.plan())
    found = [line for line in report.splitlines() if re.match(r"\d\. ", line)]
    assert found == [
        "1. Scale and precision",
        "2. Training method: QLoRA",
        "3. Activations at the longest sample",
        "4. Margin",
    ]
    assert "8.03 B parameters, 15.00 GiB at 16 bits each." in report
    assert "41.9 M parameters are trained (0.5 %)." in report
    assert "23.00 GiB usable - 16.00 GiB needed = 7.00 GiB left." in report


def test_the_four_numbers_stand_apart_with_their_meaning() -> None:
    rows = dict(re.findall(r"^  (allocated|required|reserved|device) +(\S+ GiB)", render(answers.plan()), re.M))
    assert rows == {
        "allocated": "13.00 GiB",
        "required": "14.00 GiB",
        "reserved": "15.00 GiB",
        "device": "16.00 GiB",
    }


def test_parts_add_up_to_the_allocated_bytes_and_the_phase_is_named() -> None:
    report = render(answers.plan())
    shares = [float(share) for share in re.findall(r"[GM]iB +([\d.]+) %$", report, re.M)]
    assert sum(shares) == pytest.approx(100, abs=1)
    assert "The peak is in the backward pass (log_softmax, lm_head)." in report


def test_every_input_says_where_it_comes_from() -> None:
    report = " ".join(render(answers.plan()).split())
    assert "stated train.yaml: model llama-3-8b (3); LoRA rank 16 (9)" in report
    assert "stated: samples 52,000 (--samples)" in report
    assert "default llamafactory@0.9.5: double quantisation yes" in report
    assert "derived: - extra fp32 copy no (only DeepSpeed keeps an extra fp32 copy)" in report
    assert "assumed: - padded rows no (rows differ in length)" in report


def test_the_bill_says_what_is_unknown_and_never_zero() -> None:
    report = render(answers.plan())
    assert "egress            1 GB  unknown: price unknown" in report
    assert "5.00 / 9.00 / 12.50 USD, the unknown on top" in report
    assert "0.40 / 0.50 / 0.75 USD  7 offers, 100 days old" in report
    assert re.search(r"0\.50 USD +0\.45 - 0\.55 USD +100 +9\.00 USD", report)


def test_what_does_not_fit_and_what_to_change() -> None:
    report = render(answers.too_large())
    assert report.splitlines()[1] == "Does not fit. One card does not hold it: the states must be spread over several."
    assert "Activations and logits are too large" in report
    assert "12.00 GiB usable - 16.00 GiB needed: 4.00 GiB short." in report
    assert "2 of these GPUs hold it with the states spread over them." in report
    flat = " ".join(report.split())
    assert "1. micro-batch 3 to 1 saves 2.00 GiB, 25 % slower, +1.50 USD for 1,000 samples, then fits" in flat
    assert "Risk: none known." in flat


def test_without_a_gpu_nothing_is_assumed() -> None:
    report = render(answers.without_gpu())
    assert "No GPU was stated: memory and the cards that hold it." in report
    assert re.search(r"fits +1 x Card X +7\.00 GiB +30 min +0\.25 USD", report)
    assert "1 more hold it; --json lists them all." in report
    unpriced = dataclasses.replace(answers.without_gpu(), cards=answers.without_gpu().cards[1:])
    assert re.search(r"tight +2 x Card X +7\.00 GiB +unknown +unknown", render(unpriced))
    assert "\nTime\n" not in report
    assert "\nCost\n" not in report


def test_unknown_numbers_of_memory_are_said() -> None:
    report = render(answers.memory())
    assert re.search(r"required +unknown .*\s+\(finefit plan looks\s+for it\)", report)
    assert "Host memory for offloading: 2.00 GiB a GPU." in report


def test_tables() -> None:
    assert re.search(r"QLoRA +1,024 +7\.00 to 8\.00 GiB +12 GB", render(answers.method_table()))
    assert re.search(r"full fine-tuning +4,096 .* no single card", render(answers.method_table()))
    assert re.search(r"full fine-tuning .* does not fit", render(answers.method_table(answers.CLUSTER)))
    assert re.search(r"QLoRA +32.8 B +14.00 to 16.00 GiB +tight +Qwen2.5-32B", render(answers.largest_models()))
    open_ended = TableCell("lora", 4096, 57 * GIB, None, Fits.NO, None)
    table = dataclasses.replace(answers.method_table(answers.CLUSTER), cells=(open_ended,))
    assert re.search(r"LoRA +4,096 +at least 57.00 GiB +does not fit", render(table))
    assert "Not stated: --method." in render(table)


def test_chinese() -> None:
    report = render(answers.plan(), "zh")
    for said in ("放得下。单卡够用。", "激活值", "优化器状态", "卡时", "按需", "1. 规模与精度", "4. 余量"):
        assert said in report
    assert "必须切分" in render(answers.too_large(), "zh")


def test_a_price_that_nobody_publishes() -> None:
    assert "No price of Card X is known." in render(answers.plan(prices={}, offers=()))


def test_a_stream_without_the_characters_gets_question_marks() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    draw(answers.plan(), "zh", file=stream)
    stream.flush()
    assert b"QLoRA" in raw.getvalue()
    assert b"?" in raw.getvalue()


def test_a_terminal_gets_colour_and_the_same_words(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    stream = Terminal()
    draw(answers.plan(), file=stream)
    coloured = stream.getvalue()
    assert "\x1b[1;32mFits. One card is enough.\x1b[0m" in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == render(answers.plan())


@pytest.mark.parametrize("gpu", ["2x RTX 4090", "RTX 3060"])
def test_real_answers_are_drawn_whole_in_chinese(gpu: str) -> None:
    answer = api.plan(EXAMPLE, gpu=gpu, samples=1000, mean_length=200, as_of="2026-11-30")
    assert isinstance(answer, Plan)
    english = re.compile(r"\b(the|of|is|are|for|with|not|and|unknown)\b")
    lines = [line for line, _ in page(answer, "zh").lines]
    sourced = [line for line in lines if english.search(line) and "http" not in line]
    assert sourced == []
