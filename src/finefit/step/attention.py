"""Rotary embedding and the attention kernels.

transformers 5.24.0 ``models/llama/modeling_llama.py`` and ``integrations/sdpa_attention.py``; kernels of
torch 2.13.0 ``aten/native/transformers/cuda`` (flash: flash_api.cpp, memory-efficient: attention.cu).
"""

from __future__ import annotations

from finefit.step.net import Net
from finefit.step.ops import Flops
from finefit.step.size import Size
from finefit.step.tape import TOKENS, Ref
from finefit.step.versions import hands_over_groups, lays_out_heads
from finefit.workload.dtypes import DType
from finefit.workload.parameters import DECODERS

SCORES = ("b", "s", "s")
WIDE_ROTARY = frozenset({"ernie4_5", "ernie4_5_moe", "cohere", "cohere2"})  # families that rotate in fp32


def rotate_half(net: Net, x: Ref) -> Ref:
    """``cat((-x2, x1))``: half a copy for the negation, in both directions a full one."""
    half = Size(x.dtype.bytes, x.numel // 2, x.symbols)
    return net.tape.op("cat", [x], x.numel, x.dtype, symbols=x.symbols, temps=(half,), back=(half, x.size))


def head_major(net: Net) -> bool:
    """Rotated heads are joined by ``cat``, which lays queries out head by head.

    Families that rotate part of a head do so, and Phi-3 always.
    """
    if net.model.family == "gptj":  # rotates before it puts the heads first
        return False
    return net.model.position == "rope" and (net.model.rotary_fraction < 1 or net.model.family == "phi3")


def rotary(net: Net, query: Ref, key: Ref, cos: Ref, sin: Ref) -> tuple[Ref, Ref]:
    """``apply_rotary_pos_emb`` over whole heads."""
    query_out = net.add(net.mul(query, cos), net.mul(rotate_half(net, query), sin))
    key_out = net.add(net.mul(key, cos), net.mul(rotate_half(net, key), sin))
    return query_out, key_out


def wide_rotary(net: Net, query: Ref, key: Ref, cos: Ref, sin: Ref) -> tuple[Ref, Ref]:
    """``apply_rotary_pos_emb`` of ERNIE 4.5 and Cohere: neighbours are paired, the products are fp32.

    ``stack((-x2, x1)).flatten()`` makes half a copy for the negation and a whole one for the result.
    """
    tape = net.tape
    if net.model.family.startswith("ernie"):
        cos = tape.leaf(net.model.head_dim, DType.FP32, ("s",), "repeat_interleave")
        sin = tape.leaf(net.model.head_dim, DType.FP32, ("s",), "repeat_interleave")
    outs = []
    for x in (query, key):
        wide = net.mul(net.cast(x, DType.FP32), cos)
        outs.append(net.add(wide, net.mul(net.cast(rotate_half(net, x), DType.FP32), sin)))
        del wide
    return net.cast(outs[0], query.dtype), net.cast(outs[1], key.dtype)


def partial_rotary(net: Net, query: Ref, key: Ref, cos: Ref, sin: Ref, fraction: float) -> tuple[Ref, Ref]:
    """GPT-NeoX and Phi rotate the first part of each head and join it with the rest."""
    outs = []
    for x in (query, key):
        turned = int(x.numel * fraction)
        rot, rest = net.tape.split(x, [turned, x.numel - turned], "slice")
        rot = net.add(net.mul(rot, cos), net.mul(rotate_half(net, rot), sin))
        outs.append(net.tape.op("cat", [rot, rest], x.numel, rot.dtype, symbols=x.symbols, passes=True))
    return outs[0], outs[1]


def repeat_kv(net: Net, x: Ref) -> Ref:
    """``repeat_kv``: keys or values copied to every query head; the backward sums a full-size gradient."""
    groups = net.model.heads // net.model.kv_heads
    if groups == 1:
        return net.alias(x)
    if net.model.kv_heads == 1:  # the one head, repeated without a copy
        return net.tape.split(x, [x.numel * groups], "expand")[0]
    return net.tape.op("repeat_kv", [x], x.numel * groups, x.dtype, symbols=x.symbols)


def _flops(net: Net) -> Flops:
    """QKᵀ and AV, the causal half: 2·T·s·A·D."""
    return Flops("attention", 2 * net.model.q_width, SCORES)


def flash(net: Net, query: Ref, key: Ref, value: Ref, dropout: float = 0.0, by_head: bool = False) -> Ref:
    """FlashAttention-2: saves q, k, v, out and the log-sum-exp in fp32.

    Its backward allocates, inside the kernel's wrapper, an fp32 dq accumulator padded to blocks of 128
    rows and 32 columns, the row sums, and for grouped queries dk and dv over all heads. The output takes the
    layout of the query, so that joining the heads of one laid out head by head (``by_head``) needs a copy.
    """
    model, half = net.model, query.dtype
    heads, d32 = model.heads, -(-model.head_dim // 32) * 32
    inner = [Size(4, heads * d32, ("b", "s128")), Size(4, heads, ("b", "s128"))]
    if key.numel != query.numel:
        inner += [Size(half.bytes, heads * model.head_dim, TOKENS)] * 2
    lse = net.tape.op("logsumexp", [], heads, DType.FP32, needs_grad=False)
    out = net.tape.op(
        "flash_attention",
        [query, key, value],
        model.out_width,
        half,
        saves=[query, key, value, lse],
        save_out=True,
        back_assumed=tuple(inner),
        flops=_flops(net),
    )
    return net.contiguous(out) if by_head or head_major(net) else out


def efficient(net: Net, query: Ref, key: Ref, value: Ref, mask: Ref | None) -> Ref:
    """Memory-efficient kernel, taken when a mask is passed: log-sum-exp rows rounded to 32.

    Its output lies token by token whatever the layout of the query (attention.cu ``_efficient_attention_forward``).
    """
    saves = [query, key, value] + ([mask] if mask is not None else [])
    lse = net.tape.op("logsumexp", [], net.model.heads, DType.FP32, symbols=("b", "s32"), needs_grad=False)
    return net.tape.op(
        "efficient_attention",
        [query, key, value],
        net.model.out_width,
        query.dtype,
        saves=[*saves, lse],
        save_out=True,
        flops=_flops(net),
    )


def math(net: Net, query: Ref, key: Ref, value: Ref) -> Ref:
    """The composite kernel (aten/native/transformers/attention.cpp): scores of b·A·s² elements in fp32.

    Inside ``_safe_softmax``: a boolean of the scores' shape and the selected result. 16-bit inputs are widened,
    and scores as well as output are narrowed again at the end.
    """
    tape, heads, half, dtype = net.tape, net.model.heads, query.dtype, DType.FP32
    query, key, value = (net.cast(x, dtype) for x in (query, key, value))
    widened = (query, key, value)  # variables of the kernel's wrapper hold them to its end
    query = net.scale(query)
    key, value = net.scale(repeat_kv(net, key)), repeat_kv(net, value)
    scores = tape.op("bmm", [query, key], heads, dtype, symbols=SCORES, saves=[query, key], flops=half_flops(net))
    inner = (Size(1, heads, SCORES), Size(dtype.bytes, heads, SCORES))
    weights = tape.op("safe_softmax", [scores], heads, dtype, symbols=SCORES, save_out=True, temps=inner)
    del scores
    out = tape.op("bmm", [weights, value], net.model.out_width, dtype, saves=[weights, value], flops=half_flops(net))
    del widened
    if half == dtype:
        return out
    narrow = (Size(half.bytes, heads, SCORES),)
    return tape.op("to", [out], out.numel, half, symbols=out.symbols, temps=narrow)


def sdpa(net: Net, query: Ref, key: Ref, value: Ref, mask: Ref | None, dropout: float) -> Ref:
    """``sdpa_attention_forward`` and the kernel CUDA chooses for it.

    Half precision without a mask: flash. With a mask keys and values are expanded to all heads first, and
    a boolean mask becomes an additive one in the compute dtype, once a layer, and is saved. fp32 has no
    flash kernel, and the memory-efficient one takes no grouped heads, so those fall to the math kernel.
    """
    version = net.recipe.stack.get("transformers")
    grouped = net.model.heads != net.model.kv_heads
    expands = mask is not None or not hands_over_groups(version)
    if expands:
        key, value = repeat_kv(net, key), repeat_kv(net, value)
    copies = lays_out_heads(version, mask is not None)
    if copies:  # those that were expanded or rotated by parts lie so already
        query = query if head_major(net) else net.contiguous(query)
        key = key if head_major(net) or (grouped and expands) else net.contiguous(key)
        value = value if grouped and expands else net.contiguous(value)
    if net.autocast is not None:  # on autocast's cast list
        query, key, value = (net.cast(x, net.autocast) for x in (query, key, value))
    narrow = net.model.latent is None or net.model.latent.value == net.model.head_dim  # flash has one width for all
    if mask is None and query.dtype != DType.FP32 and net.model.head_dim <= 256 and narrow:
        return flash(net, query, key, value, dropout, copies)
    if grouped and not expands:
        return math(net, query, key, value)
    additive = None
    if mask is not None:
        additive = net.alias(mask)
        if mask.dtype == DType.BOOL:
            additive = net.tape.op("where", [mask], 1, query.dtype, symbols=("b", "s", "s16"), needs_grad=False)
    return efficient(net, query, key, value, additive)


def wide_eager(net: Net, query: Ref, key: Ref, value: Ref, mask: Ref | None, dropout: float) -> Ref:
    """GPT-Neo's ``_attn``: queries, keys and scores in fp32, its own causal mask besides the library's."""
    tape, heads, half = net.tape, net.model.heads, value.dtype
    query, key = net.cast(query, DType.FP32), net.cast(key, DType.FP32)
    scores = tape.op("bmm", [query, key], heads, DType.FP32, symbols=SCORES, saves=[query, key], flops=half_flops(net))
    scores = tape.op("where", [scores], heads, DType.FP32, symbols=SCORES, saves_weight=True)  # a view of the buffer
    if mask is not None:
        scores = tape.op("add", [scores], heads, DType.FP32, symbols=SCORES, passes=True)
    weights = softmax(net, scores, DType.FP32)
    del scores
    weights = net.dropout(net.cast(weights, half), dropout)
    out = tape.op("bmm", [weights, value], net.model.q_width, half, saves=[weights, value], flops=half_flops(net))
    return net.contiguous(out)


def half_flops(net: Net) -> Flops:
    """One of the two products of the scores."""
    return Flops("attention", net.model.q_width, SCORES)


def softmax(net: Net, scores: Ref, dtype: DType) -> Ref:
    """``F.softmax(scores, dtype=dtype)``: a copy in that dtype first, except from fp16 to fp32, which one kernel does.

    torch 2.13.0 aten/native/SoftMax.cpp ``softmax``.
    """
    wide = net.alias(scores) if scores.dtype == DType.FP16 and dtype == DType.FP32 else net.cast(scores, dtype)
    return net.tape.op("softmax", [wide], scores.numel, dtype, symbols=SCORES, save_out=True)


def eager(net: Net, query: Ref, key: Ref, value: Ref, mask: Ref | None, dropout: float, softcap: bool = False) -> Ref:
    """``eager_attention_forward``: scores of b·A·s² elements, softmax in fp32."""
    heads = net.model.heads
    grouped = heads != net.model.kv_heads
    if net.recipe.rows > 1:
        # matmul joins rows and heads into one side, which copies what lies token by token
        if not head_major(net):
            query = net.contiguous(query)
            key = key if grouped else net.contiguous(key)
        value = value if grouped else net.contiguous(value)
    key, value = repeat_kv(net, key), repeat_kv(net, value)
    tape, half = net.tape, query.dtype
    scores = tape.op(
        "bmm",
        [query, key],
        heads,
        half,
        symbols=SCORES,
        saves=[query, key],
        flops=half_flops(net),
    )
    scores = net.scale(scores)
    if softcap:
        scores = net.scale(scores)
        scores = tape.op("tanh", [scores], heads, scores.dtype, symbols=SCORES, save_out=True)
        scores = net.scale(scores)
    if mask is not None:
        scores = net.add(scores, mask)
    # GPT-2's softmax and that of encoders keep the dtype, but for ModernBERT's
    keeps = net.model.family == "gpt2" or (net.model.head not in DECODERS and net.model.family != "modernbert")
    wide = scores.dtype if keeps else DType.FP32
    weights = net.cast(softmax(net, scores, wide), half)
    del scores
    weights = net.dropout(weights, dropout)
    net.attended = net.alias(weights)
    out = tape.op(
        "bmm",
        [weights, value],
        net.model.out_width,
        half,
        saves=[weights, value],
        flops=half_flops(net),
    )
    return net.contiguous(out)
