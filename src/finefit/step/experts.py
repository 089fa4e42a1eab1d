"""The mixture-of-experts MLP: router, stacked experts, shared experts.

transformers 5.24.0 ``models/<family>/modeling_<family>.py`` and ``integrations/moe.py``
``grouped_mm_experts_forward``, its default: every token is copied once for each of its k experts, the copies
are sorted by expert and one grouped product runs them all. So memory depends on T·k and not on which
experts are chosen: routing may be as uneven as it likes.
"""

from __future__ import annotations

from collections.abc import Callable

from finefit.step import routers
from finefit.step.linear import Linears
from finefit.step.net import Net, promote
from finefit.step.ops import Flops
from finefit.step.size import Size
from finefit.step.tape import Ref
from finefit.workload.dtypes import DType
from finefit.workload.families import Layout
from finefit.workload.model import Experts

# families written here
MIXTURES = frozenset(
    {"mixtral", "qwen2_moe", "qwen3_moe", "olmoe", "granitemoe", "phimoe", "glm4_moe", "dots1", "ernie4_5_moe"}
) | frozenset(
    {
        "deepseek_v2",
        "deepseek_v3",
        "glm4_moe_lite",
        "minimax_m2",
        "hunyuan_v1_moe",
        "hy_v3",
        "solar_open",
        "mellum",
        "gpt_oss",
        "qwen3_next",
        "qwen3_5_moe_text",
        "nemotron_h",
        "lfm2_moe",
    }
)

# Families that add the shared experts to the routed ones, which come first
_SHARED_AFTER = frozenset(
    {"glm4_moe", "dots1", "deepseek_v2", "deepseek_v3", "glm4_moe_lite", "solar_open", "nemotron_h"}
)


class Mixture:
    """Runs the mixture of one layer on a tape."""

    def __init__(
        self, net: Net, linears: Linears, names: Layout, experts: Experts, activation: Callable[[Ref], Ref]
    ) -> None:
        self.net, self.linears, self.names, self.experts, self.activation = net, linears, names, experts, activation

    def __call__(self, x: Ref) -> Ref:
        family = self.net.model.family
        with self.net.tape.module(self.names.moe):
            if family in ("qwen2_moe", "qwen3_next", "qwen3_5_moe_text"):
                return self._qwen2(x)
            if family == "ernie4_5_moe":
                shared = self._mlp(x, self.names.shared) if self.experts.shared else None
                out = self._routed(x, self._ernie_router)
                return out if shared is None else self.net.add(out, shared)
            if family in _SHARED_AFTER:
                router = self._wide_router if family == "deepseek_v2" else self._sigmoid_router
                return self.net.add(self._routed(x, router), self._mlp(x, self.names.shared))
            if family == "hunyuan_v1_moe":
                shared = self._mlp(x, self.names.shared)
                return self.net.add(self._routed(x, self._router), shared)
            if family == "hy_v3":
                return self._wide_sum(x)
            own = {"granitemoe": self._granite_router, "phimoe": self._sparsemixer}
            if family in ("minimax_m2", "gpt_oss", "lfm2_moe"):
                choose = {"minimax_m2": routers.minimax, "gpt_oss": routers.gpt_oss}.get(family, routers.lfm2)
                return self._routed(x, lambda tokens: choose(self.net, self.experts, tokens))
            return self._routed(x, own.get(family, self._router))

    def _wide_sum(self, x: Ref) -> Ref:
        """``HYV3MoE``: routed and shared experts are added in fp32."""
        net = self.net
        routed = self._routed(x, lambda tokens: routers.hunyuan3(net, self.experts, tokens))
        wide = net.cast(routed, DType.FP32)
        return net.cast(net.add(wide, net.cast(self._mlp(x, self.names.shared), DType.FP32)), x.dtype)

    def _routed(self, x: Ref, router: Callable[[Ref], tuple[Ref, Ref, Ref]]) -> Ref:
        """Router and experts; the block holds the router's logits until it returns."""
        with self.net.tape.module(self.names.router):
            _logits, weights, chosen = router(x)
        if self.experts.latent:
            x = self.linears(x, "fc1_latent_proj")
            with self.net.tape.module(self.names.experts):
                x = self._grouped(x, weights, chosen)
            return self.linears(x, "fc2_latent_proj")
        with self.net.tape.module(self.names.experts):
            return self._grouped(x, weights, chosen)

    def _qwen2(self, x: Ref) -> Ref:
        """``Qwen2MoeSparseMoeBlock``: a shared expert, scaled by the sigmoid of one number a token."""
        net, names = self.net, self.names
        shared = self._mlp(x, names.shared)
        out = self._routed(x, self._router)
        gate = self.linears(x, names.shared_gate)
        gate = net.tape.op("sigmoid", [gate], 1, gate.dtype, symbols=gate.symbols, save_out=True)
        shared = net.mul(shared, gate)
        del gate
        return net.add(out, shared)

    def _mlp(self, x: Ref, path: str) -> Ref:
        net, names, lin = self.net, self.names, self.linears
        with net.tape.module(path):
            if not net.model.gated_mlp:
                return lin(self.activation(lin(x, names.up)), names.down)
            return lin(net.mul(self.activation(lin(x, names.gate)), lin(x, names.up)), names.down)

    # -- routers -----------------------------------------------------------------------------------

    def _router(self, x: Ref) -> tuple[Ref, Ref, Ref]:
        """``MixtralTopKRouter`` and its kin: softmax over all experts in fp32, then the k largest."""
        net, tape, experts = self.net, self.net.tape, self.experts
        if net.model.family == "hunyuan_v1_moe":
            logits = self.linears(x, "wg")
        else:
            logits = net.dense(x, f"{tape.path}.weight", experts.count)
        wide = net.cast(logits, DType.FP32)
        probs = tape.op("softmax", [wide], experts.count, DType.FP32, save_out=True)
        del wide
        top, chosen = self._top_k(probs)
        del probs
        if experts.normalised:
            top = self._normalise(top)
        weights = top if net.model.family == "mixtral" else net.cast(top, logits.dtype)
        return logits, weights, chosen

    def _granite_router(self, x: Ref) -> tuple[Ref, Ref, Ref]:
        """``GraniteMoeTopKRouter``: the k largest logits, then softmax over those."""
        net, tape, experts = self.net, self.net.tape, self.experts
        logits = net.cast(net.dense(x, f"{tape.path}.weight", experts.count), DType.FP32)
        top, chosen = self._top_k(logits)
        weights = tape.op("softmax", [top], experts.per_token, DType.FP32, save_out=True)
        return logits, net.cast(weights, x.dtype), chosen

    def _sigmoid_router(self, x: Ref) -> tuple[Ref, Ref, Ref]:
        """``Glm4MoeTopkRouter``: sigmoid scores in fp32; a bias that is not trained decides the choice alone.

        What only serves the choice is let go when the router returns, its part of the graph with it. One group
        of experts, as all published models have: its mask is a view.
        """
        net, tape, experts = self.net, self.net.tape, self.experts
        wide = net.cast(x, DType.FP32)
        logits = net.dense(wide, f"{tape.path}.weight", experts.count)
        del wide
        scores = tape.op("sigmoid", [logits], experts.count, logits.dtype, save_out=True)
        choice = tape.leaf(experts.count, DType.FP32, x.symbols, "add")
        group_scores = [
            tape.leaf(experts.groups, DType.FP32, x.symbols, "group_scores"),
            tape.leaf(2 * experts.groups, DType.INT64, x.symbols, "topk"),
        ]
        group_mask = [tape.leaf(experts.groups, DType.FP32, x.symbols, "zeros_like")]
        if experts.groups > 1:  # spread over the experts of each group; of one group it is a view
            group_mask.append(tape.leaf(experts.count, DType.FP32, x.symbols, "reshape"))
        mask = tape.leaf(experts.count, DType.BOOL, x.symbols, "bitwise_not")
        choice = tape.leaf(experts.count, DType.FP32, x.symbols, "masked_fill")
        weights, chosen = self._gather(scores)
        if experts.normalised:
            weights = self._normalise(weights)
        weights = net.scale(weights)
        del choice, group_scores, group_mask, mask
        return logits, weights, chosen

    def _wide_router(self, x: Ref) -> tuple[Ref, Ref, Ref]:
        """``DeepseekV2TopkRouter``: logits and softmax in fp32, which the weights keep."""
        net, tape, experts = self.net, self.net.tape, self.experts
        logits = net.dense(net.cast(x, DType.FP32), f"{tape.path}.weight", experts.count)
        scores = tape.op("softmax", [logits], experts.count, DType.FP32, save_out=True)
        if experts.groups > 1:
            mask = tape.leaf(experts.count, DType.BOOL, x.symbols, "bitwise_not")
            scores = tape.op("masked_fill", [scores], experts.count, DType.FP32, symbols=x.symbols, saves=[mask])
        top, chosen = self._top_k(scores)
        return logits, net.scale(top), chosen

    def _sparsemixer(self, x: Ref) -> tuple[Ref, Ref, Ref]:
        """``PhimoeTopKRouter`` and ``sparsemixer``: two experts, drawn one after the other from noisy scores.

        The gradient reaches the scores through ``PhimoeMultiplier`` alone, but what the other operations
        saved lives as long.
        """
        net, tape, count = self.net, self.net.tape, self.experts.count
        scores = net.dense(x, f"{tape.path}.weight", count)
        weights, kept = [], []
        left = scores
        for _ in range(2):
            mask = tape.leaf(count, DType.BOOL, x.symbols, "gt")
            gates = tape.op("masked_fill", [left], count, left.dtype, saves=[mask])
            del mask
            tape.leaf(count, gates.dtype, x.symbols, "exponential_")
            selected = tape.leaf(1, DType.INT64, x.symbols, "max")
            gates = tape.op("softmax", [gates], count, gates.dtype, save_out=True)
            multiplier = tape.op("gather", [gates], 1, gates.dtype, saves=[selected])
            kept.append(gates)
            weights.append(tape.op("multiplier", [scores], 1, gates.dtype, saves=[multiplier, selected, gates]))
            if len(weights) == 1:
                left = tape.op("scatter", [scores], count, scores.dtype, saves=[selected])
        out = tape.op("cat", weights, 2, scores.dtype)
        del left, weights, kept
        return scores, out, tape.leaf(2, DType.INT64, x.symbols, "cat")

    def _ernie_router(self, x: Ref) -> tuple[Ref, Ref, Ref]:
        """``Ernie4_5_MoeTopKRouter``: in fp32 with autocast off."""
        net, tape, experts = self.net, self.net.tape, self.experts
        autocast, net.autocast = net.autocast, None
        logits = net.dense(net.cast(x, DType.FP32), f"{tape.path}.weight", experts.count)
        net.autocast = autocast
        probs = tape.op("softmax", [logits], experts.count, DType.FP32, save_out=True)
        tape.leaf(experts.count, DType.FP32, x.symbols, "add")
        top, chosen = self._gather(probs)
        weights = self._normalise(top)
        return logits, net.cast(weights, x.dtype), chosen

    def _gather(self, scores: Ref) -> tuple[Ref, Ref]:
        """Scores of chosen experts; the backward adds into zeros of all."""
        tape, k = self.net.tape, self.experts.per_token
        chosen = tape.leaf(k, DType.INT64, scores.symbols, "topk_indices")
        return tape.op("gather", [scores], k, scores.dtype, symbols=scores.symbols, saves=[chosen]), chosen

    def _top_k(self, scores: Ref) -> tuple[Ref, Ref]:
        """Values and int64 indices; the backward scatters into zeros of the input's shape."""
        tape, k = self.net.tape, self.experts.per_token
        chosen = tape.leaf(k, DType.INT64, scores.symbols, "topk_indices")
        return tape.op("topk", [scores], k, scores.dtype, symbols=scores.symbols, saves=[chosen]), chosen

    def _normalise(self, top: Ref) -> Ref:
        """``top /= top.sum(-1)``: dividing in place keeps a copy of what was there for the divisor's gradient."""
        tape, k = self.net.tape, self.experts.per_token
        total = tape.op("sum", [top], 1, top.dtype, symbols=top.symbols)
        return tape.op(
            "div", [top, total], k, top.dtype, symbols=top.symbols, saves=[top, total], back=(top.size, top.size)
        )

    # -- experts -----------------------------------------------------------------------------------

    def _grouped(self, x: Ref, weights: Ref, chosen: Ref) -> Ref:
        """``grouped_mm_experts_forward``; a name that Python still holds at its end is held here too."""
        net, tape, k = self.net, self.net.tape, self.experts.per_token
        hidden, width, symbols = x.numel, self.experts.width, x.symbols
        expert_ids = tape.leaf(k, DType.INT64, symbols, "sort")
        perm = tape.leaf(k, DType.INT64, symbols, "sort_indices")
        rows = tape.leaf(k, DType.INT64, symbols, "floor_divide")
        selected = tape.op("index", [x], k * hidden, x.dtype, symbols=symbols, saves=[rows])
        del rows
        sample_weights = tape.op("index", [weights], k, weights.dtype, symbols=symbols, saves=[perm])
        histc_input = tape.leaf(k, DType.INT32, symbols, "to")
        tokens_per_expert = tape.leaf(self.experts.count, DType.INT32, (), "histc")
        offsets = tape.leaf(self.experts.count, DType.INT32, (), "cumsum")
        biased = net.model.family == "gpt_oss"
        if not net.model.gated_mlp:
            out = self.activation(self._product(selected, "up_proj", width, offsets))
        else:
            out = self._product(selected, "gate_up_proj", 2 * width, offsets)
        if biased:
            out = routers.add_expert_bias(net, out, f"{tape.path}.gate_up_proj_bias")
            out = routers.clamped_swiglu(net, out)
        elif net.model.gated_mlp:
            gate, up = tape.split(out, [k * width, k * width], "chunk")
            del out
            out = net.mul(self.activation(gate), up)
            del gate, up
        out = self._product(out, "down_proj", hidden, offsets)
        if biased:
            out = routers.add_expert_bias(net, out, f"{tape.path}.down_proj_bias")
        weighted = self._weigh(out, sample_weights)
        inverse = tape.leaf(k, DType.INT64, symbols, "empty_like")
        tape.leaf(k, DType.INT64, symbols, "arange")
        weighted = tape.op("index", [weighted], k * hidden, weighted.dtype, symbols=symbols, saves=[inverse])
        # the gradient of the sum is expanded and then copied to the shape of all copies
        final = tape.op("sum", [weighted], hidden, weighted.dtype, symbols=symbols)
        final = net.cast(final, x.dtype)
        del expert_ids, perm, selected, sample_weights, histc_input, tokens_per_expert, offsets, out, weighted, inverse
        return final

    def _product(self, x: Ref, leaf: str, n_out: int, offsets: Ref) -> Ref:
        """``grouped_mm`` of T·k rows with a weight (E, out, in); autocast leaves it alone, so x takes its dtype."""
        net, tape, k = self.net, self.net.tape, self.experts.per_token
        name = f"{tape.path}.{leaf}"
        x = net.cast(x, net.weight_dtype(name))
        trainable = net.trainable(name)
        return tape.op(
            "grouped_mm",
            [x],
            k * n_out,
            x.dtype,
            symbols=x.symbols,
            saves=[x, offsets] if trainable else [offsets],
            params=(name,) if trainable else (),
            flops=Flops("linear", 2 * (x.numel // k) * k * n_out, x.symbols),
        )

    def _weigh(self, out: Ref, weights: Ref) -> Ref:
        """Each copy times its weight. Mixtral's weights are fp32, and so is the product.

        Its backward multiplies in the product's dtype: for the weight's gradient over full rows, which are
        then summed, and for the rows' own where that has another dtype. The engine narrows that one after the
        function has returned: what non-reentrant checkpointing computed again is gone by then, what was
        saved all along is not.
        """
        tape = self.net.tape
        dtype = promote(out.dtype, weights.dtype)
        full = Size(dtype.bytes, out.numel, out.symbols)
        gone = self.net.recipe.checkpointing == "full" and not self.net.recipe.reentrant
        back = (full,) * ((dtype != out.dtype and not gone) + weights.needs_grad)
        saves = ([weights] if out.needs_grad else []) + ([out] if weights.needs_grad else [])
        if gone and out.dtype != dtype:
            out = tape.widened(out, dtype)
        return tape.op("mul", [out, weights], out.numel, dtype, symbols=out.symbols, saves=saves, back=back)
