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
full checkpointing     +1      0       +1
a reference model      +1      +1      +1
=====================  ======  ======  ==========

Flash attention's backward takes five products where forward takes two (Dao 2022, 2205.14135,
algorithm 4), hence 1 + 2.5. Causal attention is counted as half the square (Megatron-LM
``num_floating_point_operations``, megatron/training/training.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from finefit.errors import InputError
from finefit.speed.constants import constant
from finefit.workload.families import layout
from finefit.workload.lora import lora_parameters, saved_numel
from finefit.workload.model import Model
from finefit.workload.parameters import layer_kinds, layers_numel, parameter_count, routed_numel
from finefit.workload.recipe import Recipe

_FLASH_BACKWARD = 2.5
_EAGER_BACKWARD = 2.0


@dataclass(frozen=True, slots=True)
class StepWork:
    """Work of one micro-batch on one GPU, before any efficiency.

    Attributes:
        tokens: b·s, padding included.
        linear_flops: matrix products of the layers, adapters included; of experts those a token visits.
        head_flops: the output head.
        attention_flops: score and value products, causal half.
        softmax_bytes: traffic of unfused scores; 0 for flash kernels.
        elementwise_bytes: norms, activations, rotary, residuals: bytes before the kernel's factor.
        loss_bytes: logits in 16 bits, once, before the kernel's factor.
        weight_bytes: 16-bit weights read by all passes.
        quantised: elements stored in 4 or 8 bits; dequantised: times each is unpacked, summed over the elements.
        parameters: all parameters; trained: those the optimizer updates.
    """

    tokens: int
    linear_flops: int
    head_flops: int
    attention_flops: float
    softmax_bytes: float
    elementwise_bytes: int
    loss_bytes: int
    weight_bytes: int
    quantised: int
    dequantised: int
    parameters: int
    trained: int

    @property
    def flops(self) -> float:
        """All FLOPs of the micro-batch, recomputation included."""
        return self.linear_flops + self.head_flops + self.attention_flops


def work(model: Model, recipe: Recipe) -> StepWork:
    """FLOPs and bytes of one micro-batch of ``micro_batch`` rows of ``seq_len`` tokens.

    Packed rows are taken to attend over the whole row: kernels that keep samples apart do less.

    Raises:
        InputError: a batch or length below 1, or LoRA without adapters.
        NotModelled: the model's family has no known layout.
    """
    if recipe.micro_batch < 1 or recipe.seq_len < 1:
        raise InputError(
            f"a micro-batch of {recipe.micro_batch} rows of {recipe.seq_len} tokens", fix="both must be at least 1"
        )
    tokens = recipe.rows * recipe.seq_len
    reference = 0 if recipe.beside.reference == "none" else 2 if recipe.task == "kto" else 1  # forward passes
    recompute = 1 if recipe.checkpointing == "full" else 0
    visits = model.experts.per_token if model.experts else 0
    dense = layers_numel(model, "linear", "router", "experts") - routed_numel(model)
    linear, read = dense + routed_numel(model, visits), dense + routed_numel(model, tokens * visits)
    packed = layers_numel(model, "linear") if recipe.quant else 0
    head = model.hidden * model.vocab
    total = parameter_count(model)
    adapters, trained, head_passes, base_passes = 0, total, 3, 3
    if recipe.method == "lora":
        if recipe.lora is None:
            raise InputError("method lora without a LoRA rank", where="method", fix="set a rank and targets")
        trained = lora_parameters(model, recipe.lora)
        adapters = trained - saved_numel(model, recipe.lora.modules_to_save)
        base_passes = 2
        head_passes = 3 if _trains_head(model, recipe.lora.modules_to_save) else 2
    passes, head_passes = base_passes + recompute + reference, head_passes + reference
    scores = sum(_score_flops(model, i, recipe.seq_len) for i in range(model.layers)) * tokens
    flash = recipe.attention != "eager"
    # unfused softmax: forward a third, backward two thirds, recomputation one forward more
    unfused = tokens * recipe.seq_len * model.heads * model.layers * constant("softmax_bytes")
    width = sum(count * _elementwise_width(model, first) for first, count in layer_kinds(model))
    return StepWork(
        tokens=tokens,
        linear_flops=2 * tokens * (passes * linear + (3 + recompute) * adapters),
        head_flops=2 * tokens * head_passes * head,
        attention_flops=scores * (1 + (_FLASH_BACKWARD if flash else _EAGER_BACKWARD) + recompute + reference),
        softmax_bytes=0.0 if flash else unfused * (1 + recompute / 3),
        elementwise_bytes=tokens * width * (3 + recompute + reference),
        loss_bytes=tokens * model.vocab * 2,
        weight_bytes=2 * (read * passes + head * head_passes),
        quantised=packed,
        dequantised=packed * passes,
        parameters=total,
        trained=trained,
    )


def _trains_head(model: Model, saved: tuple[str, ...]) -> bool:
    return any(layout(model.family).head.endswith(name) for name in saved)


def _score_flops(model: Model, layer: int, s: int) -> float:
    """Forward FLOPs a token of QKᵀ and AV in one layer: 4·s·A·D, half of it by causality.

    A window of w < s leaves Σ min(i, w) ≈ w·s - w²/2 scores, which is s replaced by 2w - w²/s.
    """
    window = model.sliding_window
    sliding = bool(model.layer_types) and model.layer_types[layer] == "sliding"
    length = 2 * window - window * window / s if sliding and window and window < s else float(s)
    return 2 * length * model.q_width


def _elementwise_width(model: Model, layer: int) -> int:
    """Bytes a token and layer that elementwise kernels touch in one pass, in 16 bits.

    8 hidden-wide tensors (two norms, two residual adds), the MLP's activation (1.5 tensors of F a
    branch) and rotary with its copies (2 of the query, key and value widths): the form that was fitted.
    A token's k copies in a mixture of experts are made, weighed, put back in order and summed: 4 more
    hidden-wide tensors each (integrations/moe.py ``grouped_mm_experts_forward``), which no run has fitted.
    """
    mlp = 3 * model.ffn if model.gated_mlp else 3 * model.ffn // 2
    if model.experts is not None and model.sparse(layer):
        experts = model.experts
        mlp = 3 * (experts.per_token * experts.width + experts.shared) + 4 * experts.per_token * model.hidden
    return 2 * (8 * model.hidden + mlp + 2 * (model.q_width + 2 * model.kv_width))
