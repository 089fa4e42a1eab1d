"""DeepSpeed files: values as transformers fills "auto" and as DeepSpeed's own config classes default."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from finefit.errors import FinefitError, InputError, NotModelled
from finefit.formats.deepspeed import from_mapping, read, sharding

SHARED = Path(__file__).parents[2].parent / "shared" / "configs" / "deepspeed"


def test_auto_follows_the_hidden_size():
    """LLaMA-Factory's ds_z3_fp8_config.json writes out what "auto" gives at hidden size 3584."""
    auto = from_mapping(
        {
            "zero_optimization": {
                "stage": 3,
                "reduce_bucket_size": "auto",
                "stage3_prefetch_bucket_size": "auto",
                "stage3_param_persistence_threshold": "auto",
            }
        },
        "ds.json",
    )
    found = sharding(auto, 3584)
    assert (found.reduce_bucket, found.prefetch_bucket, found.persistence_threshold) == (12845056, 11560550, 35840)


def test_defaults_and_floats():
    bare = from_mapping({"zero_optimization": {"stage": 2}}, "ds.json")
    found = sharding(bare, 4096)
    assert (found.kind, found.reduce_bucket, found.gather_bucket, found.overlap_comm) == (
        "zero2",
        5 * 10**8,
        5 * 10**8,
        False,
    )
    assert sharding(from_mapping({"zero_optimization": {"stage": 3}}, "ds.json"), 4096).overlap_comm
    written = from_mapping(json.loads('{"zero_optimization": {"stage": 3, "reduce_bucket_size": 5e7}}'), "ds.json")
    assert written.reduce_bucket == 50_000_000
    assert from_mapping({"zero_optimization": True}, "ds.json").stage == 1


def test_offload_and_precision():
    config = {
        "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "none"}},
        "bf16": {"enabled": "auto"},
        "fp16": {"enabled": False},
    }
    found = from_mapping(config, "ds.json")
    assert (found.offload_optimizer, found.offload_params, found.bf16, found.fp16) == (True, False, None, False)


@pytest.mark.parametrize(
    ("config", "what"),
    [
        ({"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme"}}}, "NVMe"),
        ({"tensor_parallel": {"autotp_size": 2}}, "tensor parallelism"),
        ({"bf16": {"enabled": True, "bf16_master_weights_and_grads": True}}, "16-bit master weights"),
        ({"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 8}}, "hpz"),
        ({"zero_optimization": {"stage": 3, "zero_quantized_weights": True}}, "quantized"),
        ({"data_types": {"grad_accum_dtype": "fp32"}}, "grad_accum_dtype"),
        ({"optimizer": {"type": "OneBitAdam"}}, "OneBitAdam"),
        ({"torch_autocast": {"enabled": True}}, "torch_autocast"),
    ],
)
def test_what_is_not_modelled_is_refused(config, what):
    with pytest.raises(NotModelled, match=what):
        from_mapping(config, "ds.json")


def test_stage_0_is_refused():
    with pytest.raises(NotModelled, match="stage 0"):
        sharding(from_mapping({}, "ds.json"), 4096)


@pytest.mark.parametrize(
    "config",
    [
        {"zero_optimization": {"stage": 4}},
        {"zero_optimization": {"stage": "3"}},
        {"zero_optimization": 3},
        {"zero_optimization": {"stage": 3, "reduce_bucket_size": "big"}},
        {"zero_optimization": {"stage": 3, "reduce_bucket_size": 1.5}},
        {"bf16": True},
        {"bf16": {"enabled": "yes"}},
        {"train_micro_batch_size_per_gpu": 0},
    ],
)
def test_wrong_values_are_named(config):
    with pytest.raises(InputError) as caught:
        from_mapping(config, "ds.json")
    assert caught.value.where and caught.value.where.startswith("ds.json") and caught.value.fix


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["auto", "cpu", "none", "AdamW", ""]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "zero_optimization",
                    "stage",
                    "bf16",
                    "enabled",
                    "offload_optimizer",
                    "device",
                    "reduce_bucket_size",
                    "optimizer",
                    "type",
                    "tensor_parallel",
                    "data_types",
                    "ratio",
                ]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=15,
)


@given(st.dictionaries(st.sampled_from(["zero_optimization", "bf16", "fp16", "optimizer", "data_types"]), _JSON))
def test_any_mapping_is_read_or_refused(config):
    try:
        found = sharding(from_mapping(config, "ds.json"), 4096)
    except FinefitError as error:
        assert str(error)
    else:
        assert found.kind in ("zero1", "zero2", "zero3")


@pytest.mark.skipif(not SHARED.is_dir(), reason="the collection of real configs is not beside this checkout")
def test_real_files():
    """Stage and offload as the collection's MANIFEST.csv states them; refused are those with unmodelled features."""
    found, refused = {}, []
    for path in sorted(SHARED.glob("*.json")):
        try:
            config = read(path)
        except NotModelled:
            refused.append(path.name)
            continue
        found[path.name] = (config.stage, config.offload_optimizer, config.offload_params)
    assert found["LlamaFactory--examples__deepspeed__ds_z2_config.json"] == (2, False, False)
    assert found["LlamaFactory--examples__deepspeed__ds_z3_offload_config.json"] == (3, True, True)
    assert found["axolotl--deepspeed_configs__zero2.json"] == (2, True, False)
    assert found["ms-swift--swift__config__zero1.json"] == (1, False, False)
    assert refused == [
        "DeepSpeedExamples--training__bf16_master_weight__configs__bf16_full.json",
        "LlamaFactory--examples__deepspeed__ds_z2_autotp_config.json",
    ]
    assert len(found) == 22
