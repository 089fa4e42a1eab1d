"""Eager attention with a linear bias on the scores (Press et al. 2021, arXiv 2108.12409).

transformers 5.24.0 ``models/bloom/modeling_bloom.py``, ``models/mpt/modeling_mpt.py`` and
``models/falcon/modeling_falcon.py``; Baichuan-13B follows the ``modeling_baichuan.py`` beside its weights.
"""

from __future__ import annotations

from finefit.step.attention import SCORES, softmax
from finefit.step.net import Net
from finefit.step.ops import Flops
from finefit.step.tape import Ref
from finefit.workload.dtypes import DType


def eager(net: Net, query: Ref, key: Ref, value: Ref, mask: Ref | None) -> Ref:
    """Scores of b·A·s² elements, softmax in fp32."""
    model, half = net.model, query.dtype
    if model.family == "bloom":  # heads are folded into the batch: copies of the views of the fused product
        query, key, value = (net.contiguous(x) for x in (query, key, value))
    scores = _product(net, query, key)
    if model.family == "mpt":
        scores = _mpt_bias(net, scores)
        masked = net.alias(scores)
    else:  # a variable of its own keeps the scores without the mask
        masked = _element(net, "add", scores, scores.dtype) if mask is not None else net.alias(scores)
    weights = net.dropout(net.cast(softmax(net, masked, DType.FP32), half), model.attention_dropout)
    flops = Flops("attention", model.q_width, SCORES)
    out = net.tape.op("bmm", [weights, value], model.q_width, half, saves=[weights, value], flops=flops)
    return net.contiguous(out)


def _product(net: Net, query: Ref, key: Ref) -> Ref:
    heads, flops = net.model.heads, Flops("attention", net.model.q_width, SCORES)
    return net.tape.op("bmm", [query, key], heads, query.dtype, symbols=SCORES, saves=[query, key], flops=flops)


def _mpt_bias(net: Net, scores: Ref) -> Ref:
    """``scores * scale + position_bias`` in fp32, because the bias is, then ``masked_fill``."""
    scores = net.scale(scores)
    scores = _element(net, "add", scores, DType.FP32)
    mask = net.tape.leaf(1, DType.BOOL, SCORES, "causal_mask")
    return net.tape.op("masked_fill", [scores], net.model.heads, DType.FP32, symbols=SCORES, saves=[mask])


def _element(net: Net, name: str, scores: Ref, dtype: DType) -> Ref:
    return net.tape.op(name, [scores], net.model.heads, dtype, symbols=SCORES, passes=dtype == scores.dtype)
