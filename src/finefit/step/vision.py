"""The forward pass of a vision tower and its projector, written line by line after transformers 5.24.0.

``models/qwen2_vl``, ``qwen2_5_vl``, ``qwen3_vl``, ``siglip`` with ``gemma3`` and ``paligemma``, ``clip`` with
``llava``, ``pixtral`` with ``mistral3``. Sizes count patches of one sample, so they grow with the batch alone.
"""

from __future__ import annotations

from collections.abc import Callable

from finefit.step.decoder import Decoder
from finefit.step.linear import Linears
from finefit.step.net import Net
from finefit.step.ops import Flops
from finefit.step.size import Size
from finefit.step.tape import Ref, Tape
from finefit.workload.dtypes import DType
from finefit.workload.families import layout
from finefit.workload.parameters import Parameter, layer_parameters
from finefit.workload.tower import Grid, Tower
from finefit.workload.vision import CHANNELS, LLAVA, QWEN, outside

Register = Callable[[tuple[Parameter, ...], str, bool], None]  # tensors, prefix, frozen
# Kinds whose tower names its patch embedding (``_input_embed_layer``, ``get_input_embeddings``)
HOOKED = frozenset({"qwen2_vl", "qwen2_5_vl", "exaone4_5", "gemma3", "paligemma", "llava", "llava_next", "mistral3"})
_UNFOLDED = 5  # layers: first two, one in the middle, last two


def rows(count: int) -> tuple[str, ...]:
    """Symbols of a tensor with so many rows a sample."""
    return ("b", f"times/{count}")


class Vision:
    """Runs one tower on a tape.

    Args:
        net: operations of the language model, whose casts of weights are shared.
        forced: the output of the patch embedding is made to require gradients, as PEFT's hooks do.
    """

    def __init__(self, net: Net, linears: Linears, tower: Tower, grid: Grid, register: Register, forced: bool) -> None:
        self.tape: Tape = net.tape
        self.tower, self.grid, self.register, self.forced = tower, grid, register, forced
        self.net = Net(net.tape, tower.body, net.recipe)
        self.net.weight_casts, self.net.cached = net.weight_casts, net.cached
        self.linears = Linears(self.net)
        # one record of which modules exist and what is beside them
        self.linears.shapes, self.linears.quantised = linears.shapes, linears.quantised
        self.linears.adapted, self.linears.biased = linears.adapted, linears.biased
        self.names = layout(tower.body.family)
        self.layers = Decoder(self.net, self.linears, self.names)
        self.parts = outside(tower)
        special = 1 if tower.kind in LLAVA else 0
        self.length = grid.patches + special  # rows of one sequence
        self.patches = rows(grid.sequences * self.length)
        frozen = net.recipe.frozen
        self.frozen_tower, self.frozen_projector = "tower" in frozen, "projector" in frozen

    # -- before the layers ---------------------------------------------------------------------------

    def _conv(self, path: str, symbols: tuple[str, ...]) -> Ref:
        """Pixels in fp32, cast to the weight's dtype; the convolution saves them for its weight's gradient."""
        net, tape, tower = self.net, self.tape, self.tower
        weight, bias = f"{path}.weight", f"{path}.bias"
        each = CHANNELS * tower.temporal * tower.patch**2
        pixels = tape.leaf(each, DType.FP32, symbols, "pixel_values")
        tape.hold(pixels)  # the batch lives as long as the step
        x = net.cast(pixels, net.weight_dtype(weight))
        if net.autocast is not None:
            x = net.cast(x, net.autocast)
        copy, dtype = net.weight(weight)
        params = tuple(p for p in (weight, bias) if p in tape.params and net.trainable(p))
        inputs = [copy] if copy is not None and copy.needs_grad else []
        with tape.module(path):
            out = tape.op(
                "convolution",
                inputs,
                tower.body.hidden,
                dtype,
                symbols=symbols,
                saves=[x] if params else [],
                params=params if not inputs else tuple(p for p in params if p == bias),
                needs_grad=bool(params) or self.forced,
                flops=Flops("vision", 2 * each * tower.body.hidden, symbols),
            )
        if self.forced and not params:
            net.forced_leaf(out)
        return out

    def _table(self, x: Ref, path: str, symbols: tuple[str, ...]) -> Ref:
        """``x + position_embedding(ids)``, one row of positions for all sequences."""
        net = self.net
        table = f"{path}.weight"
        params = (table,) if net.trainable(table) else ()
        places = self.tape.op("embedding", [], x.numel, net.weight_dtype(table), symbols=symbols, params=params)
        return net.add(x, places)

    def embed(self) -> Ref:
        """Patches as the first layer reads them."""
        kind, at = self.tower.kind, self.parts.layers.rpartition(".")[0]
        with self.tape.block("tower.embedding"):
            self.register(self.parts.before, "", self.frozen_tower)
            if kind in QWEN:
                x = self._conv("visual.patch_embed.proj", self.patches)
                if self.tower.positions:
                    x = self._interpolated(x)
                return self._windows(x) if self.tower.window else x
            if kind == "mistral3":
                x = self._conv("vision_tower.patch_conv", self.patches)
                x = self.net.tape.op("cat", [x], x.numel, x.dtype, symbols=x.symbols)
                with self.tape.module("vision_tower.ln_pre"):
                    return self.net.rms_norm(x, "vision_tower.ln_pre.weight")
            base = f"{at.rpartition('.')[0]}.embeddings"
            x = self._conv(f"{base}.patch_embedding", rows(self.grid.sequences * self.grid.patches))
            one = (f"times/{self.length}",)
            if kind not in LLAVA:
                return self._table(x, f"{base}.position_embedding", one)
            name = f"{base}.class_embedding"
            params = (name,) if self.net.trainable(name) else ()
            x = self.tape.op("cat", [x], x.numel, x.dtype, symbols=self.patches, params=params)
            x = self._table(x, f"{base}.position_embedding", one)
            return self.net.layer_norm(x, "vision_tower.pre_layrnorm")

    def _interpolated(self, x: Ref) -> Ref:
        """Four neighbours of the learned grid, weighted and summed (qwen3_vl ``pos_embed``)."""
        net, tape = self.net, self.tape
        table = "visual.pos_embed.weight"
        params = (table,) if net.trainable(table) else ()
        ids = tape.leaf(4, DType.INT64, self.patches, "interp_indices")
        weights = tape.leaf(4, DType.FP32, self.patches, "interp_weights")
        near = tape.op(
            "embedding", [], 4 * x.numel, net.weight_dtype(table), symbols=x.symbols, params=params, saves=[ids]
        )
        wide = net.mul(near, weights)
        del near
        summed = tape.op("sum", [wide], x.numel, wide.dtype, symbols=x.symbols)
        del wide
        return net.add(x, net.cast(summed, x.dtype))

    def _windows(self, x: Ref) -> Ref:
        """Patches gathered window by window: the index and a copy (qwen2_5_vl ``permute_input_for_window_attn``)."""
        return self.tape.op("index", [x], x.numel, x.dtype, symbols=x.symbols)

    # -- layers --------------------------------------------------------------------------------------

    def _rotary(self, dtype: DType) -> tuple[Ref, Ref] | None:
        body, kind = self.tower.body, self.tower.kind
        if kind not in QWEN and kind != "mistral3":
            return None
        dtype = DType.FP32 if kind in QWEN else dtype
        cos, sin = (self.tape.leaf(body.head_dim, dtype, self.patches, name) for name in ("cos", "sin"))
        return cos, sin

    def _rotate(self, x: Ref, cos: Ref, sin: Ref) -> Ref:
        """In fp32 in Qwen's towers, in the layer's own dtype in Pixtral."""
        net = self.net
        wide = net.cast(x, DType.FP32) if self.tower.kind in QWEN else net.alias(x)
        half = Size(wide.dtype.bytes, x.numel // 2, x.symbols)
        turned = self.tape.op(
            "cat", [wide], x.numel, wide.dtype, symbols=x.symbols, temps=(half,), back=(half, wide.size)
        )
        out = net.add(net.mul(wide, cos), net.mul(turned, sin))
        del turned, wide
        return net.cast(out, x.dtype)

    def attention(self, x: Ref, tables: tuple[Ref, Ref] | None, mask: Ref | None, index: int) -> Ref:
        net, names, lin, body = self.net, self.names, self.linears, self.tower.body
        with self.tape.module(names.attention):
            if body.fused_qkv:
                qkv = lin(x, names.qkv)
                query, key, value = self.tape.split(qkv, [body.q_width] * 3, "unbind")
                del qkv
            else:
                query, key, value = lin(x, names.q), lin(x, names.k), lin(x, names.v)
            if tables is not None:
                cos, sin = tables
                query, key = self._rotate(query, cos, sin), self._rotate(key, cos, sin)
                del cos, sin
            if self.tower.kind in QWEN and net.recipe.attention != "flash2":  # one chunk a sequence or window
                query, key, value = (self.tape.split(t, [t.numel])[0] for t in (query, key, value))
            out = self._kernel(query, key, value, mask, index)
            del query, key, value
            if self.tower.kind in QWEN and net.recipe.attention != "flash2":  # chunks are joined by ``cat``
                out = self.tape.op("cat", [out], out.numel, out.dtype, symbols=out.symbols, passes=True)
            return lin(out, names.out)

    def _kernel(self, query: Ref, key: Ref, value: Ref, mask: Ref | None, index: int) -> Ref:
        """Attention inside a sequence or a window: scores are never kept but by the eager implementation."""
        net, tape, body = self.net, self.tape, self.tower.body
        if net.autocast is not None:
            query, key, value = (net.cast(t, net.autocast) for t in (query, key, value))
        length = self.length
        if self.tower.window and index not in self.tower.full:
            length = min(length, (self.tower.window // self.tower.patch) ** 2)
        if mask is not None:
            length = self.grid.sequences * self.length  # times the batch, in the mask's symbols
        flops = Flops("vision", 4 * length * body.q_width, self.patches)
        heads, dtype = body.heads, query.dtype
        if net.recipe.attention == "eager":
            rows = (heads * length, self.patches) if mask is None else (heads, self.patches + self.patches)
            return self._eager(query, key, value, mask, *rows, flops)
        stats = tape.op("logsumexp", [], heads, DType.FP32, symbols=self.patches, needs_grad=False)
        inner: tuple[Size, ...] = ()
        if mask is None and dtype != DType.FP32:
            padded, d32 = -(-length // 128) * 128, -(-body.head_dim // 32) * 32
            inner = (Size(4, heads * d32 * padded), Size(4, heads * padded))
        return tape.op(
            "flash_attention" if inner else "efficient_attention",
            [query, key, value],
            body.q_width,
            dtype,
            symbols=self.patches,
            saves=[query, key, value, stats, *([mask] if mask is not None else [])],
            save_out=True,
            back_assumed=inner,
            flops=flops,
        )

    def _eager(
        self, query: Ref, key: Ref, value: Ref, mask: Ref | None, heads: int, rows: tuple[str, ...], flops: Flops
    ) -> Ref:
        """``eager_attention_forward``: ``heads`` x ``rows`` scores, the softmax in fp32."""
        net, tape, dtype = self.net, self.tape, query.dtype
        scores = tape.op("bmm", [query, key], heads, dtype, symbols=rows, saves=[query, key], flops=flops)
        scores = net.scale(scores)
        if mask is not None:
            scores = net.add(scores, mask)
        weights = tape.op("softmax", [net.cast(scores, DType.FP32)], heads, DType.FP32, symbols=rows, save_out=True)
        del scores
        weights = net.cast(weights, dtype)
        out = tape.op("bmm", [weights, value], query.numel, dtype, symbols=self.patches, saves=[weights, value])
        return net.contiguous(out)

    def layer(self, x: Ref, tables: tuple[Ref, Ref] | None, mask: Ref | None, index: int) -> Ref:
        net, norms = self.net, self.names.norms
        x = net.add(x, self.attention(self.layers.norm(x, norms[0]), tables, mask, index))
        return net.add(x, self.layers.mlp(self.layers.norm(x, norms[1])))

    def _mask(self, dtype: DType) -> Ref | None:
        """Pixtral's mask over all pictures of the batch, in their dtype (``generate_block_attention_mask``)."""
        if self.tower.kind != "mistral3" or self.net.recipe.attention == "flash2":
            return None
        return self.tape.leaf(1, dtype, self.patches + self.patches, "block_mask")

    def run(self, folded: bool) -> tuple[Ref, list[Ref]]:
        """Tokens of the pictures (M, H), and those that DeepStack adds inside the language model."""
        x = used = self.embed()
        tables, mask = self._rotary(x.dtype), self._mask(x.dtype)
        deep: list[Ref] = []
        for index, repeat in self._folds() if folded else [(i, 1) for i in range(self.tower.body.layers)]:
            path = f"{self.parts.layers}.{index}"
            with self.tape.block(path, repeat=repeat) as block, self.tape.module(path):
                unused = self.tower.kind in LLAVA and index == self.tower.body.layers - 1
                self.register(layer_parameters(self.tower.body, index), f"{path}.", self.frozen_tower or unused)
                block.entries = tuple(v.value for v in (x, *(tables or ()), mask) if v is not None)
                # the last layer of a CLIP tower is run, but the one before it is used
                x = self.layer(self.tape.detach(x) if unused else x, tables, mask, index)
                block.exit = x.value
                # where no gradient is asked for, a checkpoint keeps nothing either
                block.checkpointed = self.net.recipe.checkpointing == "full" and x.needs_grad
                if self.tower.kind in LLAVA:
                    self.net.cache(x)  # all hidden states are asked for
                used = used if unused else x
            if index in self.tower.taps:
                path = f"visual.deepstack_merger_list.{self.tower.taps.index(index)}"
                with self.tape.block(f"deepstack.{index}"):
                    self.register(_below(self.parts.projector, path), "", self.frozen_projector)
                    deep.append(self._merge(x, path, joined=True))
        del tables, mask
        with self.tape.block("projector"):
            self.register(self.parts.after, "", self.frozen_tower or self.tower.kind in LLAVA)
            rest = _below(self.parts.projector, "visual.merger") if deep else self.parts.projector
            self.register(rest, "", self.frozen_projector)
            tokens = self.project(used)
            self.net.cache(x, tokens, *deep)  # the model's outputs hold them
            return tokens, deep

    # -- after the layers ----------------------------------------------------------------------------

    def _view(self, x: Ref, numel: int, count: int) -> Ref:
        """The same tensor with other rows."""
        return Ref(self.tape, x.value, numel, rows(count), x.dtype)

    def _merge(self, x: Ref, path: str, joined: bool) -> Ref:
        """Patches joined to tokens, then two linear modules; DeepStack's normalise after the joining."""
        net, tower, lin = self.net, self.tower, self.linears
        wide, tokens = tower.body.hidden * tower.merge**2, self.grid.sequences * self.grid.patches // tower.merge**2
        second = tower.kind in ("qwen2_vl", "qwen2_5_vl", "exaone4_5")
        norm, first, last = ("ln_q", "mlp.0", "mlp.2") if second else ("norm", "linear_fc1", "linear_fc2")
        with self.tape.module(path):
            if joined:
                x = self.layers.norm(self._view(x, wide, tokens), norm)
            else:
                x = self._view(self.layers.norm(x, norm), wide, tokens)
            return lin(net.unary("gelu", lin(x, first)), last)

    def project(self, x: Ref) -> Ref:
        """Features of the last layer (P, D) as tokens of the language model (M, H)."""
        net, tape, tower, lin = self.net, self.tape, self.tower, self.linears
        if tower.kind in QWEN:
            out = self._merge(x, "visual.merger", joined=False)
            return tape.op("index", [out], out.numel, out.dtype, symbols=out.symbols) if tower.window else out
        path, grid = "multi_modal_projector", self.grid
        if tower.kind in LLAVA:
            # [:, 1:] drops the class token; the product needs rows side by side, so it copies
            x = tape.op("slice", [x], x.numel, x.dtype, symbols=rows(grid.sequences * grid.patches))
            with tape.module(path):
                return lin(net.unary("gelu", lin(x, "linear_1")), "linear_2")
        if tower.kind == "mistral3":
            merged = grid.sequences * grid.patches // tower.merge**2
            with tape.module(path):
                x = net.rms_norm(x, f"{path}.norm.weight")
                x = self._view(tape.op("im2col", [x], x.numel, x.dtype, symbols=x.symbols), 0, merged)
                x = Ref(tape, x.value, tower.body.hidden * tower.merge**2, x.symbols, x.dtype)
                x = lin(x, "patch_merger.merging_layer")
                return lin(net.unary("gelu", lin(x, "linear_1")), "linear_2")
        x = net.layer_norm(x, "vision_tower.post_layernorm")
        with tape.module(path):
            if tower.kind == "paligemma":
                return net.scale(lin(x, "linear"))
            x = net.contiguous(x)
            x = tape.op("avg_pool2d", [x], x.numel, x.dtype, symbols=rows(grid.tokens), saves=[x])
            x = net.rms_norm(x, f"{path}.mm_soft_emb_norm.weight", gemma=True)
            return net.dense(x, f"{path}.mm_input_projection_weight", tower.out)

    def _folds(self) -> list[tuple[int, int]]:
        """(layer, how many it stands for): runs of layers that do the same."""
        body, special = self.tower.body, set(self.tower.full) | set(self.tower.taps)
        out: list[tuple[int, int]] = []
        start = 0
        for index in range(1, body.layers + 1):
            if index < body.layers and index not in special and index - 1 not in special:
                continue
            alike = index - start
            if alike > _UNFOLDED:
                out += [(start, 1), (start + 1, 1), (start + 2, alike - 4), (index - 2, 1), (index - 1, 1)]
            else:
                out += [(layer, 1) for layer in range(start, index)]
            start = index
        return out


def _below(parameters: tuple[Parameter, ...], path: str) -> tuple[Parameter, ...]:
    return tuple(p for p in parameters if p.name.startswith(f"{path}."))


def idle(tower: Tower) -> list[tuple[str, tuple[Parameter, ...], str]]:
    """Blocks of a tower that is loaded but sees no picture: name, tensors, prefix."""
    parts = outside(tower)
    out = [("tower.embedding", (*parts.before, *parts.after), "")]
    out += [
        (f"{parts.layers}.{i}", layer_parameters(tower.body, i), f"{parts.layers}.{i}.")
        for i in range(0 if tower.opaque else tower.body.layers)
    ]
    return [*out, ("projector", parts.projector, "")]


def add_deep(net: Net, hidden: Ref, tokens: Ref) -> Ref:
    """``_deepstack_process``: a copy of the hidden states, in which the rows of pictures get features added.

    Reading rows by a mask makes their indices (int64); the sum is written back in place.
    """
    tape = net.tape
    mask = tape.leaf(1, DType.BOOL, name="visual_pos_masks")
    hidden = net.contiguous(hidden)
    index = tape.leaf(1, DType.INT64, tokens.symbols, "nonzero")
    rows_read = tape.op("index", [hidden], tokens.numel, hidden.dtype, symbols=tokens.symbols, saves=[index])
    summed = net.add(rows_read, tokens)
    del rows_read
    return tape.op("index_put", [hidden, summed], hidden.numel, hidden.dtype, saves=[mask, index])
