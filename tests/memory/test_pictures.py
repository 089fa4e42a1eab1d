"""What pictures, frozen towers and encoders cost, and what they must not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from finefit.formats.hf_config import model_from_config
from finefit.memory.compiled import compile_timeline
from finefit.memory.estimate import timeline
from finefit.memory.played import played
from finefit.step.build import build_step
from finefit.step.size import Dims
from finefit.workload import DType, Lora, Model, Optimizer, Recipe
from finefit.workload.tower import Images

_VL = {
    "model_type": "qwen3_vl",
    "dtype": "bfloat16",
    "text_config": {
        "hidden_size": 256,
        "num_hidden_layers": 9,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "intermediate_size": 512,
        "vocab_size": 1000,
    },
    "vision_config": {"depth": 9, "hidden_size": 128, "num_heads": 2, "intermediate_size": 256,
                      "deepstack_visual_indexes": [1, 4]},
}  # fmt: skip
_T5 = {"model_type": "t5", "d_model": 64, "num_heads": 4, "d_kv": 16, "d_ff": 128, "num_layers": 9, "vocab_size": 500}
_BERT = {"model_type": "bert", "architectures": ["BertForMaskedLM"], "hidden_size": 64, "num_attention_heads": 4}
FULL = Recipe("full", DType.BF16, Optimizer("adamw", "fused"), 256, 2, images=Images(1, 128, 128))


def read(config: dict[str, object]) -> Model:
    return model_from_config(config, "m", "config.json")


def peak(model: Model, recipe: Recipe) -> int:
    dims = Dims(recipe.micro_batch, recipe.seq_len, recipe.lora.rank if recipe.lora else 0)
    return max(played(model, recipe).live_bytes(dims))


@pytest.mark.parametrize("config", [_VL, _T5, {**_BERT, "num_hidden_layers": 9}])
@pytest.mark.parametrize("checkpointing", ["none", "full"])
def test_folding_changes_no_peak(config: dict[str, object], checkpointing: str) -> None:
    model = read(config)
    recipe = replace(FULL, checkpointing=checkpointing, images=FULL.images if model.tower else None)
    dims = Dims(recipe.micro_batch, recipe.seq_len)
    folded = compile_timeline(played(model, recipe, folded=True)).evaluate(dims).allocated
    whole = max(played(model, recipe).live_bytes(dims))
    assert folded == whole


def test_a_frozen_tower_keeps_no_activations_and_no_states() -> None:
    model = read(_VL)
    frozen = replace(FULL, frozen=("tower", "projector"))
    step = build_step(model, frozen)
    assert not any(p.trainable for name, p in step.params.items() if name.startswith("visual."))
    more, less = (replace(FULL, images=Images(n, 512, 512), seq_len=1024, frozen=frozen.frozen) for n in (4, 1))
    kept = [op for block in build_step(model, more).blocks if block.name.startswith("visual.") for op in block.program]
    assert not any(getattr(op, "saves", ()) for op in kept)
    assert peak(model, less) <= peak(model, more)
    assert peak(model, frozen) < peak(model, FULL)


def test_adapters_stay_out_of_a_frozen_tower() -> None:
    lora = Lora(8, 16, targets=("qkv", "q_proj"))
    recipe = replace(FULL, method="lora", lora=lora)
    inside = {name for name in build_step(read(_VL), recipe).params if "lora" in name and "visual" in name}
    assert inside
    frozen = build_step(read(_VL), replace(recipe, frozen=("tower",)))
    assert not any("lora" in name and "visual" in name for name in frozen.params)


def test_text_alone_still_holds_the_tower() -> None:
    model = read(_VL)
    alone = replace(FULL, images=None, method="lora", lora=Lora(8, 16, targets=("q_proj",)))
    without = replace(model, tower=None)
    assert peak(model, alone) - peak(without, alone) > 0


def test_an_embedding_used_three_times_has_one_gradient() -> None:
    model = read(_T5)
    recipe = replace(FULL, images=None, grad_accum=2)
    marks = timeline(model, recipe)
    table = 500 * 64 * 2
    at_end = [t for t in marks.tensors if t.category == "gradients" and t.size.raw(Dims(2, 256)) == table]
    assert at_end
    live: set[int] = set()
    for event in marks.events:
        live.add(event) if event >= 0 else live.discard(~event)
    assert not [i for i in live if marks.tensors[i].category == "gradients"]
