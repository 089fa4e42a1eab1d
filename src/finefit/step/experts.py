"""The mixture-of-experts MLP: router, stacked experts, shared experts.

transformers 5.24.0 ``models/<family>/modeling_<family>.py`` and ``integrations/moe.py``
``grouped_mm_experts_forward``, its default: every token is copied once for each of its k experts, the copies
are sorted by expert and one grouped product runs them all. So memory depends on T·k and not on which
experts are chosen: routing may be as uneven as it likes.
"""

from __future__ import annotations

from collections.abc import Callable

from finefit.step.linear import Linears
from finefit.step.net import Net, promote
from finefit.step.ops import Flops
from finefit.step.size import Size
from finefit.step.tape import Ref
from finefit.workload.dtypes import DType
from finefit.workload.families import Layout
from finefit.workload.model import Experts

MIXTURES = frozenset({"mixtral", "qwen2_moe", "qwen3_moe", "olmoe", "granitemoe"})  # families written here


class Mixture:
    """Runs the mixture of one layer on a tape."""

    def __init__(
        self, net: Net, linears: Linears, names: Layout, experts: Experts, activation: Callable[[Ref], Ref]
    ) -> None:
        self.net, self.linears, self.names, self.experts, self.activation = net, linears, names, experts, activation

    def __call__(self, x: Ref) -> Ref:
        net, names, family = self.net, self.names, self.net.model.family
        with net.tape.module(names.moe):
            if family == "qwen2_moe":
                return self._qwen2(x)
            with net.tape.module(names.router):
                _logits, weights, chosen = self._granite_router(x) if family == "granitemoe" else self._router(x)
            with net.tape.module(names.experts):
                return self._grouped(x, weights, chosen)

    def _qwen2(self, x: Ref) -> Ref:
        """``Qwen2MoeSparseMoeBlock``: a shared expert, scaled by the sigmoid of one number a token."""
        net, names = self.net, self.names
        shared = self._mlp(x, names.shared)
        with net.tape.module(names.router):
            _logits, weights, chosen = self._router(x)
        with net.tape.module(names.experts):
            out = self._grouped(x, weights, chosen)
        gate = self.linears(x, names.shared_gate)
        gate = net.tape.op("sigmoid", [gate], 1, gate.dtype, symbols=gate.symbols, save_out=True)
        shared = net.mul(shared, gate)
        del gate
        return net.add(out, shared)

    def _mlp(self, x: Ref, path: str) -> Ref:
        net, names, lin = self.net, self.names, self.linears
        with net.tape.module(path):
            return lin(net.mul(self.activation(lin(x, names.gate)), lin(x, names.up)), names.down)

    # -- routers -----------------------------------------------------------------------------------

    def _router(self, x: Ref) -> tuple[Ref, Ref, Ref]:
        """``MixtralTopKRouter`` and its kin: softmax over all experts in fp32, then the k largest."""
        net, tape, experts = self.net, self.net.tape, self.experts
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
        hidden, width, symbols = net.model.hidden, self.experts.width, x.symbols
        expert_ids = tape.leaf(k, DType.INT64, symbols, "sort")
        perm = tape.leaf(k, DType.INT64, symbols, "sort_indices")
        rows = tape.leaf(k, DType.INT64, symbols, "floor_divide")
        selected = tape.op("index", [x], k * hidden, x.dtype, symbols=symbols, saves=[rows])
        del rows
        sample_weights = tape.op("index", [weights], k, weights.dtype, symbols=symbols, saves=[perm])
        histc_input = tape.leaf(k, DType.INT32, symbols, "to")
        tokens_per_expert = tape.leaf(self.experts.count, DType.INT32, (), "histc")
        offsets = tape.leaf(self.experts.count, DType.INT32, (), "cumsum")
        out = self._product(selected, self.names.gate_up, 2 * width, offsets)
        gate, up = tape.split(out, [k * width, k * width], "chunk")
        del out
        out = net.mul(self.activation(gate), up)
        del gate, up
        out = self._product(out, self.names.down, hidden, offsets)
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
        then summed, and for the rows' own where that has another dtype.
        """
        tape = self.net.tape
        dtype = promote(out.dtype, weights.dtype)
        full = Size(dtype.bytes, out.numel, out.symbols)
        back = (full,) * ((dtype != out.dtype) + weights.needs_grad)
        saves = ([weights] if out.needs_grad else []) + ([out] if weights.needs_grad else [])
        return tape.op("mul", [out, weights], out.numel, dtype, symbols=out.symbols, saves=saves, back=back)
