"""Parameter tensors of vision towers and projectors, from their dimensions.

Names and shapes are those of transformers 5.24.0 ``models/<kind>/modeling_<kind>.py``, without the path of the
body ("model."). The layers of a tower are a ``Model`` of their own and listed by ``parameters.layer_parameters``.
"""

from __future__ import annotations

from dataclasses import dataclass

from finefit.errors import NotModelled
from finefit.workload.parameters import Parameter, layer_kinds, layer_parameters
from finefit.workload.tower import Tower

QWEN = frozenset({"qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe", "exaone4_5"})
LLAVA = frozenset({"llava", "llava_next"})
CHANNELS = 3


@dataclass(frozen=True, slots=True)
class Outside:
    """Tensors of a tower outside its layers: before them, after them, and those of the projector."""

    before: tuple[Parameter, ...]
    after: tuple[Parameter, ...]
    projector: tuple[Parameter, ...]
    layers: str  # path of the list of layers


def _norm(path: str, width: int, *, bias: bool) -> list[Parameter]:
    out = [Parameter(f"{path}.weight", (width,), "norm")]
    return [*out, Parameter(f"{path}.bias", (width,), "norm")] if bias else out


def _linear(path: str, n_in: int, n_out: int, *, bias: bool = True) -> list[Parameter]:
    out = [Parameter(f"{path}.weight", (n_out, n_in), "linear")]
    return [*out, Parameter(f"{path}.bias", (n_out,), "bias")] if bias else out


def _conv(path: str, tower: Tower, *, bias: bool) -> list[Parameter]:
    """The convolution over patches: no ``nn.Linear``, so neither quantised nor adapted."""
    time = (tower.temporal,) if tower.temporal > 1 else ()
    shape = (tower.body.hidden, CHANNELS, *time, tower.patch, tower.patch)
    out = [Parameter(f"{path}.weight", shape, "conv")]
    return [*out, Parameter(f"{path}.bias", (tower.body.hidden,), "conv")] if bias else out


def outside(tower: Tower) -> Outside:
    """Tensors of a tower and its projector beside the tower's layers.

    Raises:
        NotModelled: the code of this kind is not written down.
    """
    if tower.opaque:
        return Outside((Parameter("tower.weights", (tower.opaque,), "conv"),), (), (), "tower.layers")
    if tower.kind in QWEN:
        return _qwen(tower)
    if tower.kind in LLAVA:
        return _llava(tower)
    if tower.kind in ("gemma3", "paligemma"):
        return _siglip(tower)
    if tower.kind == "mistral3":
        return _pixtral(tower)
    raise NotModelled(f"the vision tower of {tower.kind} is not modelled yet", fix="plan its language model alone")


def _qwen(tower: Tower) -> Outside:
    third = tower.kind in ("qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe")
    hidden, merged = tower.body.hidden, tower.body.hidden * tower.merge**2
    before = _conv("visual.patch_embed.proj", tower, bias=third)
    if third:
        before.append(Parameter("visual.pos_embed.weight", (tower.positions, hidden), "position"))
    if third:
        projector = _merger("visual.merger", hidden, merged, tower.out)
        for tap in range(len(tower.taps)):
            projector += _merger(f"visual.deepstack_merger_list.{tap}", merged, merged, tower.out)
    else:
        projector = _norm("visual.merger.ln_q", hidden, bias=tower.body.norm == "layer")
        projector += _linear("visual.merger.mlp.0", merged, merged) + _linear("visual.merger.mlp.2", merged, tower.out)
    return Outside(tuple(before), (), tuple(projector), "visual.blocks")


def _merger(path: str, normed: int, merged: int, out: int) -> list[Parameter]:
    """``Qwen3VLVisionPatchMerger``: those of DeepStack normalise after the patches are joined."""
    return [
        *_norm(f"{path}.norm", normed, bias=True),
        *_linear(f"{path}.linear_fc1", merged, merged),
        *_linear(f"{path}.linear_fc2", merged, out),
    ]


def _siglip(tower: Tower) -> Outside:
    at, hidden = "vision_tower.", tower.body.hidden
    before = _conv(f"{at}embeddings.patch_embedding", tower, bias=True)
    before.append(Parameter(f"{at}embeddings.position_embedding.weight", (tower.positions, hidden), "position"))
    after = _norm(f"{at}post_layernorm", hidden, bias=True)
    if tower.kind == "gemma3":
        projector = [
            Parameter("multi_modal_projector.mm_input_projection_weight", (hidden, tower.out), "matrix"),
            *_norm("multi_modal_projector.mm_soft_emb_norm", hidden, bias=False),
        ]
    else:
        projector = _linear("multi_modal_projector.linear", hidden, tower.out)
    return Outside(tuple(before), tuple(after), tuple(projector), f"{at}encoder.layers")


def _llava(tower: Tower) -> Outside:
    at, hidden = "vision_tower.", tower.body.hidden
    before = [Parameter(f"{at}embeddings.class_embedding", (hidden,), "position")]
    before += _conv(f"{at}embeddings.patch_embedding", tower, bias=False)
    before.append(Parameter(f"{at}embeddings.position_embedding.weight", (tower.positions, hidden), "position"))
    before += _norm(f"{at}pre_layrnorm", hidden, bias=True)
    after = _norm(f"{at}post_layernorm", hidden, bias=True)
    projector = _linear("multi_modal_projector.linear_1", hidden, tower.out)
    projector += _linear("multi_modal_projector.linear_2", tower.out, tower.out)
    if tower.kind == "llava_next":
        projector.append(Parameter("image_newline", (tower.out,), "position"))
    return Outside(tuple(before), tuple(after), tuple(projector), f"{at}encoder.layers")


def _pixtral(tower: Tower) -> Outside:
    at, hidden, bias = "vision_tower.", tower.body.hidden, tower.projector_bias
    before = _conv(f"{at}patch_conv", tower, bias=False) + _norm(f"{at}ln_pre", hidden, bias=False)
    path = "multi_modal_projector."
    projector = _norm(f"{path}norm", hidden, bias=False)
    projector += _linear(f"{path}patch_merger.merging_layer", hidden * tower.merge**2, hidden, bias=False)
    projector += _linear(f"{path}linear_1", hidden, tower.out, bias=bias)
    projector += _linear(f"{path}linear_2", tower.out, tower.out, bias=bias)
    return Outside(tuple(before), (), tuple(projector), f"{at}transformer.layers")


def tower_parameters(tower: Tower) -> tuple[tuple[Parameter, int], ...]:
    """Every tensor of tower and projector with the number of its copies; a layer's path has a star for its index."""
    parts = outside(tower)
    out = [(p, 1) for p in (*parts.before, *parts.after, *parts.projector)]
    for first, count in () if tower.opaque else layer_kinds(tower.body):
        for p in layer_parameters(tower.body, first):
            out.append((Parameter(f"{parts.layers}.*.{p.name}", p.shape, p.kind), count))
    return tuple(out)


def tower_numel(tower: Tower, *kinds: str) -> int:
    """Elements of tower and projector, of tensors of the given kinds or of all."""
    return sum(p.numel * count for p, count in tower_parameters(tower) if not kinds or p.kind in kinds)


def tower_linears(tower: Tower) -> tuple[str, ...]:
    """Leaf names of the linear modules of tower and projector, each once."""
    leaves = (p.module.rpartition(".")[2] for p, _ in tower_parameters(tower) if p.kind == "linear")
    return tuple(dict.fromkeys(leaves))
