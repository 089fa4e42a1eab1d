"""One decoder layer of each family, written line by line after its modelling code.

transformers 5.24.0 ``models/<family>/modeling_<family>.py``: llama (mistral, qwen2, qwen3, yi and most
others), gemma, gemma2, gemma3, olmo2, phi, phi3, gpt2, gpt_neox; mixtures of experts in ``experts``.
Remote-code families with the same arithmetic (internlm, internlm2, baichuan, qwen) follow the llama
path with their own module names.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass

from finefit.step import alibi, delta, falcon, latent, mamba2, norms, routers
from finefit.step import attention as kernels
from finefit.step.experts import MIXTURES, Mixture
from finefit.step.linear import Linears
from finefit.step.net import Net
from finefit.step.tape import Ref
from finefit.step.versions import caches, copies_into_cache
from finefit.workload.dtypes import DType
from finefit.workload.families import Layout
from finefit.workload.model import Latent, Model
from finefit.workload.parameters import layer_norms


@dataclass(slots=True)
class Positions:
    """What the model's forward hands to its layers: rotary tables and attention masks.

    ``window`` is the mask of layers that slide, ``mask`` that of the others.
    """

    cos: Ref | None
    sin: Ref | None
    mask: Ref | None
    window: Ref | None = None

    def of(self, model: Model, layer: int) -> Ref | None:
        """The mask of a layer."""
        slides = bool(model.layer_types) and model.layer_types[layer] == "sliding"
        return self.window if slides and self.window is not None else self.mask


# Families whose layer is written here or has the arithmetic of one that is. A family with a known layout
# that is not listed has exact counts but no memory model yet (ALiBi, biases of attention, other norms).
MODELLED = frozenset(
    {
        "llama", "mistral", "ministral", "ministral3", "qwen", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text",
        "phi", "phi3", "gpt2", "gpt_neox", "gpt_bigcode", "internlm", "internlm2", "internlm3", "baichuan",
        "granite", "smollm3", "seed_oss", "olmo", "olmo2", "olmo3", "starcoder2", "stablelm", "xverse", "mimo",
        "ernie4_5", "exaone", "chatglm", "glm", "glm4", "exaone4", "nemotron", "vaultgemma", "gpt_neo", "gptj", "opt",
        "hunyuan_v1_dense", "apertus", "arcee", "mpt", "bloom", "cohere", "cohere2", "minicpm", "orion", "falcon",
        "minicpm3", "qwen3_5_text", "nemotron_h", "granitemoehybrid", "lfm2",
    }
) | MIXTURES  # fmt: skip

# No _supports_sdpa in their modelling code: transformers gives them eager attention by itself.
EAGER_ONLY = frozenset({"bloom", "mpt", "gpt_neo", "gpt_oss"})
# Their layers return the attention weights, whether asked for or not.
RETURNS_WEIGHTS = frozenset({"bloom", "mpt", "gpt_neo", "falcon"})


class Decoder:
    """Runs decoder layers on a tape."""

    def __init__(self, net: Net, linears: Linears, names: Layout) -> None:
        self.net, self.linears, self.names = net, linears, names
        # norms that multiply by 1 + weight in fp32
        self.gemma = net.model.family.startswith(("gemma", "vaultgemma", "qwen3_5", "qwen3_next", "nemotron_h"))
        self.mixer = "full"
        recipe = net.recipe
        self._caches = recipe.returns_cache and caches(
            net.model.family, recipe.stack.get("transformers"), recipe.checkpointing == "full"
        )
        experts = net.model.experts
        self.mixture = Mixture(net, linears, names, experts, self.activation) if experts is not None else None

    # -- pieces ------------------------------------------------------------------------------------

    def norm(self, x: Ref, path: str, *, width: int | None = None) -> Ref:
        net = self.net
        with net.tape.module(path):
            full = net.tape.path
            if net.model.family in ("cohere", "cohere2"):
                return norms.cohere_norm(net, x, f"{full}.weight", width)
            if net.model.norm == "layer":
                return net.layer_norm(x, full)
            if net.recipe.fused_kernels:
                return self._liger_norm(x, full)
            name = f"{full}.weight" if net.model.norm_weight else None
            return net.rms_norm(x, name, width=width, gemma=self.gemma)

    def _liger_norm(self, x: Ref, full: str) -> Ref:
        """Liger RMSNorm: one kernel that keeps its input and the reciprocal deviation in fp32.

        linkedin/Liger-Kernel 0.8 ``ops/rms_norm.py``: the input gradient overwrites the output's.
        """
        net = self.net
        params = tuple(p for p in (f"{full}.weight",) if net.trainable(p))
        rstd = net.tape.op("rstd", [], 1, DType.FP32, symbols=x.symbols, needs_grad=False)
        return net.tape.op(
            "liger_rms_norm", [x], x.numel, x.dtype, symbols=x.symbols, saves=[x, rstd], params=params, passes=True
        )

    def activation(self, x: Ref) -> Ref:
        """Activations as ``transformers.activations.ACT2FN`` implements them."""
        net, name = self.net, self.net.model.activation
        if name in norms.ACTIVATIONS:
            return norms.ACTIVATIONS[name](net, x)
        if name in ("gelu_new", "gelu_fast"):
            return self._gelu_new(x)
        if name == "relu":
            return net.tape.op("relu", [x], x.numel, x.dtype, symbols=x.symbols, save_out=True)
        if name == "quick_gelu":
            return net.mul(
                x, net.tape.op("sigmoid", [net.scale(x)], x.numel, x.dtype, symbols=x.symbols, save_out=True)
            )
        return net.unary(name, x)

    def _gelu_new(self, x: Ref) -> Ref:
        """``NewGELUActivation``: eight separate kernels, four saved tensors."""
        net, tape = self.net, self.net.tape
        half = net.scale(x)
        base = net.cast(x, DType.FP32) if net.autocast is not None else net.alias(x)  # pow is on the fp32 list
        size = base.size
        cube = tape.op("pow", [base], x.numel, base.dtype, symbols=x.symbols, saves=[base], back=(size, size))
        del base
        inner = net.scale(net.add(x, net.scale(cube)))
        del cube
        tanh = tape.op("tanh", [inner], x.numel, inner.dtype, symbols=x.symbols, save_out=True)
        del inner
        shifted = tape.op("add", [tanh], x.numel, tanh.dtype, symbols=x.symbols, passes=True)
        return net.mul(half, shifted)

    def attention(self, x: Ref, at: Positions) -> Ref:
        net, names, model, lin = self.net, self.names, self.net.model, self.linears
        with net.tape.module(names.attention):
            if model.latent is not None:
                return self._latent(x, at, model.latent)
            if model.fused_qkv:
                qkv = lin(x, names.qkv)
                if model.family == "falcon":
                    query, key, value = falcon.heads(net, qkv, not model.shared_norm and model.parallel_block)
                else:
                    query, key, value = net.tape.split(qkv, [model.q_width, model.kv_width, model.kv_width])
                fused = net.alias(qkv) if model.family == "falcon" else None  # a variable to the end
                del qkv
            else:
                fused = None
                gate: Ref | None = None
                query = lin(x, names.q)
                if model.output_gate:
                    query, gate = net.tape.split(query, [model.q_width, model.q_width], "chunk")
                    gate = net.contiguous(gate)
                key, value = lin(x, names.k), lin(x, names.v)
            if model.family == "opt":
                query = net.scale(query)
            late = model.family.startswith("hunyuan_v1")  # norms after the rotation
            if model.qk_norm and not late:
                query, key = self._qk_norms(query, key)
            if at.cos is not None and at.sin is not None and model.position == "rope":
                query, key = self._rope(query, key, at.cos, at.sin)
            if model.qk_norm and late:
                query, key = self._qk_norms(query, key)
            if self._caches:
                if copies_into_cache(net.recipe.stack.get("transformers")):
                    key, value = net.contiguous(key), net.contiguous(value)
                net.cache(key, value)
            out = self._kernel(query, key, value, at.mask)
            del query, key, value
            del fused
            if model.output_gate and gate is not None:
                squashed = net.tape.op("sigmoid", [gate], gate.numel, gate.dtype, save_out=True)
                out = net.mul(out, squashed)
                del squashed
            return lin(out, names.out)

    def _latent(self, x: Ref, at: Positions, low: Latent) -> Ref:
        net = self.net
        query, key, value = latent.project(net, self.linears, self.norm, low, x, at.cos, at.sin)
        out = self._kernel(query, key, value, at.mask)
        del query, key, value
        if attention_in_use(net) == "sdpa" and at.mask is None and low.value == net.model.head_dim:
            out = net.contiguous(out)  # flash keeps the layout of the queries, heads first
        return self.linears(out, self.names.out)

    def _qk_norms(self, query: Ref, key: Ref) -> tuple[Ref, Ref]:
        model = self.net.model
        width = {"head": model.head_dim, "each": model.head_dim}.get(model.qk_norm)
        query = self.norm(query, self.names.q_norm, width=width)
        return query, self.norm(key, self.names.k_norm, width=width)

    def _rope(self, query: Ref, key: Ref, cos: Ref, sin: Ref) -> tuple[Ref, Ref]:
        net = self.net
        if net.recipe.fused_kernels:
            return self._liger_rope(query, key, cos, sin)
        if net.model.family in kernels.WIDE_ROTARY:
            return kernels.wide_rotary(net, query, key, cos, sin)
        if net.model.rotary_fraction < 1 or net.model.family == "phi3":
            return kernels.partial_rotary(net, query, key, cos, sin, net.model.rotary_fraction)
        return kernels.rotary(net, query, key, cos, sin)

    def _liger_rope(self, query: Ref, key: Ref, cos: Ref, sin: Ref) -> tuple[Ref, Ref]:
        """Liger rotates in place of a contiguous copy (``ops/rope.py``)."""
        tape = self.net.tape
        outs = [
            tape.op("liger_rope", [x], x.numel, x.dtype, symbols=x.symbols, saves=[cos, sin], passes=True)
            for x in (query, key)
        ]
        return outs[0], outs[1]

    def _kernel(self, query: Ref, key: Ref, value: Ref, mask: Ref | None) -> Ref:
        net = self.net
        p = net.model.attention_dropout
        implementation = attention_in_use(net)
        if implementation == "sdpa" and (net.model.family == "falcon" or net.model.position == "alibi"):
            assert mask is not None
            return falcon.sdpa(net, query, key, value, mask)
        if net.model.family == "falcon" and implementation == "eager":
            return falcon.eager(net, query, key, value, mask)
        if net.model.family == "gpt_oss" and implementation == "eager":
            return routers.sink_attention(net, query, key, value, mask, f"{net.tape.path}.sinks")
        if implementation == "eager" and net.model.position == "alibi":
            return alibi.eager(net, query, key, value, mask)
        if implementation == "eager" and net.model.family == "gpt_neo":
            return kernels.wide_eager(net, query, key, value, mask, p)
        if implementation == "eager":
            return kernels.eager(net, query, key, value, mask, p, softcap=net.model.attention_softcap)
        if implementation == "flash2":
            if query.dtype == DType.FP32 and net.autocast is not None:
                query, key, value = (net.cast(t, net.autocast) for t in (query, key, value))
            return kernels.flash(net, query, key, value, p)
        return kernels.sdpa(net, query, key, value, mask, p)

    def mlp(self, x: Ref) -> Ref:
        net, names, model, lin = self.net, self.names, self.net.model, self.linears
        with net.tape.module(names.mlp) if names.mlp else nullcontext():
            if not model.gated_mlp:
                return lin(self.activation(lin(x, names.up)), names.down)
            if model.fused_gate_up:
                both = lin(x, names.gate_up)
                gate, up = net.tape.split(both, [model.ffn, model.ffn], "chunk")
                del both
                return lin(net.mul(up, self.activation(gate)), names.down)
            if net.recipe.fused_kernels:
                return lin(self._liger_swiglu(lin(x, names.gate), lin(x, names.up)), names.down)
            return lin(net.mul(self.activation(lin(x, names.gate)), lin(x, names.up)), names.down)

    def _liger_swiglu(self, gate: Ref, up: Ref) -> Ref:
        """``LigerSiLUMulFunction`` keeps gate and up; their gradients overwrite them (``ops/swiglu.py``)."""
        return self.net.tape.op("liger_swiglu", [gate, up], gate.numel, gate.dtype, saves=[gate, up])

    # -- layers ------------------------------------------------------------------------------------

    def layer(self, hidden: Ref, at: Positions, index: int = 0) -> Ref:
        """Decoder layer ``index``; the wiring depends on where the norms are."""
        whole = self.net.model
        self.net.model = model = whole.in_layer(index)
        at = Positions(at.cos, at.sin, at.of(whole, index))
        weights = self._previous_weights() if index else None
        if model.parallel_block:
            out = self._parallel(hidden, at)
        elif model.post_norm:
            out = self._post_norm(hidden, at)
        else:
            self.mixer = model.layer_types[index] if index < len(model.layer_types) else "full"
            if model.family == "nemotron_h":
                normed = self.norm(hidden, self.names.norms[0])
                out = self.net.add(hidden, self._mix(normed, at))
                self.net.model, self.net.attended = whole, None
                return out
            out = self._pre_norm(hidden, at, self.mixture if model.sparse(index) else None)
        self.net.model, self.net.attended = whole, None
        del weights
        return out

    def _previous_weights(self) -> Ref | None:
        """Attention weights that the layer before has returned, held by a variable until this one returns."""
        net = self.net
        if attention_in_use(net) != "eager" or net.model.family not in RETURNS_WEIGHTS:
            return None
        if net.recipe.checkpointing != "full":
            return None  # they are saved for the backward anyhow
        return net.tape.op(
            "returned", [], net.model.heads, net.half, symbols=kernels.SCORES, needs_grad=False, once=True
        )

    def _branch(self, x: Ref) -> Ref:
        """What happens to a branch before it joins the residual: dropout, or Granite's multiplier."""
        if self.net.model.family in ("granite", "granitemoe", "granitemoehybrid", "minicpm", "minicpm3"):
            return self.net.scale(x)
        return self.net.dropout(x, self.net.model.residual_dropout)

    def _mix(self, x: Ref, at: Positions) -> Ref:
        """Attention, or what a layer has in its place."""
        if self.mixer == "linear" and self.net.model.linear is not None:
            with self.net.tape.module("linear_attn"):
                return delta.gated_delta_net(self.net, self.linears, self.net.model.linear, x)
        if self.mixer == "mamba2" and self.net.model.mamba2 is not None:
            with self.net.tape.module("mixer" if self.net.model.family == "nemotron_h" else "mamba"):
                return mamba2.mamba2(self.net, self.linears, self.net.model.mamba2, x)
        if self.mixer == "conv":
            with self.net.tape.module("conv"):
                return delta.short_conv(self.net, self.linears, self.net.model.conv_width, x)
        if self.mixer == "mlp":
            return self.mlp(x)
        if self.mixer == "moe" and self.mixture is not None:
            return self.mixture(x)
        return self.attention(x, at)

    def _pre_norm(self, hidden: Ref, at: Positions, mixture: Mixture | None) -> Ref:
        net, paths, sandwich = self.net, layer_norms(self.net.model), self.net.model.sandwich_norms
        residual = hidden
        hidden = self.norm(hidden, paths[0])
        hidden = self._branch(self._mix(hidden, at))
        if sandwich:
            hidden = self.norm(hidden, paths[1])
        # a variable of their block, attn_output, holds it to the end
        attended = net.alias(hidden) if net.model.family in ("gpt2", "gpt_bigcode") else None
        hidden = net.add(residual, hidden)
        residual = hidden
        hidden = self.norm(hidden, paths[2] if sandwich else paths[1])
        hidden = self._branch(self.mlp(hidden) if mixture is None else mixture(hidden))
        if sandwich:
            hidden = self.norm(hidden, paths[3])
        del attended
        return net.add(residual, hidden)

    def _post_norm(self, hidden: Ref, at: Positions) -> Ref:
        net, paths = self.net, layer_norms(self.net.model)
        residual = hidden
        hidden = self.norm(self.attention(hidden, at), paths[0])
        hidden = net.add(residual, hidden)
        residual = hidden
        hidden = self.norm(self.mlp(hidden), paths[1])
        return net.add(residual, hidden)

    def _parallel(self, hidden: Ref, at: Positions) -> Ref:
        net, paths, shared = self.net, layer_norms(self.net.model), self.net.model.shared_norm
        normed = self.norm(hidden, paths[0])
        before = self.norm(hidden, paths[1]) if net.model.family == "falcon" and not shared else None  # both at once
        attended = self._branch(self.attention(normed, at))
        if before is None and not shared:
            normed = self.norm(hidden, paths[1])
        fed = self._branch(self.mlp(normed if before is None else before))
        del normed, before
        return net.add(net.add(attended, fed), hidden)


def attention_in_use(net: Net) -> str:
    """Attention that really runs: soft-capped scores cannot use SDPA and fall back to eager.

    transformers 5.24.0 ``integrations/sdpa_attention.py`` refuses ``softcap``.
    """
    asked = net.recipe.attention
    only_eager = net.model.attention_softcap or net.model.family in EAGER_ONLY
    return "eager" if asked == "sdpa" and only_eager else asked
