"""Mamba 2 without its fused kernels.

transformers 5.24.0 ``models/nemotron_h/modeling_nemotron_h.py`` ``mamba2_chunk_scan``: what runs where mamba-ssm
and causal-conv1d are not installed. It works in fp32 on chunks and spreads B and C over all heads.
"""

from __future__ import annotations

from finefit.step.delta import causal_conv
from finefit.step.linear import Linears
from finefit.step.net import Net
from finefit.step.ops import Flops
from finefit.step.tape import TOKENS, Ref
from finefit.workload.dtypes import DType
from finefit.workload.model import Mamba2

WIDE = DType.FP32


def mamba2(net: Net, lin: Linears, dims: Mamba2, x: Ref) -> Ref:
    """``Mamba2Mixer.forward``."""
    tape, inner, spread = net.tape, dims.inner, dims.groups * dims.state
    projected = lin(x, "in_proj")
    gate, mixed, dt = tape.split(projected, [inner, inner + 2 * spread, dims.heads])
    mixed = causal_conv(net, mixed, dims.conv)
    hidden, b, c = tape.split(mixed, [inner, spread, spread])
    scanned = _scan(net, dims, hidden, dt, b, c)
    with tape.module("norm"):
        wide = net.cast(gate, WIDE)
        squashed = net.unary("silu", wide)
        del wide
        gated = net.mul(scanned, squashed)
        del squashed
        normed = _group_norm(net, gated, dims.groups)
    return lin(net.cast(normed, x.dtype), "out_proj")


def _group_norm(net: Net, x: Ref, groups: int) -> Ref:
    """Norm of each group in fp32, the scan's dtype, and so is the product with the weight."""
    tape = net.tape
    square = tape.op("pow", [x], x.numel, WIDE, saves=[x], back=(x.size, x.size))
    mean = tape.op("mean", [square], groups, WIDE)
    del square
    rstd = tape.op("rsqrt", [mean], groups, WIDE, save_out=True)
    normed = net.mul(x, rstd)
    del rstd
    return net.weigh(normed, f"{tape.path}.weight")


def _scan(net: Net, dims: Mamba2, hidden: Ref, dt: Ref, b: Ref, c: Ref) -> Ref:
    """``mamba2_chunk_scan``; a variable of it holds what a name still stands for at its end."""
    tape, heads, inner = net.tape, dims.heads, dims.inner
    rows = ("b", f"s/{dims.chunk}")
    square, spread = heads * dims.chunk, heads * dims.state
    state = heads * dims.head_dim * dims.state // dims.chunk
    trained = net.trainable(f"{tape.path}.D")
    shifted = tape.op("add", [dt], heads, dt.dtype, params=(f"{tape.path}.dt_bias",) if trained else (), passes=True)
    soft = tape.op("softplus", [shifted], heads, dt.dtype, saves=[shifted])
    del shifted
    step = tape.op("clamp", [soft], heads, dt.dtype, saves=[soft])
    del soft
    hidden = net.cast(hidden, WIDE)
    b, c = (tape.op("repeat_interleave", [net.cast(part, WIDE)], spread, WIDE) for part in (b, c))
    padded = _pad(net, hidden, rows)
    residual = tape.op(
        "mul", [padded], inner, WIDE, symbols=rows, saves=[padded] if trained else [],
        params=(f"{tape.path}.D",) if trained else (), back=(padded.size,) if trained else (), saves_weight=True,
    )  # fmt: skip
    del padded
    hidden = net.mul(hidden, net.cast(step, WIDE))
    a = tape.op(
        "mul", [net.cast(step, WIDE)], heads, WIDE, params=(f"{tape.path}.A_log",) if trained else (), saves_weight=True
    )
    hidden, a, b, c = (_pad(net, part, rows) for part in (hidden, a, b, c))
    total = tape.op("cumsum", [a], heads, WIDE, symbols=rows)
    spans = tape.op("masked_fill", [a], square, WIDE, symbols=rows, saves_weight=True)
    spans = tape.op("cumsum", [spans], square, WIDE, symbols=rows)
    spans = tape.op("masked_fill", [spans], square, WIDE, symbols=rows, saves_weight=True)
    decay = tape.op("exp", [spans], square, WIDE, symbols=rows, save_out=True)
    del spans

    def contract(left: Ref, right: Ref, numel: int, *copied: Ref, symbols: tuple[str, ...] = rows) -> Ref:
        """``einsum``: operands whose heads stand inside are copied heads first, and the copies saved."""
        kept = [net.contiguous(part) if part in copied else net.alias(part) for part in (left, right)]
        flops = Flops("linear", 2 * square * max(dims.state, dims.head_dim), TOKENS)
        return tape.op("bmm", kept, numel, WIDE, symbols=symbols, saves=kept, flops=flops)

    scores = contract(c, b, square, c, b)
    masked = net.mul(scores, decay)
    diagonal = contract(masked, hidden, inner, hidden)
    left = net.alias(total)
    last = tape.op(
        "exp",
        [tape.op("sub", [left], heads, WIDE, symbols=rows, passes=True)],
        heads,
        WIDE,
        symbols=rows,
        save_out=True,
    )
    decayed = net.mul(b, last)
    states = contract(decayed, hidden, state, decayed, hidden)
    ends, each = ("b", f"chunks+1/{dims.chunk}"), heads * dims.head_dim * dims.state
    states = tape.op("cat", [states], each, WIDE, symbols=ends, passes=True)
    carried = tape.op("bmm", [states], each, WIDE, symbols=ends, saves=[net.contiguous(states)])
    del states
    outward = tape.op("exp", [total], heads, WIDE, symbols=rows, save_out=True)
    (starts,) = tape.split(carried, [each], "slice")
    starts = tape.op("clone", [starts], state, WIDE, symbols=rows, passes=True)
    crossed = contract(c, starts, inner, c)
    del starts
    off = net.mul(crossed, outward)
    out = net.add(diagonal, off)
    out = net.contiguous(out)
    return net.add(out, residual)


def _pad(net: Net, x: Ref, rows: tuple[str, ...]) -> Ref:
    """``F.pad`` to whole chunks: a copy, even where nothing is missing."""
    return net.tape.op("pad", [x], x.numel, x.dtype, symbols=rows, passes=True)
