"""T5 and mT5: encoder, decoder with cross-attention, and the loss, after transformers 5.24.0 ``models/t5``.

Source and target have the length of the longest sample each. Distances are added to the scores, so no flash
kernel runs: a mask of A·s² is made in every layer and kept for backward (``create_position_bias_mask``).
"""

from __future__ import annotations

from dataclasses import dataclass

from finefit.step.attention import SCORES
from finefit.step.build import Builder
from finefit.step.ops import Flops, Step
from finefit.step.size import Size
from finefit.step.tape import TOKENS, Ref
from finefit.workload.dtypes import DType
from finefit.workload.parameters import (
    embedding_parameters,
    final_parameters,
    head_parameters,
    layer_parameters,
)

_PLACES = ("s", "s")


@dataclass(slots=True)
class _Stack:
    """What every layer of a stack is handed: distances, those of cross-attention, the encoder's output."""

    bias: Ref
    cross: Ref | None = None
    source: Ref | None = None


class Seq2Seq(Builder):
    """Runs an encoder-decoder on a tape."""

    padding: Ref | None = None  # which places of the source hold a token, where rows differ in length

    def norm(self, x: Ref, path: str) -> Ref:
        """``T5LayerNorm``: only the variance is taken in fp32; the product is fp32 because of it."""
        net, tape = self.net, self.tape
        name, numel, symbols = f"{path}.weight", x.numel, x.symbols
        wide = net.cast(x, DType.FP32)
        square = tape.op("pow", [wide], numel, DType.FP32, symbols=symbols, saves=[wide], back=(wide.size, wide.size))
        del wide
        mean = tape.op("mean", [square], 1, DType.FP32, symbols=symbols)
        del square
        rstd = tape.op("rsqrt", [mean], 1, DType.FP32, symbols=symbols, save_out=True)
        del mean
        normed = net.mul(x, rstd)
        del rstd
        if net.weight_dtype(name).bytes == 2:
            normed = net.cast(normed, net.weight_dtype(name))
        return net.weigh(normed, name)

    def dropout(self, x: Ref) -> Ref:
        return self.net.dropout(x, self.model.residual_dropout)

    # -- attention -----------------------------------------------------------------------------------

    def distances(self, path: str) -> Ref:
        """Rows of the table for every pair of places (A, s, s); their indices are kept."""
        net, tape = self.net, self.tape
        table = f"{path}.layer.0.SelfAttention.relative_attention_bias.weight"
        ids = tape.leaf(1, DType.INT64, _PLACES, "relative_buckets")
        trainable = net.trainable(table)
        return tape.op(
            "embedding",
            [],
            self.model.heads,
            net.weight_dtype(table),
            symbols=_PLACES,
            saves=[ids] if trainable else [],
            params=(table,) if trainable else (),
        )

    def attention(self, x: Ref, source: Ref, path: str, bias: Ref, sees: str) -> Ref:
        """``sees``: "source" (both sides of itself), "past", or "other" (cross-attention)."""
        lin = self.linears
        with self.tape.module(path):
            query, key, value = lin(x, "q"), lin(source, "k"), lin(source, "v")
            if self.recipe.attention == "eager":
                out = self._eager(query, key, value, bias)
            else:
                out = self._efficient(query, key, value, bias, sees)
            del query, key, value
            return lin(out, "o")

    def _efficient(self, query: Ref, key: Ref, value: Ref, bias: Ref, sees: str) -> Ref:
        net, tape, heads, width = self.net, self.tape, self.model.heads, self.model.q_width
        if net.autocast is not None:
            query, key, value = (net.cast(t, net.autocast) for t in (query, key, value))
        dtype = query.dtype
        if self.padding is not None and sees != "past":  # a target's padding is not told to its own attention
            mask = tape.op("where", [bias], heads, bias.dtype, symbols=SCORES, saves=[self.padding])
        elif sees == "past":
            allowed = tape.leaf(1, DType.BOOL, _PLACES, "causal_mask")
            mask = tape.op("where", [bias], heads, bias.dtype, symbols=_PLACES, saves=[allowed])
            mask = tape.op("contiguous", [mask], heads, mask.dtype, symbols=_PLACES, passes=True)
        elif sees == "other":  # zeros, which lie row by row already
            mask = net.alias(bias)
        else:
            mask = tape.op("contiguous", [bias], heads, bias.dtype, symbols=_PLACES, passes=True)
        mask = net.cast(mask, dtype)
        stats = tape.op("logsumexp", [], heads, DType.FP32, symbols=("b", "s32"), needs_grad=False)
        # the gradient of the mask is that of every row first, then summed over the rows
        rows = (Size(dtype.bytes, heads, SCORES),) if mask.needs_grad else ()
        return tape.op(
            "efficient_attention",
            [query, key, value, mask],
            width,
            dtype,
            saves=[query, key, value, mask, stats],
            save_out=True,
            back=rows,
            flops=Flops("attention", 4 * width, SCORES),
        )

    def _eager(self, query: Ref, key: Ref, value: Ref, bias: Ref) -> Ref:
        net, tape, heads, width = self.net, self.tape, self.model.heads, self.model.q_width
        flops = Flops("attention", 2 * width, SCORES)
        scores = tape.op("bmm", [query, key], heads, query.dtype, symbols=SCORES, saves=[query, key], flops=flops)
        scores = net.scale(scores)
        scores = tape.op("add", [scores, bias], heads, scores.dtype, symbols=SCORES, passes=not bias.needs_grad)
        half = scores.dtype
        if net.autocast is not None:
            scores = net.cast(scores, DType.FP32)
        weights = tape.op("softmax", [scores], heads, scores.dtype, symbols=SCORES, save_out=True)
        del scores
        weights = net.cast(net.dropout(weights, self.model.attention_dropout), half)
        out = tape.op("bmm", [weights, value], width, value.dtype, saves=[weights, value], flops=flops)
        return net.contiguous(out)

    # -- layers --------------------------------------------------------------------------------------

    def feed_forward(self, x: Ref, path: str) -> Ref:
        net, lin = self.net, self.linears
        with self.tape.module(f"{path}.DenseReluDense"):
            if self.model.gated_mlp:
                inner = net.mul(self.decoder.activation(lin(x, "wi_0")), lin(x, "wi_1"))
            else:
                inner = self.decoder.activation(lin(x, "wi"))
            return lin(self.dropout(inner), "wo")

    def block(self, hidden: Ref, stack: _Stack, prefix: str) -> Ref:
        net, decodes = self.net, stack.source is not None
        normed = self.norm(hidden, f"{prefix}layer.0.layer_norm")
        attended = self.attention(normed, normed, "layer.0.SelfAttention", stack.bias, "past" if decodes else "source")
        hidden = net.add(hidden, self.dropout(attended))
        del normed, attended
        if stack.source is not None and stack.cross is not None:
            normed = self.norm(hidden, f"{prefix}layer.1.layer_norm")
            attended = self.attention(normed, stack.source, "layer.1.EncDecAttention", stack.cross, "other")
            hidden = net.add(hidden, self.dropout(attended))
            del normed, attended
        last = f"layer.{2 if decodes else 1}"
        normed = self.norm(hidden, f"{prefix}{last}.layer_norm")
        return net.add(hidden, self.dropout(self.feed_forward(normed, last)))

    def stack(self, hidden: Ref, at: _Stack, span: range, path: str, folded: bool) -> Ref:
        for index, repeat in folds(span) if folded else [(i, 1) for i in span]:
            name = f"{path}.{index - span.start}"
            with self.tape.block(name, index, repeat=repeat) as block, self.tape.module(name):
                if index != span.start:  # the first is registered with its table of distances
                    self.register(layer_parameters(self.model, index), f"{name}.")
                kept = (hidden, at.bias, at.source, at.cross)
                block.entries = tuple(x.value for x in kept if x is not None)
                hidden = self.block(hidden, at, f"{name}.")
                block.exit = hidden.value
                block.checkpointed = self.recipe.checkpointing == "full" and hidden.needs_grad
        return hidden

    def read(self, path: str, span: range) -> tuple[Ref, Ref]:
        """Embedding of one side, and the distances of its first layer."""
        net, tape = self.net, self.tape
        self.register(layer_parameters(self.model, span.start), f"{path}.block.0.")
        name = self._active(self.names.embedding)
        trainable = net.trainable(name)
        ids = tape.leaf(1, DType.INT64, name="ids")
        sort = (ids.size, ids.size, ids.size)
        hidden = tape.op(
            "embedding",
            [],
            self.model.hidden,
            net.weight_dtype(name),
            saves=[ids] if trainable else [],
            params=(name,) if trainable else (),
            back_assumed=sort if trainable else (),
            needs_grad=trainable or self._forced(),
        )
        if self._forced() and not trainable:
            net.forced_leaf(hidden)
        return self.dropout(hidden), self.distances(f"{path}.block.0")

    def build(self, folded: bool) -> Step:
        net, tape, model = self.net, self.tape, self.model
        source_layers = range(model.encoder_layers)
        target_layers = range(model.encoder_layers, model.layers)
        with tape.block("embedding"):
            self.register(embedding_parameters(model))
            self.register(final_parameters(model))
            if self.recipe.padded:
                self.padding = tape.leaf(1, DType.BOOL, SCORES, "mask")
            hidden, bias = self.read("encoder", source_layers)
        hidden = self.stack(hidden, _Stack(bias), source_layers, "encoder.block", folded)
        del bias
        with tape.block("between"):
            source = self.dropout(self.norm(hidden, "encoder.final_layer_norm"))
            net.cache(source)  # the outputs hold it
            hidden, bias = self.read("decoder", target_layers)
            cross = tape.leaf(model.heads, net.autocast or hidden.dtype, _PLACES, "zeros")
            if self.recipe.checkpointing == "full":
                tape.require(cross)
        hidden = self.stack(hidden, _Stack(bias, cross, source), target_layers, "decoder.block", folded)
        del bias, cross
        self.padding = None
        with tape.block("head", phase="loss"):
            self.register(head_parameters(model))
            hidden = self.dropout(self.norm(hidden, "decoder.final_layer_norm"))
            if model.tied:
                hidden = net.scale(hidden)
            loss = self._loss(hidden)
            del hidden, source
            tape.hold(loss)
            net.weight_casts.clear()
            net.cached.clear()
        return tape.finish()

    def _loss(self, hidden: Ref) -> Ref:
        """``CrossEntropyLoss`` on all tokens, in the dtype of the logits."""
        net, tape, model = self.net, self.tape, self.model
        name = self._active(self.names.embedding if model.tied else self.names.head)
        with tape.module(self.names.head):
            logits = net.dense(hidden, name, model.vocab, kind="head")
            del hidden
            found = tape.op("log_softmax", [logits], model.vocab, logits.dtype, save_out=True, category="logits")
            if net.autocast is not None:
                found = net.cast(found, DType.FP32, category="logits")
            labels = tape.leaf(1, DType.INT64, TOKENS, "labels")
            loss = tape.op("nll_loss", [found], 1, found.dtype, symbols=(), saves=[found, labels], category="logits")
            if self.recipe.keeps_outputs:
                tape.hold(logits)
            if net.autocast is not None:  # accelerate's convert_outputs_to_fp32
                net.cast(logits, DType.FP32, category="logits")
            return loss


def folds(span: range) -> list[tuple[int, int]]:
    """(layer, how many it stands for): the first two, one for those between, the last two."""
    if len(span) <= 5:
        return [(index, 1) for index in span]
    first, last = span.start, span.stop - 1
    return [(first, 1), (first + 1, 1), (first + 2, len(span) - 4), (last - 1, 1), (last, 1)]
