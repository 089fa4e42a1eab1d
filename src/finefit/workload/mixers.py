"""Parameters of what stands at the place of attention in some layers.

transformers 5.24.0 ``models/qwen3_next/modeling_qwen3_next.py``, ``models/qwen3_5/modeling_qwen3_5.py`` and
``models/nemotron_h/modeling_nemotron_h.py``.
"""

from __future__ import annotations

from finefit.workload.model import LinearAttention, Mamba2, Model

Tensors = list[tuple[str, tuple[int, ...], str]]


def mixer_tensors(model: Model, mixer: str) -> Tensors:
    """(name, shape, kind) of the tensors of a layer of that type; [] where it has attention."""
    if mixer == "linear" and model.linear is not None:
        return _gated_delta(model, model.linear)
    if mixer == "mamba2" and model.mamba2 is not None:
        return _mamba2(model, model.mamba2, "mixer" if model.family == "nemotron_h" else "mamba")
    if mixer == "conv":
        return _short_conv(model)
    return []


def _short_conv(model: Model) -> Tensors:
    """modeling_lfm2.py Lfm2ShortConv."""
    hidden = model.hidden
    out: Tensors = []
    for name, shape, kind in (
        ("conv", (hidden, 1, model.conv_width), "conv"),
        ("in_proj", (3 * hidden, hidden), "linear"),
        ("out_proj", (hidden, hidden), "linear"),
    ):
        out.append((f"conv.{name}.weight", shape, kind))
        if model.conv_bias:
            out.append((f"conv.{name}.bias", shape[:1], "conv" if name == "conv" else "bias"))
    return out


def _mamba2(model: Model, dims: Mamba2, at: str) -> Tensors:
    wide = dims.inner + 2 * dims.groups * dims.state
    out: Tensors = [(f"{at}.{name}", (dims.heads,), "state") for name in ("dt_bias", "A_log", "D")]
    out.append((f"{at}.conv1d.weight", (wide, 1, dims.conv), "conv"))
    if dims.conv_bias:
        out.append((f"{at}.conv1d.bias", (wide,), "conv"))
    for name, n_in, n_out in (
        ("in_proj", model.hidden, dims.inner + wide + dims.heads),
        ("out_proj", dims.inner, model.hidden),
    ):
        out.append((f"{at}.{name}.weight", (n_out, n_in), "linear"))
        if dims.bias:
            out.append((f"{at}.{name}.bias", (n_out,), "bias"))
    return [*out, (f"{at}.norm.weight", (dims.inner,), "norm")]


def _gated_delta(model: Model, dims: LinearAttention) -> Tensors:
    keys, values, heads = dims.key_heads * dims.key_dim, dims.value_heads * dims.value_dim, dims.value_heads
    joined = model.family == "qwen3_next"
    parts = (
        {"in_proj_qkvz": 2 * (keys + values), "in_proj_ba": 2 * heads}
        if joined
        else {"in_proj_qkv": 2 * keys + values, "in_proj_z": values, "in_proj_b": heads, "in_proj_a": heads}
    )
    out: Tensors = [("linear_attn.dt_bias", (heads,), "state"), ("linear_attn.A_log", (heads,), "state")]
    out.append(("linear_attn.conv1d.weight", (2 * keys + values, 1, dims.conv), "conv"))
    out += [(f"linear_attn.{name}.weight", (width, model.hidden), "linear") for name, width in parts.items()]
    out.append(("linear_attn.norm.weight", (dims.value_dim,), "norm"))
    return [*out, ("linear_attn.out_proj.weight", (model.hidden, values), "linear")]
