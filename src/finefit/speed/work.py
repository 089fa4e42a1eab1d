"""What one micro-batch asks of a GPU: FLOPs and bytes, by training method.

Letters: T tokens of the micro-batch (b·s, padding included), H hidden, V vocabulary, L layers,
A heads, D head dimension. Matrix products cost 2 FLOPs a weight and token forward; the embedding
look-up costs none, a tied head is paid for all the same. Backward needs the gradient of the input
for every layer and that of the weight only where it is trained:

=====================  ======  ======  ==========
method                 linear  head    attention
=====================  ======  ======  ==========
full                   3       3       3.5 flash, 3 eager
adapters               2       2       the same
some layers frozen     1+r+u   3 or 2  1 + 2.5·r
full checkpointing     +1      0       +1
a reference model      +1      +1      +1
=====================  ======  ======  ==========

with r the share of the layers that backward reaches, down to the lowest trained one, and u the share of the weights
that are trained.

Flash attention's backward takes five products where forward takes two (Dao 2022, 2205.14135,
algorithm 4), hence 1 + 2.5. Causal attention is counted as half the square (Megatron-LM
``num_floating_point_operations``, megatron/training/training.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from finefit.errors import InputError
from finefit.speed.constants import constant
from finefit.workload.families import layout
from finefit.workload.lora import adapter_shapes, lora_parameters, saved_numel
from finefit.workload.model import Model
from finefit.workload.on_rank import model_on_rank
from finefit.workload.parameters import (
    embedding_parameters,
    layer_kinds,
    layer_parameters,
    layers_numel,
    parameter_count,
    routed_numel,
)
from finefit.workload.recipe import Recipe, Trained
from finefit.workload.selection import trained_parameters

_FLASH_BACKWARD = 2.5
_EAGER_BACKWARD = 2.0


@dataclass(frozen=True, slots=True)
class StepWork:
    """Work of one micro-batch on one GPU, before any efficiency.

    Where a copy of the model is cut over several GPUs, this is the rank with the most: a pipeline stage with the
    head, its share of the heads and widths, its share of a row's tokens.

    Attributes:
        tokens: b·s, padding included; a rank's share of a row under context parallelism.
        linear_flops: matrix products of the layers, adapters included; expert_flops: of the experts a token visits.
        head_flops: the output head.
        attention_flops: score and value products, causal half.
        softmax_bytes: traffic of unfused scores; 0 for flash kernels.
        elementwise_bytes: norms, activations, rotary, residuals: bytes before the kernel's factor.
        adapter_bytes: the same of what adapters add: dropout, casts, scaling, sums.
        loss_bytes: logits in 16 bits, once, before the kernel's factor.
        weight_bytes: 16-bit weights read by all passes.
        quantised: elements stored in 4 or 8 bits; dequantised: times each is unpacked, summed over the elements.
        layers: decoder layers; visits: k·T token copies that experts take in, of all layers with experts.
        parameters: all parameters; trained: those the optimizer updates.
    """

    tokens: int
    linear_flops: float
    expert_flops: float
    head_flops: float
    attention_flops: float
    softmax_bytes: float
    elementwise_bytes: float
    adapter_bytes: float
    loss_bytes: float
    weight_bytes: float
    quantised: int
    dequantised: float
    layers: int
    visits: int
    parameters: int
    trained: int

    @property
    def flops(self) -> float:
        """All FLOPs of the micro-batch, recomputation included."""
        return self.linear_flops + self.expert_flops + self.head_flops + self.attention_flops


def work(model: Model, recipe: Recipe, recomputed: float | None = None) -> StepWork:
    """FLOPs and bytes of one micro-batch of ``micro_batch`` rows of ``seq_len`` tokens.

    ``recomputed`` is the share of the layers' forward that backward computes again; None: as the recipe says.
    Packed rows are taken to attend over the whole row: kernels that keep samples apart do less.

    Raises:
        InputError: a batch or length below 1, or LoRA without adapters.
        NotModelled: the model's family has no known layout.
    """
    if recipe.micro_batch < 1 or recipe.seq_len < 1:
        raise InputError(
            f"a micro-batch of {recipe.micro_batch} rows of {recipe.seq_len} tokens", fix="both must be at least 1"
        )
    parallel = recipe.parallel
    whole, held = model_on_rank(model, replace(parallel, expert=1)), model_on_rank(model, parallel)
    tokens = -(-recipe.rows * recipe.seq_len // parallel.context)
    reference = 0 if recipe.beside.reference == "none" else 2 if recipe.task == "kto" else 1  # forward passes
    recompute: float = recomputed if recomputed is not None else 1 if recipe.checkpointing == "full" else 0
    visits = model.experts.per_token if model.experts else 0
    dense = layers_numel(whole, "linear", "router", "experts") - routed_numel(whole)
    routed, read = routed_numel(whole, visits), dense + routed_numel(held, tokens * visits)
    packed = layers_numel(held, "linear") if recipe.quant else 0
    head = whole.hidden * whole.vocab
    total = parameter_count(held)
    adapters, trained, head_passes, reached, updated = 0, total, 3, 1.0, 1.0
    if recipe.method == "lora":
        if recipe.lora is None:
            raise InputError("method lora without a LoRA rank", where="method", fix="set a rank and targets")
        trained = lora_parameters(held, recipe.lora)
        adapters = trained - saved_numel(held, recipe.lora.modules_to_save)
        updated = 0.0
        head_passes = 3 if _trains_head(model, recipe.lora.modules_to_save) else 2
    elif recipe.trained is not None:
        trained = trained_parameters(held, recipe)
        reached, updated = _reached(model, recipe.trained), _updated(model, recipe.trained)
        head_passes = 3 if recipe.trained.holds(f"{layout(model.family).head}.weight") else 2
    recompute *= reached
    passes, head_passes = 1 + reached + updated + recompute + reference, head_passes + reference
    backward = reached * (_FLASH_BACKWARD if recipe.attention != "eager" else _EAGER_BACKWARD)
    scores = sum(_score_flops(whole, i, recipe.seq_len) for i in range(whole.layers)) * tokens
    flash = recipe.attention != "eager"
    # unfused softmax: forward a third, backward two thirds, recomputation one forward more
    unfused = tokens * recipe.seq_len * whole.heads * whole.layers * constant("softmax_bytes")
    eager = not (recipe.compiled or recipe.fused_kernels)
    width = sum(count * _elementwise_width(whole, first, eager) for first, count in layer_kinds(whole))
    beside = sum(count * _adapter_width(whole, recipe, first) for first, count in layer_kinds(whole))
    sparse = sum(1 for index in range(whole.layers) if whole.sparse(index))
    return StepWork(
        tokens=tokens,
        linear_flops=2 * tokens * (passes * dense + (3 + recompute) * adapters),
        expert_flops=2 * tokens * passes * routed,
        head_flops=2 * tokens * head_passes * head,
        attention_flops=scores * (1 + backward + recompute + reference),
        softmax_bytes=0.0 if flash else unfused * (1 + 2 * reached + recompute) / 3,
        elementwise_bytes=tokens * width * (1 + 2 * reached + recompute + reference),
        adapter_bytes=tokens * beside * (3 + recompute),
        loss_bytes=tokens * whole.vocab * 2,
        weight_bytes=2 * (read * passes + head * head_passes),
        quantised=packed,
        dequantised=packed * passes,
        layers=whole.layers,
        visits=tokens * visits * sparse,
        parameters=total,
        trained=trained,
    )


def _trains_head(model: Model, saved: tuple[str, ...]) -> bool:
    return any(layout(model.family).head.endswith(name) for name in saved)


def _reached(model: Model, trained: Trained) -> float:
    """Share of the layers that backward passes: those above the lowest trained one, all below a trained embedding."""
    if any(trained.holds(parameter.name) for parameter in embedding_parameters(model)):
        return 1.0
    for index in range(model.layers):
        if any(trained.holds(f"layers.{index}.{each.name}") for each in layer_parameters(model, index)):
            return (model.layers - index) / model.layers
    return 0.0


def _updated(model: Model, trained: Trained) -> float:
    """Share of the layers' matrices that are trained."""
    matrices = [
        (f"layers.{index}.{each.name}", each.numel)
        for index in range(model.layers)
        for each in layer_parameters(model, index)
        if each.kind in ("linear", "experts")
    ]
    return sum(numel for name, numel in matrices if trained.holds(name)) / sum(numel for _, numel in matrices)


def _score_flops(model: Model, layer: int, s: int) -> float:
    """Forward FLOPs a token of QKᵀ and AV in one layer: 4·s·A·D, half of it by causality.

    A window of w < s leaves Σ min(i, w) ≈ w·s - w²/2 scores, which is s replaced by 2w - w²/s.
    """
    window = model.sliding_window
    sliding = bool(model.layer_types) and model.layer_types[layer] == "sliding"
    length = 2 * window - window * window / s if sliding and window and window < s else float(s)
    return 2 * length * model.q_width


def _adapter_width(model: Model, recipe: Recipe, layer: int) -> int:
    """Bytes a token and layer of the inputs that adapters read once more and of the outputs they are added to."""
    shapes = adapter_shapes(model, recipe.lora.targets, layer) if recipe.lora else ()
    return 2 * sum(n_in + 2 * n_out for _, n_in, n_out in shapes)


def _elementwise_width(model: Model, layer: int, eager: bool) -> int:
    """Bytes a token and layer that elementwise kernels touch in one pass, in 16 bits.

    8 hidden-wide tensors (two norms, two residual adds), the MLP's activation (1.5 tensors of F a
    branch) and rotary with its copies (2 of the query, key and value widths): the form that was fitted.
    PyTorch's layer norm is one kernel, an eager RMSNorm six in fp32 (transformers modeling_llama.py ``LlamaRMSNorm``):
    36 bytes an element against 4.
    A token's k copies in a mixture of experts are made, weighed, put back in order and summed: 4 more
    hidden-wide tensors each (integrations/moe.py ``grouped_mm_experts_forward``), which no run has fitted.
    """
    mlp = 3 * model.ffn if model.gated_mlp else 3 * model.ffn // 2
    if model.experts is not None and model.sparse(layer):
        experts = model.experts
        mlp = 3 * (experts.per_token * experts.width + experts.shared) + 4 * experts.per_token * model.hidden
    states = 2 if eager and model.norm == "layer" else 8
    return 2 * (states * model.hidden + mlp + 2 * (model.q_width + 2 * model.kv_width))
