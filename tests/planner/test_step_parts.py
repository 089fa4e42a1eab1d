"""``--explain``: the parts add up to the step, and each names the constants it meets."""

import pytest

from finefit import api
from finefit.errors import InputError
from finefit.speed.constants import entry

DAY = "2026-11-30"
RUN = {"seq": 2048, "batch": 2, "as_of": DAY, "explain": True}


def explained(**more):
    return api.plan("meta-llama/Llama-3.1-8B", **RUN | more)


@pytest.mark.parametrize(
    ("more", "part", "constants"),
    [
        ({"method": "lora", "gpu": "A100-80GB"}, "launch", {"host.eager", "adapter"}),
        ({"method": "qlora", "gpu": "RTX 4090"}, "dequantisation", {"dequantisation.bitsandbytes"}),
        ({"method": "full", "sharding": "zero3", "gpu": "H100:8"}, "communication", {"bus.h100", "overlap"}),
        (
            {"method": "full", "sharding": "zero3", "gpu": "2 x 8 H100", "network": 400.0},
            "communication",
            {"bus.h100", "network", "overlap"},
        ),
    ],
)
def test_every_part_is_explained(more, part, constants):
    plan = explained(**more)
    parts = {each.name: each for each in plan.step_explained}
    assert sum(each.seconds for each in parts.values()) == pytest.approx(plan.run.step_seconds)
    assert sum(each.share for each in parts.values()) == pytest.approx(1)
    assert {key for key, _, _ in parts[part].constants} == constants
    for key, value, runs in parts[part].constants:
        found = entry(*key.split("."))
        assert value == pytest.approx(found["value"])
        assert runs == sum(found.get("rows", {}).values())
    assert plan.to_dict()["step_explained"][0]["seconds"] == max(each.seconds for each in parts.values())


def test_nothing_is_explained_unasked():
    assert explained(method="lora", gpu="A100-80GB", explain=False).to_dict()["step_explained"] == []


def test_a_slower_network_takes_longer():
    fast, slow = (
        explained(method="full", sharding="zero3", gpu="2 x 8 H100", network=each) for each in (3200.0, 100.0)
    )
    assert slow.run.step_seconds > fast.run.step_seconds


@pytest.mark.parametrize("network", [0.0, -1.0, 1e9])
def test_an_impossible_network_is_refused(network):
    with pytest.raises(InputError, match="network"):
        explained(method="full", gpu="2 x 8 H100", network=network)
