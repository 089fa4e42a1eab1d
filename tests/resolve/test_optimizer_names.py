"""Names of optimizers against transformers' list and the libraries' own defaults."""

from __future__ import annotations

import pytest

from finefit.errors import InputError, NotModelled
from finefit.resolve.flags import resolve_flags
from finefit.resolve.optimizers import NAMES, check, optimizer

# transformers 5.24.0 training_args.py OptimizerNames, but for the two of TPUs and NPUs
_LISTED = """
    adamw_torch adamw_torch_fused adafactor adamw_anyprecision adamw_torch_4bit adamw_torch_8bit ademamix sgd
    adagrad adamw_bnb_8bit adamw_8bit ademamix_8bit lion_8bit lion_32bit paged_adamw_32bit paged_adamw_8bit
    paged_ademamix_32bit paged_ademamix_8bit paged_lion_32bit paged_lion_8bit rmsprop rmsprop_bnb
    rmsprop_bnb_8bit rmsprop_bnb_32bit galore_adamw galore_adamw_8bit galore_adafactor galore_adamw_layerwise
    galore_adamw_8bit_layerwise galore_adafactor_layerwise lomo adalomo grokadamw schedule_free_radam
    schedule_free_adamw schedule_free_sgd apollo_adamw apollo_adamw_layerwise stable_adamw
"""
TRANSFORMERS = set(_LISTED.split())


def test_every_optimizer_that_transformers_lists_is_known():
    assert set(NAMES) >= TRANSFORMERS
    for name in TRANSFORMERS:
        assert optimizer(name, where="optim").kind is not None


@pytest.mark.parametrize("name", ["adamw_torch_xla", "adamw_torch_npu_fused"])
def test_optimizers_of_other_hardware_are_refused(name):
    with pytest.raises(InputError, match=name):
        optimizer(name, where="optim")


def test_an_unknown_optimizer_is_refused_with_those_known():
    with pytest.raises(NotModelled) as caught:
        optimizer("adam9000", where="--optimizer")
    assert "adafactor" in caught.value.fix


def test_projections_have_a_rank_and_targets():
    """128 and every linear module, unless --rank and --targets say otherwise (transformers trainer_optimizer.py)."""
    found = resolve_flags("llama-2-7b", method="full", seq=512, optimizer="galore_adamw").recipe.optimizer
    assert found.rank == 128 and "gate_proj" in found.targets and "lm_head" not in found.targets
    found = resolve_flags(
        "llama-2-7b", method="full", seq=512, optimizer="apollo_adamw", rank=16, targets="q_proj,v_proj"
    ).recipe.optimizer
    assert (found.rank, found.targets) == (16, ("q_proj", "v_proj"))


def test_projections_of_adapters_are_refused():
    with pytest.raises(InputError, match="whole matrices"):
        resolve_flags("llama-2-7b", method="lora", seq=512, optimizer="galore_adamw")


def test_steps_in_backward_do_not_accumulate():
    """transformers 5.24.0 _setup_low_rank_optimizer raises; LOMO updates after each micro-batch."""
    with pytest.raises(InputError, match="accumulate"):
        resolve_flags("llama-2-7b", method="full", seq=512, optimizer="galore_adamw_layerwise", accum=4)
    check(optimizer("lomo", where="optim"), full=True, sharding="none", accum=4, where="optim")


def test_projections_of_sharded_parameters_are_refused():
    with pytest.raises(NotModelled, match="sharded"):
        resolve_flags("llama-2-7b", method="full", seq=512, optimizer="galore_adamw", sharding="fsdp")
