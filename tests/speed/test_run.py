"""Steps and hours of a run; padded lengths from what is known of the data."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from speed_cases import A100, GPT2, LLAMA_7B, full, lora, on, sharded

from finefit.errors import InputError
from finefit.speed.run import Pauses, run_time
from finefit.speed.steptime import step_time
from finefit.workload import Lengths
from finefit.workload.saving import Evaluation, Saving
from finefit.workload.sourced import Origin, Source


def test_steps_are_the_ceiling_of_rows_over_rows_a_step():
    recipe = sharded(full(512, 2, grad_accum=4, epochs=3.0), "ddp", 4)
    run = run_time(LLAMA_7B, recipe, on(A100, 4), Lengths(samples=1000))
    assert run.rows_per_step == 32
    assert run.epoch_steps == 32  # 31.25
    assert run.steps == 94  # 93.75


def test_hours_are_steps_times_seconds():
    """ETA = iterations x seconds an iteration."""
    run = run_time(LLAMA_7B, full(512, epochs=2.0), on(A100), Lengths(samples=500))
    assert run.steps == 1000
    assert run.hours == pytest.approx(1000 * run.step_seconds / 3600)
    low, high = run.hours_interval
    assert low == pytest.approx(run.hours / (1 + run.step.spread))
    assert high == pytest.approx(run.hours * (1 + run.step.spread))
    assert run.hours_per_epoch == pytest.approx(run.hours / 2)


def test_max_steps_decides():
    run = run_time(LLAMA_7B, full(512, max_steps=70, epochs=3.0), on(A100), Lengths(samples=1000))
    assert run.steps == 70
    without_data = run_time(LLAMA_7B, full(512, max_steps=70), on(A100), Lengths())
    assert without_data.hours == pytest.approx(70 * without_data.step_seconds / 3600)


def test_unknown_size_has_no_total_but_hours_per_1000_samples():
    run = run_time(LLAMA_7B, full(512, epochs=3.0), on(A100), Lengths())
    assert (run.steps, run.hours, run.hours_interval, run.hours_per_epoch) == (None,) * 4
    assert run.hours_per_1000_samples == pytest.approx(1000 * run.step_seconds / 3600)
    assert run.upper_bound
    assert any("unknown" in note for note in run.notes)


def test_unknown_epochs_have_no_total():
    run = run_time(LLAMA_7B, full(512), on(A100), Lengths(samples=1000))
    assert run.hours is None
    assert run.hours_per_epoch is not None


def test_max_samples_cut_the_data_and_bound_data_of_unknown_size():
    recipe = full(512, max_samples=100, epochs=1.0)
    assert run_time(LLAMA_7B, recipe, on(A100), Lengths(samples=1000)).steps == 100
    assert run_time(LLAMA_7B, recipe, on(A100), Lengths(samples=60)).steps == 60
    unknown = run_time(LLAMA_7B, recipe, on(A100), Lengths())
    assert unknown.steps == 100
    assert any("at most" in note for note in unknown.notes)


def test_single_rows_take_the_mean_length():
    run = run_time(LLAMA_7B, full(2048), on(A100), Lengths(mean=300.0))
    assert (run.row_tokens, run.upper_bound) == (300, False)
    assert run.step_seconds == step_time(LLAMA_7B, full(300), on(A100)).seconds
    from_totals = run_time(LLAMA_7B, full(2048), on(A100), Lengths(tokens=30000, samples=100))
    assert from_totals.row_tokens == 300


def test_lengths_never_exceed_the_cutoff():
    run = run_time(LLAMA_7B, full(512), on(A100), Lengths(mean=3000.0, longest=9000))
    assert run.row_tokens == 512


def test_packed_rows_are_full_and_hold_several_samples():
    run = run_time(
        LLAMA_7B, full(2048, packing=True, epochs=1.0), on(A100), Lengths(mean=256.0, samples=8000, tokens=2_048_000)
    )
    assert run.row_tokens == 2048
    assert run.steps == 1000  # eight samples a row
    assert run.hours_per_1000_samples == pytest.approx(125 * run.step_seconds / 3600)
    assert not run.upper_bound


def test_packed_tokens_alone_give_the_rows():
    run = run_time(LLAMA_7B, full(1000, packing=True, epochs=1.0), on(A100), Lengths(tokens=1_500_500))
    assert run.steps == 1501


def test_evaluation_is_said_to_be_left_out():
    run = run_time(LLAMA_7B, full(512, eval_batch=8), on(A100), Lengths())
    assert any(note.startswith("evaluation is not in the hours") for note in run.notes)


def test_tokens_a_second():
    run = run_time(LLAMA_7B, sharded(full(512, 2), "ddp", 4), on(A100, 4), Lengths())
    assert run.tokens_per_second_per_gpu == pytest.approx(1024 / run.step_seconds)
    assert run.tokens_per_second == pytest.approx(4 * 1024 / run.step_seconds)


@pytest.mark.parametrize("lengths", [Lengths(samples=0), Lengths(mean=0.0), Lengths(mean=-3.0)])
def test_impossible_data_is_refused(lengths):
    with pytest.raises(InputError):
        run_time(LLAMA_7B, full(512), on(A100), lengths)


@given(st.lists(st.integers(1, 512), min_size=1, max_size=20), st.integers(2, 16))
def test_bound_on_padded_rows_holds_for_any_distribution(data, b):
    """Exact mean of the longest of b independent draws: Σ x·(F(x)^b - F(x-)^b)."""
    ordered = sorted(data)
    steps = [i / len(ordered) for i in range(len(ordered) + 1)]
    expected = sum(x * (high**b - low**b) for x, (low, high) in zip(ordered, pairwise(steps), strict=True))
    lengths = Lengths(mean=sum(data) / len(data), longest=ordered[-1])
    run = run_time(GPT2, full(512, b), on(A100), lengths)
    assert expected - 1e-6 <= run.row_tokens <= ordered[-1]
    assert run.upper_bound


@given(st.integers(1, 10_000), st.integers(1, 8), st.integers(1, 8), st.integers(1, 8), st.floats(0.1, 10))
def test_every_sample_is_seen_and_no_step_is_idle(samples, b, accum, n, epochs):
    recipe = sharded(lora(64, b, grad_accum=accum, epochs=epochs), "ddp", n)
    run = run_time(LLAMA_7B, recipe, on(A100, n), Lengths(samples=samples))
    assert run.steps * run.rows_per_step >= samples * epochs * (1 - 1e-12)
    assert (run.steps - 1) * run.rows_per_step < samples * epochs


@given(st.integers(1, 500), st.integers(1, 499))
def test_hours_grow_with_the_mean_length(mean, more):
    recipe = replace(full(1000, epochs=1.0), checkpointing="full")
    short = run_time(LLAMA_7B, recipe, on(A100), Lengths(mean=float(mean), samples=10))
    assert run_time(LLAMA_7B, recipe, on(A100), Lengths(mean=float(mean + more), samples=10)).hours > short.hours


def test_evaluations_and_checkpoints_are_in_the_hours():
    """Every 100 of 1,000 steps: ten evaluations of 80 rows on 4 GPUs, ten checkpoints."""
    recipe = sharded(full(512, 2, grad_accum=4, max_steps=1000, eval_batch=8), "zero3", 4)
    pauses = Pauses(Evaluation("steps", 100, 80), saving("steps", 100), 30.0)
    run = run_time(LLAMA_7B, recipe, on(A100, 4), Lengths(), pauses)
    assert run.checkpoint_seconds == 10 * 30
    each = (run.step_seconds - run.step.optimizer) / 3 / 8
    assert run.evaluation_seconds == pytest.approx(10 * 20 * each)
    assert run.hours * 3600 == pytest.approx(1000 * run.step_seconds + run.evaluation_seconds + 300)
    assert run.notes == ()


def saving(strategy, steps):
    return Saving(strategy, steps, False, None, Source(Origin.STATED, "a.yaml"), "save_steps")


@pytest.mark.parametrize(
    ("strategy", "every", "steps", "epoch", "count"),
    [
        ("steps", 500, 1200, 400, 2),
        ("steps", 0.1, 1000, None, 10),  # a share of the run
        ("steps", 5000, 1200, 400, 0),
        ("epoch", 500, 1200, 400, 3),
        ("epoch", 500, 1200, None, 1),
        ("no", 500, 1200, 400, 1),  # do_eval: once after training
    ],
)
def test_how_often_a_run_stops(strategy, every, steps, epoch, count):
    assert Evaluation(strategy, every, None).times(steps, epoch) == count
    assert saving(strategy, every).times(steps, epoch) == (0 if strategy == "no" else max(1, count))
