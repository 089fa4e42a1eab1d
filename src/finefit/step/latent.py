"""Multi-head latent attention: queries, keys and values from low-rank vectors.

transformers 5.24.0 ``models/deepseek_v3/modeling_deepseek_v3.py`` (GLM-4.7-Flash alike),
``models/deepseek_v2/modeling_deepseek_v2.py`` and ``models/minicpm3/modeling_minicpm3.py``.
"""

from __future__ import annotations

from collections.abc import Callable

from finefit.step import attention as kernels
from finefit.step.linear import Linears
from finefit.step.net import Net
from finefit.step.tape import Ref
from finefit.workload.dtypes import DType
from finefit.workload.model import Latent

Norm = Callable[..., Ref]
COMPLEX_ROTARY = frozenset({"deepseek_v2"})  # families that rotate by complex numbers
HALVES = frozenset({"minicpm3"})  # families that rotate as Llama does


def project(
    net: Net, lin: Linears, norm: Norm, latent: Latent, x: Ref, cos: Ref | None, sin: Ref | None
) -> tuple[Ref, Ref, Ref]:
    """Queries and keys of A·(nope + rope), values of A·value elements a token."""
    tape, heads = net.tape, net.model.heads
    query = lin(x, "q_proj") if latent.query is None else lin(norm(lin(x, "q_a_proj"), "q_a_layernorm"), "q_b_proj")
    q_pass, q_rot = tape.split(query, [heads * latent.nope, heads * latent.rope])
    compressed = lin(x, "kv_a_proj_with_mqa")
    kv, k_rot = tape.split(compressed, [latent.key_value, latent.rope])
    kv = norm(kv, "kv_a_layernorm")
    if cos is not None and sin is not None:
        q_rot, k_rot = _rotate(net, q_rot, k_rot, cos, sin)
    states = tape.op("cat", [q_pass, q_rot], query.numel, query.dtype, symbols=x.symbols, passes=True)
    expanded = lin(kv, "kv_b_proj")
    k_nope, value = tape.split(expanded, [heads * latent.nope, heads * latent.value])
    # new_empty and two copies into it
    width = heads * (latent.nope + latent.rope)
    key = tape.op("copy", [k_nope, k_rot], width, expanded.dtype, symbols=x.symbols)
    return states, key, value


def _rotate(net: Net, query: Ref, key: Ref, cos: Ref, sin: Ref) -> tuple[Ref, Ref]:
    if net.model.family in HALVES:
        return kernels.rotary(net, query, key, cos, sin)
    turn = _complex if net.model.family in COMPLEX_ROTARY else _interleaved
    return turn(net, query, cos, sin), turn(net, key, cos, sin)


def _interleaved(net: Net, x: Ref, cos: Ref, sin: Ref) -> Ref:
    """``apply_rotary_pos_emb_interleave``: neighbours are paired, the halves joined at the end."""
    tape = net.tape
    even, odd = tape.split(x, [x.numel // 2, x.numel // 2], "slice")
    first = net.add(net.mul(even, cos), net.mul(odd, sin))
    second = net.add(net.mul(odd, cos), net.mul(even, sin))
    return tape.op("cat", [first, second], x.numel, x.dtype, symbols=x.symbols, passes=True)


def _complex(net: Net, x: Ref, table: Ref, _: Ref) -> Ref:
    """``apply_rotary_emb`` of DeepSeek-V2: pairs as complex numbers in fp32."""
    wide = net.cast(x, DType.FP32)
    turned = net.mul(wide, table)
    return net.cast(turned, x.dtype)
