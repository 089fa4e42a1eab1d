"""Whisper: sound to text, after transformers 5.24.0 ``models/whisper/modeling_whisper.py``.

The encoder always reads 30 seconds (1,500 places); the text has the length of the longest sample.
"""

from __future__ import annotations

from finefit.step.ops import Flops, Step
from finefit.step.seq2seq import Seq2Seq, folds
from finefit.step.size import Size
from finefit.step.tape import TOKENS, Ref
from finefit.workload.dtypes import DType
from finefit.workload.parameters import embedding_parameters, final_parameters, layer_parameters


class Whisper(Seq2Seq):
    """Runs Whisper on a tape."""

    def _convolve(self, x: Ref, name: str, symbols: tuple[str, ...]) -> Ref:
        """A convolution of three places and GELU; both keep what they read."""
        net, tape = self.net, self.tape
        weight, bias = f"encoder.{name}.weight", f"encoder.{name}.bias"
        copy, dtype = net.weight(weight)
        x = net.cast(x, dtype)
        trained = net.trainable(weight)
        params = (bias,) if trained and copy is not None else (weight, bias) if trained else ()
        inputs = [x] if copy is None or not copy.needs_grad else [x, copy]
        saves = [x] if trained or x.needs_grad else []  # one formula for all its gradients: kept for any of them
        hidden = self.model.hidden
        flops = Flops("vision", 6 * x.numel * hidden, symbols)
        out = tape.op("convolution", inputs, hidden, dtype, symbols=symbols, saves=saves, params=params, flops=flops)
        if name == "conv1" and self._forced() and not trained:  # WhisperEncoder calls it its input embedding
            tape.require(out)
            net.forced_leaf(out)
        return net.unary("gelu", out)

    def attend(self, x: Ref, source: Ref, path: str, keys: int) -> Ref:
        """Queries are scaled and laid out head by head, so what the kernel gives is copied back.

        ``keys``: places that are attended to, 0 for the text's own length.
        """
        net, tape, model, lin = self.net, self.tape, self.model, self.linears
        with tape.module(path):
            query = net.contiguous(net.scale(lin(x, "q_proj")))
            key, value = lin(source, "k_proj"), lin(source, "v_proj")
            if net.autocast is not None:
                query, key, value = (net.cast(t, net.autocast) for t in (query, key, value))
            rows, heads, width = query.symbols, model.heads, model.q_width
            span = (f"times/{keys}",) if keys else ("s",)
            flops = Flops("attention", 4 * width, tuple(sorted((*rows, *span))))
            if self.recipe.attention == "eager":
                out = self._scores(query, key, value, tuple(sorted((*rows, *span))), flops)
            else:
                stats = tape.op("logsumexp", [], heads, DType.FP32, symbols=rows, needs_grad=False)
                half = query.dtype != DType.FP32
                padded = tuple("s128" if s == "s" else s for s in rows)
                d32 = -(-model.head_dim // 32) * 32
                inner = (Size(4, heads * d32, padded), Size(4, heads, padded)) if half else ()
                out = tape.op(
                    "flash_attention" if half else "efficient_attention",
                    [query, key, value],
                    width,
                    query.dtype,
                    symbols=rows,
                    saves=[query, key, value, stats],
                    save_out=True,
                    back_assumed=inner,
                    flops=flops,
                )
                if half:  # the other kernel lays its output out by places
                    out = net.contiguous(out)
            del query, key, value
            return lin(out, "out_proj")

    def _scores(self, query: Ref, key: Ref, value: Ref, symbols: tuple[str, ...], flops: Flops) -> Ref:
        net, tape, heads = self.net, self.tape, self.model.heads
        scores = tape.op("bmm", [query, key], heads, query.dtype, symbols=symbols, saves=[query, key], flops=flops)
        scores = net.scale(scores)
        half = scores.dtype
        if net.autocast is not None:
            scores = net.cast(scores, DType.FP32)
        weights = net.cast(tape.op("softmax", [scores], heads, scores.dtype, symbols=symbols, save_out=True), half)
        del scores
        out = tape.op("bmm", [weights, value], query.numel, half, symbols=query.symbols, saves=[weights, value])
        return net.contiguous(out)

    def one_layer(self, hidden: Ref, source: Ref | None, prefix: str) -> Ref:
        net, places = self.net, self.model.source_positions
        normed = net.layer_norm(hidden, f"{prefix}self_attn_layer_norm")
        attended = self.attend(normed, normed, "self_attn", places if source is None else 0)
        hidden = net.add(hidden, self.dropout(attended))
        del normed, attended
        if source is not None:
            normed = net.layer_norm(hidden, f"{prefix}encoder_attn_layer_norm")
            attended = self.attend(normed, source, "encoder_attn", places)
            hidden = net.add(hidden, self.dropout(attended))
            del normed, attended
        normed = net.layer_norm(hidden, f"{prefix}final_layer_norm")
        inner = self.decoder.activation(self.linears(normed, "fc1"))
        return net.add(hidden, self.dropout(self.linears(inner, "fc2")))

    def run(self, hidden: Ref, source: Ref | None, span: range, path: str, folded: bool) -> Ref:
        for index, repeat in folds(span) if folded else [(i, 1) for i in span]:
            name = f"{path}.layers.{index - span.start}"
            with self.tape.block(name, index, repeat=repeat) as block, self.tape.module(name):
                self.register(layer_parameters(self.model, index), f"{name}.")
                block.entries = tuple(x.value for x in (hidden, source) if x is not None)
                hidden = self.one_layer(hidden, source, f"{name}.")
                block.exit = hidden.value
                block.checkpointed = self.recipe.checkpointing == "full" and hidden.needs_grad
        return hidden

    def build(self, folded: bool) -> Step:
        net, tape, model = self.net, self.tape, self.model
        places = model.source_positions
        rows, twice = ("b", f"times/{places}"), ("b", f"times/{2 * places}")
        with tape.block("embedding"):
            self.register(embedding_parameters(model))
            self.register(final_parameters(model))
            sound = tape.leaf(model.mel_bins, self.recipe.weight_dtype, twice, "input_features")
            tape.hold(sound)
            hidden = self._convolve(self._convolve(sound, "conv1", twice), "conv2", rows)
            fixed = tape.leaf(model.hidden, net.weight_dtype("encoder.embed_positions.weight"), rows[1:], "positions")
            hidden = self.dropout(net.add(hidden, fixed))
            del fixed
        hidden = self.run(hidden, None, range(model.encoder_layers), "encoder", folded)
        with tape.block("between"):
            source = net.layer_norm(hidden, "encoder.layer_norm")
            net.cache(source)  # the outputs hold it
            hidden = self.words()
        hidden = self.run(hidden, source, range(model.encoder_layers, model.layers), "decoder", folded)
        with tape.block("head", phase="loss"):
            loss = self._loss(net.layer_norm(hidden, "decoder.layer_norm"))
            del hidden, source
            tape.hold(loss)
            net.weight_casts.clear()
            net.cached.clear()
        return tape.finish()

    def words(self) -> Ref:
        """Words and their places, counted in each row."""
        net, tape, model = self.net, self.tape, self.model
        found: list[Ref] = []
        for name in (self._active(self.names.embedding), "decoder.embed_positions.weight"):
            trained = net.trainable(name)
            ids = tape.leaf(1, DType.INT64, TOKENS, "ids")
            found.append(
                tape.op(
                    "embedding",
                    [],
                    model.hidden,
                    net.weight_dtype(name),
                    saves=[ids] if trained else [],
                    params=(name,) if trained else (),
                    needs_grad=trained or (self._forced() and not found),
                )
            )
        return self.dropout(net.add(found[0], found[1]))
