"""Encoders in the line of BERT: embedding, bidirectional layers and heads, written after transformers 5.24.0.

``models/bert`` (roberta, xlm-roberta, distilbert the same but for names), ``modernbert``, ``nomic_bert``,
``jina_embeddings_v3``, ``deberta_v2``.
"""

from __future__ import annotations

from finefit.step import attention as kernels
from finefit.step.build import Builder
from finefit.step.decoder import Decoder, Positions, attention_in_use
from finefit.step.ops import Flops, Step
from finefit.step.tape import TOKENS, Ref
from finefit.workload.dtypes import DType
from finefit.workload.encoder import head_parameters
from finefit.workload.model import Model
from finefit.workload.parameters import embedding_parameters, final_parameters
from finefit.workload.recipe import Recipe

_ROW = ("b",)


class Encoder(Decoder):
    """Layers that see to both sides; norms after each branch, but for ModernBERT's before."""

    relative: Ref | None = None  # DeBERTa's table of distances, normalised

    def layer(self, hidden: Ref, at: Positions, index: int = 0) -> Ref:
        net, norms, family = self.net, self.names.norms, self.net.model.family
        if family == "modernbert":
            if net.model.layer_types[index] == "full":
                at = Positions(at.cos, at.sin, at.mask if net.recipe.padded else None)
            normed = self.norm(hidden, norms[0]) if index else net.alias(hidden)
            hidden = net.add(hidden, self.attention(normed, at))
            del normed
            return net.add(hidden, self.mlp(self.norm(hidden, norms[1])))
        attended = self._disentangled(hidden) if family == "deberta-v2" else self.attention(hidden, at)
        dropout = net.model.residual_dropout
        if family != "distilbert":
            attended = net.dropout(attended, dropout)
        hidden = self.norm(net.add(attended, hidden), norms[0])
        del attended
        return self.norm(net.add(net.dropout(self.mlp(hidden), dropout), hidden), norms[1])

    # -- DeBERTa -------------------------------------------------------------------------------------

    def _disentangled(self, hidden: Ref) -> Ref:
        """Scores of contents and of distances, all b·A·s² and kept; distances are gathered from (b·A, s, 2k)."""
        net, tape, model, lin, names = self.net, self.net.tape, self.net.model, self.linears, self.names
        heads, width = model.heads, model.q_width
        with tape.module(names.attention):
            query, key, value = (net.contiguous(lin(hidden, path)) for path in (names.q, names.k, names.v))
            scaled = net.scale(key)
            scores = self._scores(query, scaled, heads, kernels.SCORES)
            del scaled
            bias = None  # a local variable of the library that lives as long as its forward
            if self.relative is not None:
                bias = self._distances(query, key)
                scores = net.add(scores, bias)
            mask = tape.op("logical_not", [], 1, DType.BOOL, symbols=kernels.SCORES, needs_grad=False)
            scores = tape.op("masked_fill", [scores], heads, scores.dtype, symbols=kernels.SCORES, saves=[mask])
            del mask
            half = value.dtype
            if net.autocast is not None:  # softmax is on autocast's list of fp32 operations
                scores = net.cast(scores, DType.FP32)
            weights = tape.op("softmax", [scores], heads, scores.dtype, symbols=kernels.SCORES, save_out=True)
            del scores
            weights = net.cast(net.dropout(weights, model.attention_dropout), half)
            out = tape.op("bmm", [weights, value], width, value.dtype, saves=[weights, value], flops=_flops(model))
            out = net.contiguous(out)
            del weights, query, key, value, bias
            return lin(out, names.out)

    def _scores(self, left: Ref, right: Ref, numel: int, symbols: tuple[str, ...]) -> Ref:
        return self.net.tape.op(
            "bmm", [left, right], numel, left.dtype, symbols=symbols, saves=[left, right], flops=_flops(self.net.model)
        )

    def _distances(self, query: Ref, key: Ref) -> Ref:
        """``disentangled_attention_bias``: content to position and position to content, with shared projections."""
        net, tape, model, lin, names = self.net, self.net.tape, self.net.model, self.linears, self.names
        rows, heads, relative = model.relative_positions, model.heads, self.relative
        assert relative is not None
        table = net.dropout(relative, model.residual_dropout)
        total: Ref | None = None
        locals_ = []
        for side, path in ((key, names.q), (query, names.k)):
            places = lin(table, path)
            repeated = tape.op("repeat", [places], model.q_width, places.dtype, symbols=("b", f"times/{rows}"))
            del places
            spread = self._scores(side, repeated, heads * rows, TOKENS)
            index = tape.leaf(1, DType.INT64, ("s", "s"), "clamp")
            # gather keeps its input for the shape of the zeros that its backward scatters into (derivatives.yaml)
            near = tape.op("gather", [spread], heads, spread.dtype, symbols=kernels.SCORES, saves=[spread, index])
            del spread
            locals_ += [repeated, near, index]
            scaled = net.scale(near)
            total = (
                tape.op("add", [scaled], heads, scaled.dtype, symbols=kernels.SCORES, passes=True)
                if total is None
                else tape.add_into(total, scaled)
            )
            del scaled, near, index, repeated
        assert total is not None
        return total


def _flops(model: Model) -> Flops:
    """One product of the scores, the full square."""
    return Flops("attention", 2 * model.q_width, kernels.SCORES)


class EncoderBuilder(Builder):
    """The forward pass of an encoder and the loss of its head."""

    def __init__(self, model: Model, recipe: Recipe, frozen: bool = False, records: bool = True) -> None:
        super().__init__(model, recipe, frozen, records)
        self.decoder: Encoder = Encoder(self.net, self.linears, self.names)

    def embed(self) -> Ref:
        """Words, then kinds of tokens, then places; a norm and dropout."""
        net, model = self.net, self.model
        hidden = self._rows(self._active(self.names.embedding), TOKENS, forced=self._forced())
        if model.token_types:
            types = self._rows("embeddings.token_type_embeddings.weight", TOKENS)
            hidden = net.add(hidden, types)
            del types
        if model.position == "learned":
            symbols = TOKENS if model.family == "roberta" else ("s",)  # RoBERTa counts them in each row
            hidden = net.add(hidden, self._rows(f"{self.names.position}.weight", symbols))
        hidden = net.layer_norm(hidden, self.names.embedding_norm)
        return net.dropout(hidden, model.embedding_dropout)

    def _rows(self, table: str, symbols: tuple[str, ...], *, forced: bool = False) -> Ref:
        net = self.net
        trainable = net.trainable(table)
        ids = self.tape.leaf(1, DType.INT64, symbols, "ids")
        found = self.tape.op(
            "embedding",
            [],
            self.model.hidden,
            net.weight_dtype(table),
            symbols=symbols,
            saves=[ids] if trainable else [],
            params=(table,) if trainable else (),
            needs_grad=trainable or forced,
        )
        if forced and not trainable:
            net.forced_leaf(found)
        return found

    def positions(self, hidden: Ref) -> Positions:
        """No mask where no row is padded: nothing is hidden from anyone."""
        tape, model, recipe = self.tape, self.model, self.recipe
        cos = sin = mask = None
        if model.position == "rope":
            cos, sin = (tape.leaf(model.head_dim, hidden.dtype, ("s",), name) for name in ("cos", "sin"))
        if model.family == "deberta-v2":
            mask = tape.leaf(1, DType.BOOL, kernels.SCORES, "attention_mask")
        elif (recipe.padded or model.sliding_window) and attention_in_use(self.net) != "flash2":
            dtype = DType.BOOL if attention_in_use(self.net) == "sdpa" else hidden.dtype
            mask = tape.leaf(1, dtype, kernels.SCORES, "attention_mask")
        return Positions(cos, sin, mask)

    def build(self, folded: bool) -> Step:
        tape, model, net = self.tape, self.model, self.net
        with tape.block("embedding"):
            self.register(embedding_parameters(model))
            if model.family == "deberta-v2":
                self.register(final_parameters(model))
                if model.relative_positions:
                    rows = (f"times/{model.relative_positions}",)
                    table = "encoder.rel_embeddings.weight"
                    params = (table,) if net.trainable(table) else ()
                    places = tape.op(
                        "rel_embeddings", [], model.hidden, net.weight_dtype(table), symbols=rows, params=params
                    )
                    self.decoder.relative = net.layer_norm(places, "encoder.LayerNorm")
                    del places
            hidden = self.embed()
            at = self.positions(hidden)
        hidden = self.layers(hidden, at, folded)
        with tape.block("head", phase="loss"):
            if model.family != "deberta-v2":
                self.register(final_parameters(model))
            self.register(head_parameters(model))
            if model.family == "modernbert":
                hidden = net.layer_norm(hidden, "final_norm")
            del at
            self.decoder.relative = None
            loss = self._loss(hidden)
            del hidden
            tape.hold(loss)
            net.weight_casts.clear()
        return tape.finish()

    # -- heads ---------------------------------------------------------------------------------------

    def _dense(self, x: Ref, path: str, n_out: int) -> Ref:
        if path in self.linears.shapes:
            return self.linears(x, path)
        bias = f"{path}.bias"
        return self.net.dense(x, f"{path}.weight", n_out, bias=bias if bias in self.tape.params else None)

    def _loss(self, hidden: Ref) -> Ref:
        net, model, heads = self.net, self.model, [p.module for p in head_parameters(self.model)]
        if model.head == "mlm":
            dense, norm = heads[0], next(m for m in heads if "orm" in m)
            hidden = net.layer_norm(net.unary("gelu", self._dense(hidden, dense, model.hidden)), norm)
            name = self._active(self.names.embedding if model.tied else self.names.head)
            logits = net.dense(hidden, name, model.vocab, bias=f"{self.names.head}.bias", kind="head")
            del hidden
            return self._cross_entropy(logits, model.vocab, TOKENS, upcast=model.family == "modernbert")
        if model.head == "token":
            return self._cross_entropy(
                self._dense(net.dropout(hidden, model.residual_dropout), "classifier", model.labels),
                model.labels,
                TOKENS,
            )
        # one vector a row: the first token, through what the class puts before its labels
        row = self.tape.op("select", [hidden], model.hidden, hidden.dtype, symbols=_ROW)
        for path in dict.fromkeys(m for m in heads if m not in ("classifier", "classifier.out_proj", "head.norm")):
            row = self.tape.op(
                "tanh", [self._dense(row, path, model.hidden)], model.hidden, row.dtype, symbols=_ROW, save_out=True
            )
        last = next((m for m in heads if m in ("classifier", "classifier.out_proj")), None)
        logits = self._dense(row, last, model.labels) if last else row
        return self._cross_entropy(logits, logits.numel, _ROW)

    def _cross_entropy(self, logits: Ref, width: int, symbols: tuple[str, ...], *, upcast: bool = False) -> Ref:
        """``CrossEntropyLoss`` in the dtype of the logits; ModernBERT's loss function makes an fp32 copy first."""
        net, tape = self.net, self.tape
        labels = tape.leaf(1, DType.INT64, symbols, "labels")
        held = net.alias(logits)
        if upcast:
            logits = net.cast(logits, DType.FP32, category="logits")
        found = tape.op("log_softmax", [logits], width, logits.dtype, symbols=symbols, save_out=True, category="logits")
        del logits
        if net.autocast is not None:
            found = net.cast(found, DType.FP32, category="logits")
        loss = tape.op("nll_loss", [found], 1, found.dtype, symbols=(), saves=[found, labels], category="logits")
        if self.recipe.keeps_outputs:
            tape.hold(held)
        if net.autocast is not None:  # accelerate's convert_outputs_to_fp32
            held = net.cast(held, DType.FP32, category="logits")
        return loss
