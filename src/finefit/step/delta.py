"""Gated delta net: the linear attention of Qwen3-Next and Qwen3.5, without its fused kernels.

transformers 5.24.0 ``models/qwen3_5/modeling_qwen3_5.py`` and ``models/qwen3_next/modeling_qwen3_next.py``:
``torch_chunk_gated_delta_rule`` is what runs where flash-linear-attention is not installed. It works in fp32 on
chunks of 64 tokens and keeps far more than the kernel would.
"""

from __future__ import annotations

from finefit.step.linear import Linears
from finefit.step.net import Net
from finefit.step.ops import Flops
from finefit.step.size import Size
from finefit.step.tape import TOKENS, Ref
from finefit.workload.dtypes import DType
from finefit.workload.model import LinearAttention

CHUNK = 64
PADDED = ("b", "s64")
WIDE = DType.FP32


def gated_delta_net(net: Net, lin: Linears, dims: LinearAttention, x: Ref) -> Ref:
    """``GatedDeltaNet.forward``."""
    keys, values = dims.key_heads * dims.key_dim, dims.value_heads * dims.value_dim
    if net.model.family == "qwen3_next":
        mixed, z, b, a = _joined(net, lin, dims, x, keys, values)
    else:
        mixed = lin(x, "in_proj_qkv")
        z, b, a = lin(x, "in_proj_z"), lin(x, "in_proj_b"), lin(x, "in_proj_a")
    mixed = causal_conv(net, mixed, dims.conv)
    query, key, value = net.tape.split(mixed, [keys, keys, values])
    beta = net.tape.op("sigmoid", [b], b.numel, b.dtype, symbols=b.symbols, save_out=True)
    decay = _decay(net, a)
    out = _chunked(net, dims, query, key, value, beta, decay)
    out = _gated_norm(net, out, z, dims.value_heads)
    return lin(out, "out_proj")


def _joined(net: Net, lin: Linears, dims: LinearAttention, x: Ref, keys: int, values: int) -> tuple[Ref, Ref, Ref, Ref]:
    """Qwen3-Next: one matrix for q, k, v and z, one for b and a; parts of each head are cut out and copied."""
    tape = net.tape
    both, small = lin(x, "in_proj_qkvz"), lin(x, "in_proj_ba")
    query, key, value, z = tape.split(both, [keys, keys, values, values])
    b, a = tape.split(small, [dims.value_heads, dims.value_heads])
    value, z, b, a, query, key = (net.contiguous(part) for part in (value, z, b, a, query, key))
    return tape.op("cat", [query, key, value], 2 * keys + values, x.dtype, passes=True), z, b, a


def causal_conv(net: Net, x: Ref, kernel: int, *, name: str = "conv1d", activated: bool = True) -> Ref:
    """``causal_conv1d_fn`` in plain torch: a depthwise convolution over padded rows, cut to length, then SiLU."""
    tape = net.tape
    names = (f"{tape.path}.{name}.weight", f"{tape.path}.{name}.bias")
    params = tuple(p for p in names if p in tape.params and net.trainable(p))
    out = tape.op(
        "conv1d", [x], x.numel, x.dtype, symbols=("b", f"s+{kernel - 1}"), saves=[x], params=params,
        saves_weight=x.needs_grad,
    )  # fmt: skip
    (cut,) = tape.split(out, [x.numel], "slice")
    if not activated:
        return cut
    return tape.op("silu", [cut], x.numel, x.dtype, saves=[out])


def short_conv(net: Net, lin: Linears, kernel: int, x: Ref) -> Ref:
    """``Lfm2ShortConv.forward`` (models/lfm2/modeling_lfm2.py): two gates around a convolution without activation."""
    parts = net.tape.split(lin(x, "in_proj"), [x.numel] * 3, "chunk")
    gated = net.mul(parts[0], parts[2])
    mixed = causal_conv(net, gated, kernel, name="conv", activated=False)
    out = net.mul(parts[1], mixed)
    return lin(net.contiguous(out), "out_proj")


def _decay(net: Net, a: Ref) -> Ref:
    """``-exp(A_log) * softplus(a + dt_bias)`` in fp32."""
    tape = net.tape
    params = tuple(p for p in (f"{tape.path}.dt_bias", f"{tape.path}.A_log") if net.trainable(p))
    shifted = tape.op("add", [net.cast(a, WIDE)], a.numel, WIDE, symbols=a.symbols, params=params[:1], passes=True)
    soft = tape.op("softplus", [shifted], a.numel, WIDE, symbols=a.symbols, saves=[shifted])
    return tape.op("mul", [soft], a.numel, WIDE, symbols=a.symbols, saves=[soft], params=params[1:])


def _l2norm(net: Net, x: Ref, heads: int) -> Ref:
    """``x * rsqrt((x * x).sum() + eps)``."""
    tape = net.tape
    square = tape.op("mul", [x], x.numel, WIDE, saves=[x], back=(x.size,))
    total = tape.op("sum", [square], heads, WIDE)
    del square
    inverse = tape.op("rsqrt", [total], heads, WIDE, save_out=True)
    return net.mul(x, inverse)


def _pad(net: Net, x: Ref) -> Ref:
    """``F.pad`` to whole chunks: a copy, even where nothing is missing."""
    return net.tape.op("pad", [x], x.numel, x.dtype, symbols=PADDED, passes=True)


def _chunked(net: Net, dims: LinearAttention, query: Ref, key: Ref, value: Ref, beta: Ref, decay: Ref) -> Ref:
    """``torch_chunk_gated_delta_rule``."""
    tape, heads = net.tape, dims.value_heads
    k_width, v_width, square = heads * dims.key_dim, heads * dims.value_dim, heads * CHUNK
    initial = query.dtype
    if dims.key_heads != heads:
        query, key = (tape.op("repeat_interleave", [x], k_width, x.dtype) for x in (query, key))
    # fp32 needs no copy here and stays token by token; then every product of a head copies its operands
    strided = initial == WIDE
    query, key, value, beta, decay = (net.cast(x, WIDE) for x in (query, key, value, beta, decay))
    query, key = _l2norm(net, query, heads), _l2norm(net, key, heads)
    query = net.scale(query)
    query, key, value = (_pad(net, x) for x in (query, key, value))
    beta, decay = (_pad(net, x) for x in (beta, decay))
    v_beta, k_beta = net.mul(value, beta), net.mul(key, beta)
    cumulative = tape.op("cumsum", [decay], heads, WIDE, symbols=PADDED)
    pair = tape.op("sub", [cumulative], square, WIDE, symbols=PADDED)
    pair = tape.op("masked_fill", [pair], square, WIDE, symbols=PADDED, saves_weight=True)
    pair = tape.op("exp", [pair], square, WIDE, symbols=PADDED, save_out=True)
    system = net.mul(_scores(net, k_beta, key, dims, strided), pair)
    intra = net.mul(_scores(net, query, key, dims, strided), pair)
    decayed = net.mul(k_beta, _exp(net, cumulative))
    new_values = _solve(net, system, v_beta)
    k_cumdecay = _solve(net, system, decayed)
    query = net.mul(query, _exp(net, cumulative))
    left = tape.op("sub", [cumulative], heads, WIDE, symbols=PADDED, passes=True)
    key = net.mul(key, _exp(net, left))
    del left
    states = tape.op(
        "states", [], heads * dims.key_dim * dims.value_dim // CHUNK, WIDE, symbols=PADDED, needs_grad=False
    )
    v_new = tape.op("v_new", [], v_width, WIDE, symbols=PADDED, needs_grad=False)
    whole = Size(4, max(square, k_width, v_width), PADDED)
    core = tape.op(
        "chunks",
        [new_values, k_cumdecay, query, intra, key],
        v_width,
        WIDE,
        symbols=PADDED,
        saves=[k_cumdecay, query, intra, key, states, v_new],
        back=(whole, Size(4, v_width, PADDED)),
        flops=Flops("linear", 4 * (k_width + v_width) * CHUNK, TOKENS),
    )
    return tape.op("to", [core], v_width, initial)


def _exp(net: Net, x: Ref) -> Ref:
    return net.tape.op("exp", [x], x.numel, WIDE, symbols=x.symbols, save_out=True)


def _scores(net: Net, left: Ref, right: Ref, dims: LinearAttention, strided: bool) -> Ref:
    if strided:
        left, right = net.contiguous(left), net.contiguous(right)
    flops = Flops("linear", 2 * CHUNK * dims.value_heads * dims.key_dim, TOKENS)
    width = dims.value_heads * CHUNK
    return net.tape.op("bmm", [left, right], width, WIDE, symbols=PADDED, saves=[left, right], flops=flops)


def _solve(net: Net, system: Ref, right: Ref) -> Ref:
    """``solve_triangular``: the solution is kept for the gradient of the system."""
    return net.tape.op(
        "solve_triangular", [system, right], right.numel, WIDE, symbols=PADDED, saves=[system], save_out=True,
        back=(system.size,),
    )  # fmt: skip


def _gated_norm(net: Net, x: Ref, gate: Ref, heads: int) -> Ref:
    """``RMSNormGated``: norm of each head, then the product with SiLU of the gate in fp32."""
    with net.tape.module("norm"):
        normed = net.rms_norm(x, f"{net.tape.path}.weight", width=x.numel // heads)
        wide = net.cast(gate, WIDE)
        squashed = net.unary("silu", wide)
        del wide
        out = net.mul(normed, squashed)
        del squashed, normed
        return net.cast(out, x.dtype)
