"""Falcon's attention: heads cut out of one fused product, a mask that is always made.

transformers 5.24.0 ``models/falcon/modeling_falcon.py``.
"""

from __future__ import annotations

from finefit.step import attention as kernels
from finefit.step.net import Net
from finefit.step.size import Size
from finefit.step.tape import Ref
from finefit.workload.dtypes import DType


def heads(net: Net, fused: Ref, new: bool) -> tuple[Ref, Ref, Ref]:
    """``_split_heads``: keys and values are taken by an index, which copies.

    The new architecture broadcasts them to all heads and flattens, which copies once more, the queries too.
    """
    model, tape = net.model, net.tape
    query, key, value = tape.split(fused, [model.q_width, model.kv_width, model.kv_width])
    if model.heads == model.kv_heads and not new:
        return query, key, value
    back = (Size(fused.dtype.bytes, fused.numel, fused.symbols),)  # index_put into zeros of the fused size
    key, value = (tape.op("index", [x], x.numel, x.dtype, symbols=x.symbols, back=back) for x in (key, value))
    if not new:
        return query, key, value
    return net.contiguous(query), kernels.repeat_kv(net, key), kernels.repeat_kv(net, value)


def sdpa(net: Net, query: Ref, key: Ref, value: Ref, mask: Ref) -> Ref:
    """A mask rules flash out; one key head for all queries rules out the memory-efficient kernel as well."""
    if net.autocast is not None:
        query, key, value = (net.cast(x, net.autocast) for x in (query, key, value))
    additive = net.alias(mask)
    if mask.dtype == DType.BOOL:
        additive = net.tape.op("where", [mask], 1, query.dtype, symbols=kernels.SCORES, needs_grad=False)
    if key.numel == query.numel:
        return kernels.efficient(net, query, key, value, additive)
    return net.contiguous(kernels.math(net, query, key, value))


def eager(net: Net, query: Ref, key: Ref, value: Ref, mask: Ref | None) -> Ref:
    """Scores divided in place, softmax in the compute dtype, no dropout."""
    tape, model, half = net.tape, net.model, query.dtype
    if key.numel != query.numel:
        key, value = kernels.repeat_kv(net, key), kernels.repeat_kv(net, value)
    flops = kernels.half_flops(net)
    scores = tape.op("bmm", [query, key], model.heads, half, symbols=kernels.SCORES, saves=[query, key], flops=flops)
    masked = tape.op("add", [scores], model.heads, half, symbols=kernels.SCORES, passes=True)
    weights = kernels.softmax(net, masked, half)
    del scores, masked
    out = tape.op("bmm", [weights, value], model.q_width, half, saves=[weights, value], flops=flops)
    return net.contiguous(out)
