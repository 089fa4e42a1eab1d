"""The language-model head and the loss: often the largest tensors of a step.

transformers 5.24.0 ``loss/loss_utils.py`` (full), trl 1.16.0 ``kernels/chunked_logprob.py`` (chunked),
linkedin/Liger-Kernel 0.8 ``ops/fused_linear_cross_entropy.py`` (fused_linear).
"""

from __future__ import annotations

from finefit.step.net import Net
from finefit.step.ops import Flops
from finefit.step.size import Size
from finefit.step.tape import Ref
from finefit.step.versions import LossCode, loss_code
from finefit.workload.dtypes import DType


def causal_lm_loss(net: Net, logits: Ref, code: LossCode) -> Ref:
    """Cross-entropy on shifted labels; at once 12·T·V bytes in its backward where logits are fp32."""
    tape, vocab = net.tape, net.model.vocab
    # labels padded by one and shifted, or shifted alone: int64 copies
    padded = tape.leaf(1, DType.INT64, name="pad")
    shifted = tape.leaf(1, DType.INT64, name="contiguous")
    del padded
    logits = net.cast(logits, DType.FP32, category="logits") if code.upcast else logits
    source = net.alias(logits)
    if code.shift_copy and net.recipe.rows == 1:
        (source,) = tape.split(logits, [vocab], "slice")  # one row without its last token lies together
    elif code.shift_copy:
        # logits[..., :-1, :].contiguous(); the backward of the slice writes into zeros of full size
        source = tape.op("contiguous", [logits], vocab, logits.dtype, category="logits")
    # cross_entropy names its input's dtype to log_softmax, so that autocast casts the result, for nll_loss, instead
    # (torch 2.13.0 LossNLL.cpp cross_entropy_loss_prob, autocast_mode.h fp32_set_opt_dtype)
    logprobs = tape.op("log_softmax", [source], vocab, source.dtype, save_out=True, category="logits")
    del source
    if net.autocast is not None:
        logprobs = net.cast(logprobs, DType.FP32, category="logits")
    return tape.op("nll_loss", [logprobs], 1, logprobs.dtype, symbols=(), saves=[logprobs, shifted], category="logits")


def full_loss(net: Net, hidden: Ref, head: str, bias: str | None) -> tuple[Ref, Ref]:
    """Head, then loss on all logits; returns (loss, logits), which the model's output object holds."""
    tape = net.tape
    code = loss_code(net.model.family, net.recipe.stack.get("transformers"))
    if net.model.family in ("minicpm", "minicpm3"):
        hidden = net.scale(hidden)  # hidden_size / dim_model_base
    logits = net.dense(hidden, head, net.model.vocab, bias=bias, kind="head")
    if net.model.family in ("cohere", "cohere2"):
        logits = net.scale(logits)  # logit_scale
    if net.model.family in ("granite", "granitemoe", "granitemoehybrid"):
        logits = net.scale(logits)  # logits_scaling
    if net.model.final_softcap:
        logits = net.scale(logits)
        logits = tape.op("tanh", [logits], logits.numel, logits.dtype, save_out=True, category="logits")
        logits = net.scale(logits)
    if code.model_upcasts:
        logits = net.cast(logits, DType.FP32, category="logits")
    return causal_lm_loss(net, net.alias(logits), code), logits


def chunked_loss(net: Net, hidden: Ref, head: str) -> Ref:
    """TRL's fused head: logits exist one tile of min(T, 4096) × 32,768 at a time.

    Backward keeps an fp32 gradient of the hidden states and, where the head is trained, of its weight.
    """
    tape, model = net.tape, net.model
    trainable = net.trainable(head)
    dtype = hidden.dtype if net.autocast is None else net.autocast
    width = min(model.vocab, 32768)
    held = [Size(dtype.bytes, width, ("tile",))]  # mm_buf
    if net.weight_dtype(head) != dtype:
        held.append(Size(dtype.bytes, width * model.hidden))  # weight[start:end].to(compute_dtype)
    back = [*held, Size(4, model.hidden, ("b", "s"))]
    if trainable:
        back.append(Size(4, model.vocab * model.hidden))
    return tape.op(
        "chunked_logprob",
        [hidden],
        1,
        DType.FP32,
        symbols=("b", "s"),
        saves=[hidden],
        params=(head,) if trainable else (),
        temps=tuple(held),
        back=tuple(back),
        flops=Flops("head", 2 * model.hidden * model.vocab),
        category="logits",
    )


def fused_linear_loss(net: Net, hidden: Ref, head: str) -> Ref:
    """Liger: gradients of hidden states and weight are made in the forward, chunk by chunk, and kept."""
    tape, model = net.tape, net.model
    trainable = net.trainable(head) and tape.records
    half = hidden.dtype if net.autocast is None else net.autocast
    rows = f"chunk/{-(-model.vocab // model.hidden)}"
    chunk = Size(half.bytes, model.vocab, (rows,))
    wide = Size(4, model.vocab, (rows,))
    grad_hidden = tape.op("grad_input", [], model.hidden, hidden.dtype, needs_grad=False, category="logits")
    saves = [grad_hidden]
    if trainable:
        weight_dtype = net.weight_dtype(head)
        saves.append(
            tape.op(
                "grad_weight",
                [],
                model.vocab * model.hidden,
                weight_dtype,
                symbols=(),
                needs_grad=False,
                category="gradients",
            )
        )
    return tape.op(
        "fused_linear_cross_entropy",
        [hidden],
        1,
        DType.FP32,
        symbols=(),
        saves=saves,
        params=(head,) if trainable else (),
        temps=(chunk, wide),
        flops=Flops("head", 2 * model.hidden * model.vocab),
        category="logits",
    )
