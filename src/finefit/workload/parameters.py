"""Parameter tensors of a model, from its dimensions alone.

Letters as in ``model``: H hidden, F feed-forward width, V vocabulary, A heads, K key/value heads,
D head dimension, E experts, I width of one. Layers come in a few kinds (``layer_kinds``): those with an
ordinary MLP among those with experts, those that differ in width or in what stands at the place of attention.
"""

from __future__ import annotations

from finefit.errors import InputError
from finefit.workload import encoder, seq2seq
from finefit.workload.families import Layout, layout
from finefit.workload.mixers import mixer_tensors
from finefit.workload.model import Experts, Latent, Model
from finefit.workload.parameter import Parameter as Parameter

DECODERS = frozenset({"lm", "embedding"})  # heads of decoders; others are those of encoders


def embedding_parameters(model: Model) -> tuple[Parameter, ...]:
    """Token embedding (V, H), a learned position table (P, H) and a norm after them, where there are any."""
    if model.head == "seq2seq":
        return seq2seq.embedding_parameters(model)
    if model.head not in DECODERS:
        return encoder.embedding_parameters(model)
    names = layout(model.family)
    out = [Parameter(f"{names.embedding}.weight", (model.vocab, model.hidden), "embedding")]
    if model.position == "learned":
        out.append(Parameter(f"{names.position}.weight", (model.max_position, model.hidden), "position"))
    if model.embedding_norm:
        out += _norm(model, names.embedding_norm, (model.hidden,))
    return tuple(out)


def layer_parameters(model: Model, index: int = 0) -> tuple[Parameter, ...]:
    """Tensors of decoder layer ``index``: attention, MLP, norms.

    Raises:
        InputError: no such layer.
        NotModelled: the family has no known layout.
    """
    if not 0 <= index < model.layers:
        raise InputError(f"{model.name} has {model.layers} layers, there is no layer {index}")
    if model.head == "seq2seq":
        return seq2seq.layer_parameters(model, index)
    names = layout(model.family)
    model = model.in_layer(index)
    mixer = model.layer_types[index] if index < len(model.layer_types) else "full"
    if model.family == "nemotron_h":
        return tuple(_one_mixer(model, names, mixer))
    out = mixer_parameters(model, mixer) or _attention(model, names)
    out += _mixture(model, names) if model.sparse(index) else _mlp(model, names)
    norms = layer_norms(model)
    if model.family == "modernbert" and index == 0:  # ModernBertEncoderLayer: the embedding has a norm already
        norms = norms[1:]
    for norm in norms:
        out += _norm(model, norm, (model.hidden,))
    return tuple(out)


def _one_mixer(model: Model, names: Layout, mixer: str) -> list[Parameter]:
    """Nemotron-H: a layer is one norm and one mixer, be it Mamba 2, attention, an MLP or a mixture of experts."""
    found = mixer_parameters(model, mixer)
    if mixer == "full":
        found = _attention(model, names)
    elif mixer == "mlp":
        found = _mlp(model, names)
    elif mixer == "moe":
        found = _mixture(model, names)
    return found + _norm(model, names.norms[0], (model.hidden,))


def mixer_parameters(model: Model, mixer: str) -> list[Parameter]:
    """Tensors of a layer without attention; [] for one with it."""
    return [Parameter(*tensor) for tensor in mixer_tensors(model, mixer)]


def layer_norms(model: Model) -> tuple[str, ...]:
    """Paths of the hidden-wide norms of a layer, in order of use."""
    paths = layout(model.family).norms
    if model.family == "falcon" and model.parallel_block and not model.shared_norm:
        return ("ln_attn", "ln_mlp")  # modeling_falcon.py FalconDecoderLayer
    return paths[:1] if model.shared_norm else paths


def layer_kinds(model: Model) -> tuple[tuple[int, int], ...]:
    """Layers that hold the same tensors: (index of the first, how many), in order of the first."""
    firsts: dict[tuple[object, ...], int] = {}
    counts: dict[int, int] = {}
    for index in range(model.layers):
        first = firsts.setdefault(model.kind(index), index)
        counts[first] = counts.get(first, 0) + 1
    return tuple(counts.items())


def layers_numel(model: Model, *kinds: str) -> int:
    """Elements of all layers together, of tensors of the given kinds or of all."""
    return sum(
        count * sum(p.numel for p in layer_parameters(model, first) if not kinds or p.kind in kinds)
        for first, count in layer_kinds(model)
    )


def final_parameters(model: Model) -> tuple[Parameter, ...]:
    """The norm before the head."""
    if model.head == "seq2seq":
        return seq2seq.final_parameters(model)
    if model.head not in DECODERS:
        return encoder.final_parameters(model)
    return tuple(_norm(model, layout(model.family).final_norm, (model.hidden,)))


def head_parameters(model: Model) -> tuple[Parameter, ...]:
    """The language-model head (V, H) and its bias; () where it is the embedding itself."""
    if model.head == "seq2seq":
        return seq2seq.head_parameters(model)
    if model.head == "embedding":
        return ()
    if model.head not in DECODERS:
        return encoder.head_parameters(model)
    names = layout(model.family)
    out = [] if model.tied else [Parameter(f"{names.head}.weight", (model.vocab, model.hidden), "head")]
    if model.head_bias:
        out.append(Parameter(f"{names.head}.bias", (model.vocab,), "bias"))
    return tuple(out)


def parameter_count(model: Model) -> int:
    """Number of parameters, a tied head counted once."""
    outside = (*embedding_parameters(model), *final_parameters(model), *head_parameters(model))
    return sum(p.numel for p in outside) + layers_numel(model) + _tower_numel(model)


def active_count(model: Model) -> int:
    """Parameters that work on one token: all but the routed experts it does not visit."""
    if model.experts is None:
        return parameter_count(model)
    return parameter_count(model) - routed_numel(model) + routed_numel(model, model.experts.per_token)


def routed_numel(model: Model, visited: int | None = None) -> int:
    """Elements of the routed experts of all layers, or of so many of them in each layer."""
    if model.experts is None:
        return 0
    sparse = sum(count for first, count in layer_kinds(model) if model.sparse(first))
    each = (3 if model.gated_mlp else 2) * (model.experts.latent or model.hidden) * model.experts.width
    if model.family == "gpt_oss":  # its experts have biases
        each += 2 * model.experts.width + model.hidden
    return sparse * each * (model.experts.count if visited is None else min(visited, model.experts.count))


def quantised_numel(model: Model) -> int:
    """Elements bitsandbytes stores in 4 or 8 bits: the matrices of the layers.

    transformers 5.24.0 ``integrations/bitsandbytes.py`` replaces ``nn.Linear`` and ``Conv1D``; the
    output head and what is tied to it stay as they are, and so do embeddings, norms and biases, and of a
    mixture of experts the router and the experts where they are 3-D tensors.
    """
    return layers_numel(model, "linear") + _tower_numel(model, "linear")


def _tower_numel(model: Model, *kinds: str) -> int:
    if model.tower is None:
        return 0
    from finefit.workload.vision import tower_numel  # it lists a tower's layers with the functions of this module

    return tower_numel(model.tower, *kinds)


def _linear(model: Model, names: Layout, path: str, n_in: int, n_out: int, *, bias: bool) -> list[Parameter]:
    shape = (n_in, n_out) if names.conv1d else (n_out, n_in)
    out = [Parameter(f"{path}.weight", shape, "linear")]
    if bias:
        out.append(Parameter(f"{path}.bias", (n_out,), "bias"))
    return out


def _norm(model: Model, path: str, shape: tuple[int, ...]) -> list[Parameter]:
    if not model.norm_weight:
        return []
    out = [Parameter(f"{path}.weight", shape, "norm")]
    if model.norm == "layer" and model.norm_bias:
        out.append(Parameter(f"{path}.bias", shape, "norm"))
    return out


def _latent_attention(model: Model, names: Layout, latent: Latent) -> list[Parameter]:
    """Multi-head latent attention; names are the same in every family (modeling_deepseek_v3.py)."""
    at, width, bias = names.attention, model.q_width, model.qkv_bias
    if latent.query is None:
        out = _linear(model, names, f"{at}.q_proj", model.hidden, width, bias=False)
    else:
        out = _linear(model, names, f"{at}.q_a_proj", model.hidden, latent.query, bias=bias)
        out += _norm(model, f"{at}.q_a_layernorm", (latent.query,))
        out += _linear(model, names, f"{at}.q_b_proj", latent.query, width, bias=False)
    compressed = latent.key_value + latent.rope
    out += _linear(model, names, f"{at}.kv_a_proj_with_mqa", model.hidden, compressed, bias=bias)
    out += _norm(model, f"{at}.kv_a_layernorm", (latent.key_value,))
    expanded = model.heads * (latent.nope + latent.value)
    out += _linear(model, names, f"{at}.kv_b_proj", latent.key_value, expanded, bias=False)
    return out + _linear(model, names, f"{at}.{names.out}", model.out_width, model.hidden, bias=model.o_bias)


def _attention(model: Model, names: Layout) -> list[Parameter]:
    if model.latent is not None:
        return _latent_attention(model, names, model.latent)
    at, q, kv = names.attention, model.q_width, model.kv_width
    gated = 2 if model.output_gate else 1
    bias = model.qkv_bias
    if model.fused_qkv:
        out = _linear(model, names, f"{at}.{names.qkv}", model.hidden, q + 2 * kv, bias=bias)
    else:
        out = _linear(model, names, f"{at}.{names.q}", model.hidden, gated * q, bias=bias)
        out += _linear(model, names, f"{at}.{names.k}", model.hidden, kv, bias=bias)
        out += _linear(model, names, f"{at}.{names.v}", model.hidden, kv, bias=bias)
    out += _linear(model, names, f"{at}.{names.out}", q, model.hidden, bias=model.o_bias)
    if model.family == "gpt_oss":
        out.append(Parameter(f"{at}.sinks", (model.heads,), "sink"))
    if model.qk_norm:
        for name, heads in ((names.q_norm, model.heads), (names.k_norm, model.kv_heads)):
            shape = {
                "head": (model.head_dim,),
                "full": (heads * model.head_dim,),
                "each": (heads, model.head_dim),
            }[model.qk_norm]
            out += _norm(model, f"{at}.{name}", shape)
    return out


def _mlp(model: Model, names: Layout, path: str | None = None, width: int = 0) -> list[Parameter]:
    """The MLP of a layer; with a path and a width, another of the same form (an expert)."""
    path, width = names.mlp if path is None else path, width or model.ffn
    at = f"{path}." if path else ""
    bias = model.mlp_bias
    out: list[Parameter] = []
    if model.gated_mlp and model.fused_gate_up:
        out += _linear(model, names, f"{at}{names.gate_up}", model.hidden, 2 * width, bias=bias)
    else:
        if model.gated_mlp:
            out += _linear(model, names, f"{at}{names.gate}", model.hidden, width, bias=bias)
        out += _linear(model, names, f"{at}{names.up}", model.hidden, width, bias=bias)
    out += _linear(model, names, f"{at}{names.down}", width, model.hidden, bias=bias)
    if model.activation == "xielu":  # transformers 5.24.0 activations.py XIELUActivation: alpha_p, alpha_n
        out += [Parameter(f"{at}act_fn.{name}", (1,), "activation") for name in ("alpha_p", "alpha_n")]
    return out


def _gpt_oss_experts(model: Model, names: Layout, experts: Experts) -> list[Parameter]:
    """modeling_gpt_oss.py: matrices stored (in, out), a bias for each, one for the router."""
    at, count, hidden, width = names.moe, experts.count, model.hidden, experts.width
    return [
        Parameter(f"{at}.{names.router}.weight", (count, hidden), "router"),
        Parameter(f"{at}.{names.router}.bias", (count,), "bias"),
        Parameter(f"{at}.experts.gate_up_proj", (count, hidden, 2 * width), "experts"),
        Parameter(f"{at}.experts.gate_up_proj_bias", (count, 2 * width), "experts"),
        Parameter(f"{at}.experts.down_proj", (count, width, hidden), "experts"),
        Parameter(f"{at}.experts.down_proj_bias", (count, hidden), "experts"),
    ]


def _mixture(model: Model, names: Layout) -> list[Parameter]:
    experts, at, hidden = model.experts, names.moe, model.hidden
    assert experts is not None
    # PhiMoE's router is an nn.Linear by inheritance (modeling_phimoe.py), but of a class of its own, which
    # bitsandbytes does not replace; the others hold a bare parameter.
    out = [Parameter(f"{at}.{names.router}.weight", (experts.count, hidden), "router")]
    if model.family == "hunyuan_v1_moe":  # modeling_hunyuan_v1_moe.py HunYuanMoEV1Gate: a linear module
        out = [Parameter(f"{at}.{names.router}.wg.weight", (experts.count, hidden), "linear")]
    if model.family == "gpt_oss":
        return _gpt_oss_experts(model, names, experts)
    if model.family == "ernie4_5_moe":  # a parameter that is never trained: it balances the load
        bias = f"{at}.{names.router}.moe_statics.e_score_correction_bias"
        out.append(Parameter(bias, (1, experts.count), "router_bias"))
    path = f"{at}.{names.experts}"
    if names.per_expert:
        for index in range(experts.count):
            out += _mlp(model, names, f"{path}.{index}", experts.width)
    else:
        first, width = ("gate_up_proj", 2 * experts.width) if model.gated_mlp else ("up_proj", experts.width)
        inside = experts.latent or hidden
        out.append(Parameter(f"{path}.{first}", (experts.count, width, inside), "experts"))
        out.append(Parameter(f"{path}.down_proj", (experts.count, inside, experts.width), "experts"))
        if experts.latent:  # modeling_nemotron_h.py NemotronHMoE
            out += _linear(model, names, f"{at}.fc1_latent_proj", hidden, inside, bias=model.mlp_bias)
            out += _linear(model, names, f"{at}.fc2_latent_proj", inside, hidden, bias=model.mlp_bias)
    if experts.shared:
        out += _mlp(model, names, f"{at}.{names.shared}", experts.shared)
    if experts.shared_gate:
        out += _linear(model, names, f"{at}.{names.shared_gate}", hidden, 1, bias=False)
    return out
