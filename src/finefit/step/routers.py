"""Routers of single families, and gpt-oss's experts with biases.

transformers 5.24.0 ``models/minimax_m2``, ``models/hy_v3``, ``models/gpt_oss`` ``modeling_*.py``. Each
router returns (logits, which the block holds, weights of the chosen experts, their indices).
"""

from __future__ import annotations

from finefit.step.net import Net
from finefit.step.size import Size
from finefit.step.tape import Ref
from finefit.workload.dtypes import DType
from finefit.workload.model import Experts

Routed = tuple[Ref, Ref, Ref]


def _gather(net: Net, scores: Ref, k: int) -> tuple[Ref, Ref]:
    """Scores of the chosen experts; the sum with the bias that only serves the choice goes at once."""
    tape = net.tape
    choice = tape.leaf(scores.numel, scores.dtype, scores.symbols, "add")
    chosen = tape.leaf(k, DType.INT64, scores.symbols, "topk_indices")
    del choice
    return tape.op("gather", [scores], k, scores.dtype, symbols=scores.symbols, saves=[chosen]), chosen


def minimax(net: Net, experts: Experts, x: Ref) -> Routed:
    """``MiniMaxM2TopKRouter``: sigmoid of the logits in fp32, weights divided in place by their sum."""
    tape, k = net.tape, experts.per_token
    logits = net.dense(x, f"{tape.path}.weight", experts.count)
    wide = net.cast(logits, DType.FP32)
    scores = tape.op("sigmoid", [wide], experts.count, DType.FP32, save_out=True)
    del wide
    top, chosen = _gather(net, scores, k)
    total = tape.op("sum", [top], 1, top.dtype, symbols=top.symbols)
    size = top.size
    weights = tape.op("div", [top, total], k, top.dtype, symbols=top.symbols, saves=[top, total], back=(size, size))
    return logits, weights, chosen


def hunyuan3(net: Net, experts: Experts, x: Ref) -> Routed:
    """``HYV3TopKRouter``: everything in fp32."""
    tape, k = net.tape, experts.per_token
    logits = net.dense(net.cast(x, DType.FP32), f"{tape.path}.weight", experts.count)
    scores = tape.op("sigmoid", [logits], experts.count, DType.FP32, save_out=True)
    top, chosen = _gather(net, scores, k)
    total = tape.op("sum", [top], 1, top.dtype, symbols=top.symbols)
    size = top.size
    weights = tape.op("div", [top, total], k, top.dtype, symbols=top.symbols, saves=[top, total], back=(size,))
    return logits, net.scale(weights), chosen


def lfm2(net: Net, experts: Experts, x: Ref) -> Routed:
    """``Lfm2MoeTopKRouter``: sigmoid in the compute dtype."""
    tape, k = net.tape, experts.per_token
    logits = net.dense(x, f"{tape.path}.weight", experts.count)
    scores = tape.op("sigmoid", [logits], experts.count, logits.dtype, save_out=True)
    top, chosen = _gather(net, scores, k)
    if experts.normalised:
        total = tape.op("sum", [top], 1, top.dtype, symbols=top.symbols)
        back = (top.size,)
        top = tape.op("div", [top, total], k, top.dtype, symbols=top.symbols, saves=[top, total], back=back)
    return logits, net.scale(top), chosen


def gpt_oss(net: Net, experts: Experts, x: Ref) -> Routed:
    """``GptOssTopKRouter``: the k largest logits, then softmax over those, all in the compute dtype."""
    tape, k = net.tape, experts.per_token
    logits = net.dense(x, f"{tape.path}.weight", experts.count, bias=f"{tape.path}.bias")
    chosen = tape.leaf(k, DType.INT64, logits.symbols, "topk_indices")
    top = tape.op("topk", [logits], k, logits.dtype, symbols=logits.symbols, saves=[chosen])
    return logits, tape.op("softmax", [top], k, top.dtype, save_out=True), chosen


def add_expert_bias(net: Net, out: Ref, name: str) -> Ref:
    """``out.add_(bias[expert_ids])``: a row of the bias for every copy of a token, which goes when added."""
    bias = net.tape.op(
        "index", [], out.numel, out.dtype, symbols=out.symbols, params=(name,) if net.trainable(name) else ()
    )
    return net.tape.add_into(out, bias)


def clamped_swiglu(net: Net, both: Ref) -> Ref:
    """``GptOssExperts._apply_gate``: neighbours are gate and up, both clamped; sigmoid, product, product."""
    tape, half = net.tape, both.numel // 2
    raw_gate, raw_up = tape.split(both, [half, half], "slice")
    gate = tape.op("clamp", [raw_gate], half, both.dtype, symbols=both.symbols, saves=[raw_gate])
    up = tape.op("clamp", [raw_up], half, both.dtype, symbols=both.symbols, saves=[raw_up])
    del raw_gate, raw_up
    scaled = net.scale(gate)
    squashed = tape.op("sigmoid", [scaled], half, both.dtype, symbols=both.symbols, save_out=True)
    del scaled
    glu = net.mul(gate, squashed)
    del squashed
    shifted = tape.op("add", [up], half, both.dtype, symbols=both.symbols, passes=True)
    return net.mul(shifted, glu)


def sink_attention(net: Net, query: Ref, key: Ref, value: Ref, mask: Ref | None, sinks: str) -> Ref:
    """gpt-oss's ``eager_attention_forward``: one more column of scores, learned, dropped after the softmax."""
    from finefit.step.attention import SCORES, half_flops, repeat_kv

    tape, heads, half = net.tape, net.model.heads, query.dtype
    wide = ("b", "s", "s+1")
    key, value = repeat_kv(net, key), repeat_kv(net, value)
    scores = tape.op("bmm", [query, key], heads, half, symbols=SCORES, saves=[query, key], flops=half_flops(net))
    scores = net.scale(scores)
    if mask is not None:
        scores = net.add(scores, mask)
    params = (sinks,) if net.trainable(sinks) else ()
    joined = tape.op("cat", [scores], heads, half, symbols=wide, passes=True, params=params)
    largest = tape.leaf(heads, DType.INT64, ("b", "s"), "max")
    full = Size(half.bytes, heads, wide)
    shifted = tape.op("sub", [joined], heads, half, symbols=wide, saves=[largest], back=(full,))
    del joined
    probs = tape.op("softmax", [shifted], heads, half, symbols=wide, save_out=True)
    del scores
    (weights,) = tape.split(probs, [heads], "slice")
    net.attended = net.alias(weights)
    out = tape.op(
        "bmm", [weights, value], net.model.out_width, half, symbols=("b", "s"), saves=[weights, value],
        flops=half_flops(net),
    )  # fmt: skip
    return net.contiguous(out)
