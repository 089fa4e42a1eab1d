"""From a model and a recipe to the ``Step``: which parameters live where, and the forward pass.

``folded``: of layers in a row that hold the same tensors, those between the second and the last but one
are identical; one stands for all of them (``Block.repeat``), so building and evaluating does not depend
on the depth. The replay of the caching allocator needs every event and asks for the unfolded step.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from finefit.step.attention import WIDE_ROTARY
from finefit.step.decoder import Decoder, Positions, attention_in_use
from finefit.step.linear import Linears
from finefit.step.loss import chunked_loss, full_loss, fused_linear_loss
from finefit.step.net import Net
from finefit.step.ops import COMPARE, Param, Step
from finefit.step.preference import LOGPROBS, inplace_loss, logprob_loss, score_loss, value_head_loss
from finefit.step.refusals import refuse
from finefit.step.size import Size
from finefit.step.tape import TOKENS, Ref, Tape
from finefit.step.versions import boolean_masks, keeps_triangle, masks_window, version_tuple
from finefit.step.vision import HOOKED, Vision, add_deep, idle
from finefit.workload.dtypes import DType
from finefit.workload.families import layout
from finefit.workload.lora import adapter_tensors
from finefit.workload.model import Model
from finefit.workload.parameters import (
    DECODERS,
    Parameter,
    embedding_parameters,
    final_parameters,
    head_parameters,
    layer_parameters,
)
from finefit.workload.pixels import grid
from finefit.workload.recipe import Recipe
from finefit.workload.tower import Tower
from finefit.workload.vision import QWEN

# transformers 5.24.0 _keep_in_fp32_modules_strict names gate.weight and e_score_correction_bias
_FP32_ROUTERS = frozenset(
    [
        "glm4_moe",
        "dots1",
        "ernie4_5_moe",
        "deepseek_v2",
        "deepseek_v3",
        "glm4_moe_lite",
        "solar_open",
        "hy_v3",
        "nemotron_h",
    ]
)
_UNFOLDED = 5  # first two, one in the middle, last two


class Builder:
    """``frozen``: no parameter is trained, as in a reference model; ``records``: autograd does."""

    def __init__(self, model: Model, recipe: Recipe, frozen: bool = False, records: bool = True) -> None:
        self.model, self.recipe, self.frozen = model, recipe, frozen
        self.tape = Tape(records)
        self.net = Net(self.tape, model, recipe)
        self.linears = Linears(self.net)
        self.names = layout(model.family)
        self.decoder = Decoder(self.net, self.linears, self.names)
        self.inputs: list[Ref] = []  # embeddings that variables of the model's forward hold to its end
        self.deep: list[Ref] = []  # what DeepStack adds after the first layers

    # -- parameters --------------------------------------------------------------------------------

    def _resident_dtype(self, kind: str) -> DType:
        """dtype of parameters that are neither adapters nor quantised."""
        if kind in ("router", "router_bias") and self.model.family in _FP32_ROUTERS:
            return DType.FP32
        quant = self.recipe.quant
        if quant is None or not quant.kbit_prepare:
            return self.recipe.weight_dtype
        if quant.recast and kind in ("embedding", "position", "head"):
            return quant.compute_dtype
        return DType.FP32

    def _declare(
        self,
        name: str,
        dtype: DType,
        numel: int,
        trainable: bool,
        category: str,
        symbols: tuple[str, ...] = (),
        copies: int = 1,
        shape: tuple[int | str, ...] = (),
    ) -> None:
        """FSDP with mixed precision gathers in the compute dtype what it stores in another."""
        trainable = trainable and not self.frozen
        stored = None
        if self.recipe.sharding.kind == "fsdp" and self.recipe.autocast is not None and dtype == DType.FP32:
            stored, dtype = dtype, self.recipe.autocast
        self.tape.param(Param(name, dtype, numel, trainable, category, symbols, stored, copies, shape))

    def register(self, parameters: tuple[Parameter, ...], prefix: str = "", frozen: bool | None = None) -> None:
        """``frozen``: neither trained nor adapted; None: what the recipe says of the language model."""
        recipe = self.recipe
        frozen = "language" in recipe.frozen if frozen is None else frozen
        lora = recipe.lora if recipe.method == "lora" and not frozen else None
        for p in parameters:
            name, module = f"{prefix}{p.name}", f"{prefix}{p.module}"
            if p.kind in ("linear", "head"):
                out, inn = reversed(p.shape) if self.names.conv1d and p.kind == "linear" else p.shape
                self.linears.shapes[module] = (inn, out)
            if p.kind == "bias":
                self.linears.biased.add(module)
            if p.kind == "linear" and recipe.quant is not None:
                self._quantised(name, module, p.numel)
            else:
                trained = recipe.method != "lora" and not frozen and p.kind not in ("router_bias", "fixed")
                copies = recipe.parallel.expert if p.kind == "experts" else 1
                dtype = self._resident_dtype(p.kind)
                if recipe.trained is not None:
                    trained = trained and recipe.trained.holds(name)
                    dtype = recipe.trained.dtype or dtype if trained else dtype
                self._declare(name, dtype, p.numel, trained, "weights", copies=copies, shape=p.shape)
            leaf = p.module.rpartition(".")[2]
            if lora is not None and p.kind == "linear" and (leaf in lora.targets or p.module in lora.targets):
                inn, out = self.linears.shapes[module]
                self.linears.adapted.add(module)
                for tensor in adapter_tensors(lora, leaf, inn, out):
                    name, shape = f"{module}.{tensor.name}", tensor.shape
                    numel = prod(side for side in shape if isinstance(side, int))
                    symbols = tuple(side for side in shape if isinstance(side, str))
                    self._declare(name, lora.dtype, numel, tensor.trained, "adapters", symbols, shape=shape)
                if lora.kind == "oft":
                    pairs = Size(8, lora.block * (lora.block - 1) // 2)
                    self.tape.buffers += [("rows", pairs), ("cols", pairs)]
            if lora is not None and leaf in lora.modules_to_save and p.kind in ("embedding", "head"):
                dtype = lora.saved_dtype or self._resident_dtype(p.kind)
                self._declare(f"{module}.modules_to_save.weight", dtype, p.numel, True, "adapters", shape=p.shape)

    def _quantised(self, name: str, module: str, numel: int) -> None:
        """bitsandbytes storage: packed weight, block constants, and with double quantisation theirs.

        4 bits: one fp32 constant per 64 weights; doubled: one byte per 64 and one fp32 per 64·256
        (bitsandbytes 0.50.2 functional.quantize_4bit). int8: one fp32 constant per output row.
        """
        quant, tape = self.recipe.quant, self.tape
        assert quant is not None
        self.linears.quantised.add(module)

        def piece(suffix: str, dtype: DType, count: int) -> None:
            tape.param(Param(f"{name}{suffix}", dtype, count, False, "weights"))

        if quant.stored:  # auto_gptq 0.7.1 nn_modules/qlinear/qlinear_triton.py: int32 words, fp16 scales, zero points
            groups = -(-numel // quant.group)
            piece("", DType.UINT8, -(-numel * quant.bits // 8))
            piece(".scales", DType.FP16, groups)
            piece(".qzeros", DType.UINT8, -(-groups * quant.bits // 8))
            if quant.kind == "gptq":
                piece(".g_idx", DType.INT32, self.linears.shapes[module][0])
            return
        if quant.kind == "int8":
            piece("", DType.UINT8, numel)
            piece(".SCB", DType.FP32, self.linears.shapes[module][1])
            return
        blocks = -(-numel // 64)
        piece("", DType.UINT8, -(-numel // 2))
        if quant.double:
            piece(".absmax", DType.UINT8, blocks)
            piece(".nested_absmax", DType.FP32, -(-blocks // 256))
        else:
            piece(".absmax", DType.FP32, blocks)

    # -- forward -----------------------------------------------------------------------------------

    def _active(self, path: str) -> str:
        """The copy that PEFT's ModulesToSaveWrapper runs, where there is one."""
        saved = f"{path}.modules_to_save.weight"
        return saved if saved in self.tape.params else f"{path}.weight"

    def embed(self) -> Ref:
        """Token embedding, position table, scaling and dropout, up to the first layer."""
        net, tape, model = self.net, self.tape, self.model
        name = self._active(self.names.embedding)
        trainable = net.trainable(name)
        forced = self._forced()
        ids = tape.leaf(1, DType.INT64, name="input_ids")
        with tape.module(self.names.embedding):
            sort = (ids.size, ids.size, ids.size)  # aten/native/cuda/Embedding.cu: keys, indices, radix temporary
            hidden = tape.op(
                "embedding",
                [],
                model.hidden,
                net.weight_dtype(name),
                saves=[ids] if trainable else [],
                params=(name,) if trainable else (),
                back_assumed=sort if trainable else (),
                needs_grad=trainable or forced,
                keep_out=forced and not trainable and not self.decoder.gemma,  # the leaf is its AccumulateGrad node's
            )
        if model.position == "learned":
            with tape.module(self.names.position):
                table = f"{self.names.position}.weight"
                params = (table,) if net.trainable(table) else ()
                rows = ("b", "s") if model.family == "opt" else ("s",)  # OPT counts positions in each row's mask
                places = tape.op("embedding", [], model.hidden, net.weight_dtype(table), symbols=rows, params=params)
            self.inputs = [hidden, places]
            hidden = net.add(hidden, places)
        if self.decoder.gemma:
            hidden = net.scale(hidden)  # inside the embedding module, so its output is the leaf
        if model.family in ("granite", "granitemoe", "granitemoehybrid"):
            hidden = net.scale(hidden)
        if model.embedding_norm:
            hidden = self.decoder.norm(hidden, self.names.embedding_norm)
        return net.dropout(hidden, model.embedding_dropout)

    def see(self, tower: Tower, hidden: Ref, folded: bool) -> tuple[Ref, Positions]:
        """Pictures through the tower into the places kept for them; without pictures the tower only lies there."""
        tape, images = self.tape, self.recipe.images
        if images is None or tower.opaque:
            for block, parameters, prefix in idle(tower):
                with tape.block(block):
                    self.register(parameters, prefix, block != "projector" or "projector" in self.recipe.frozen)
            with tape.block("merge"):
                return hidden, self.positions(hidden)
        if self._forced() and not self.net.trainable(self._active(self.names.embedding)):
            with tape.block("embedding.leaf"):
                self.net.forced_leaf(hidden)
        vision = Vision(self.net, self.linears, tower, grid(tower, images), self.register, self._hooked(tower))
        tokens, self.deep = vision.run(folded)
        with tape.block("merge"):
            mask = tape.leaf(1, DType.BOOL, name="image_mask")
            # masked_scatter: the mask is kept for both gradients (derivatives.yaml)
            hidden = tape.op(
                "masked_scatter",
                [hidden, tokens],
                hidden.numel,
                hidden.dtype,
                saves=[mask] if hidden.needs_grad or tokens.needs_grad else [],
            )
            del tokens
            return hidden, self.positions(hidden)

    def _forced(self) -> bool:
        """LoRA with checkpointing calls enable_input_require_grads: the embedding's output is a leaf with gradient."""
        return self.recipe.method == "lora" and self.recipe.checkpointing != "none"

    def _hooked(self, tower: Tower) -> bool:
        """Whether that makes the tower's patch embedding require gradients too.

        transformers 5.24.0 modeling_utils.py hooks every inner model that names its embedding, 4.57 the language
        model's alone; LLaMA-Factory has its own checkpointing, which asks frozen modules for nothing (0.9.5
        model_utils/checkpointing.py).
        """
        version = self.recipe.stack.get("transformers")
        hooks_all = version is None or version_tuple(version) >= (5,)
        return self._forced() and hooks_all and tower.kind in HOOKED and "llamafactory" not in self.recipe.stack

    def positions(self, hidden: Ref) -> Positions:
        tape, model, recipe = self.tape, self.model, self.recipe
        cos = sin = mask = window = None
        if model.position == "rope":
            width = model.latent.rope if model.latent else int(model.head_dim * model.rotary_fraction)
            dtype = DType.FP32 if model.family in WIDE_ROTARY else hidden.dtype
            # positions in three dimensions differ from row to row
            rows = TOKENS if model.tower is not None and model.tower.kind in QWEN and recipe.images else ("s",)
            cos = tape.leaf(width, dtype, rows, "cos")
            sin = tape.leaf(width, dtype, rows, "sin")
        attention = attention_in_use(self.net)
        if attention == "sdpa" and (model.family == "falcon" or model.position == "alibi"):
            alibi = model.position == "alibi"  # the bias of every head is laid into the mask
            dtype = hidden.dtype if alibi else DType.BOOL
            mask = tape.leaf(model.heads if alibi else 1, dtype, ("b", "s", "s"), "causal_mask")
        elif attention != "flash2":
            masked = recipe.padded or attention == "eager" or self._sees_ahead()
            boolean = attention == "sdpa" and boolean_masks(recipe.stack.get("transformers"))
            dtype = DType.BOOL if boolean else hidden.dtype
            slides = "sliding" in model.layer_types and model.family != "gpt_neo"  # its layers cut their own windows
            if masked and (not slides or "full" in model.layer_types):
                mask = tape.leaf(1, dtype, ("b", "s", "s"), "causal_mask")
            if slides and (masked or self._windowed()):
                window = tape.leaf(1, dtype, ("b", "s", "s"), "sliding_window_causal_mask")
        return Positions(cos, sin, mask, window)

    def _windowed(self) -> bool:
        """Whether layers that slide have a mask of their own for SDPA."""
        makes = masks_window(self.model.family, self.recipe.stack.get("transformers"))
        return makes and attention_in_use(self.net) == "sdpa" and self.model.windowed(self.recipe.seq_len)

    def _sees_ahead(self) -> bool:
        """Tokens of one picture attend to each other, so a mask is always made (``token_type_ids`` in training)."""
        tower = self.model.tower
        return tower is not None and tower.kind in ("gemma3", "paligemma") and self.recipe.images is not None

    def _trains(self, index: int) -> bool:
        """Whether a layer has a trained parameter of its own."""
        selected = self.recipe.trained
        if selected is None:
            return True
        return any(selected.holds(f"layers.{index}.{p.name}") for p in layer_parameters(self.model, index))

    def layers(self, hidden: Ref, at: Positions, folded: bool) -> Ref:
        tape, count = self.tape, self.model.layers
        deep = self.deep
        windowed = self._windowed()
        for index, repeat in (
            _folds(self.model, self._trains, len(deep), windowed) if folded else [(index, 1) for index in range(count)]
        ):
            with tape.block(f"layers.{index}", index, repeat=repeat) as block, tape.module(f"layers.{index}"):
                self.register(layer_parameters(self.model, index), f"layers.{index}.")
                block.checkpointed = self.recipe.checkpointing == "full"
                selected = self.recipe.trained
                if selected is not None and selected.selective and block.checkpointed:
                    block.checkpointed = self._trains(index)
                    if block.checkpointed:
                        tape.require(hidden)
                entries = (hidden, at.cos, at.sin, at.of(self.model, index))
                block.entries = tuple(x.value for x in entries if x is not None)
                hidden = self.decoder.layer(hidden, at, index)
                block.exit = hidden.value
                block.checkpointed &= tape.values[hidden.value].needs_grad  # nothing is kept for no backward
            if index < len(deep):
                with tape.block(f"layers.{index}.deepstack"):
                    hidden = add_deep(self.net, hidden, deep[index])
        self.deep = []
        return hidden

    def shared_projections(self) -> None:
        """VeRA's one pair of matrices, as large as the largest adapted module asks for (vera/model.py)."""
        lora = self.recipe.lora
        if lora is not None and lora.kind == "vera":
            sides = [self.linears.shapes[name] for name in self.linears.adapted]
            for name, side in (("vera_A", max(n for n, _ in sides)), ("vera_B", max(n for _, n in sides))):
                self.tape.buffers.append((name, Size(lora.dtype.bytes, side, ("r",))))

    def head(self, final: list[Ref]) -> Ref | None:
        """Head and loss; returns what the training loop holds until the loss is known.

        ``final``: the hidden states, taken out of the list, so that nobody else holds them.
        """
        hidden = final.pop()
        net, tape, model, names = self.net, self.tape, self.model, self.names
        loss_of = self.recipe.loss
        head = self._active(names.embedding if model.tied else names.head)
        bias = f"{names.head}.bias" if model.head_bias else None
        held: Ref | None = None
        if model.head == "embedding":
            loss = self._pooled(hidden)
        elif self.recipe.task == "rm":
            loss, held = self._score(hidden, head)
        elif self.recipe.task in LOGPROBS and loss_of in ("full", "native"):
            with tape.module(names.head):
                loss, held = logprob_loss(net, hidden, head, bias)
        elif loss_of == "inplace":
            with tape.module(names.head):
                loss = inplace_loss(net, hidden, head, bias)
        elif loss_of in ("full", "native"):
            with tape.module(names.head):
                loss, logits = full_loss(net, hidden, head, bias)
            del hidden
            if net.autocast is not None:  # accelerate's convert_outputs_to_fp32 wraps the model's forward
                net.weight_casts.clear()
                logits = net.cast(logits, DType.FP32, category="logits")
            if self.recipe.keeps_outputs:
                tape.hold(logits)
        elif loss_of == "fused_linear":
            loss = fused_linear_loss(net, hidden, head)
        else:
            loss = chunked_loss(net, hidden, head)
        tape.hold(loss)
        return held

    def _pooled(self, hidden: Ref) -> Ref:
        """An embedding model: one token's vector stands for the row, and rows are compared by their products.

        What the comparison itself makes, b × b numbers, is left out.
        """
        row = self.tape.op("select", [hidden], self.model.hidden, hidden.dtype, symbols=("b",))
        return self.tape.op("mm", [row], 1, row.dtype, symbols=("b",), saves=[row])

    def _score(self, hidden: Ref, head: str) -> tuple[Ref, Ref | None]:
        """A reward model's one output, with or without the language-model head before it."""
        score = "score.weight" if self.recipe.loss == "score" else "v_head.summary.weight"
        dtype = self.recipe.weight_dtype if self.recipe.loss == "score" else DType.FP32
        self._declare(score, dtype, self.model.hidden, True, "weights")
        with self.tape.module("score"):
            if self.recipe.loss == "score":
                return score_loss(self.net, hidden, score), None
            return value_head_loss(self.net, hidden, head, score)

    def build(self, folded: bool) -> Step:
        tape, model = self.tape, self.model
        if keeps_triangle(model.family, self.recipe.stack.get("transformers")):
            tape.buffers += [("attn.bias", Size(1, model.max_position**2))] * model.layers
        with tape.block("embedding"):
            self.register(embedding_parameters(model))
            hidden = self.embed()
            at = self.positions(hidden) if model.tower is None else None
        if model.tower is not None:
            hidden, at = self.see(model.tower, hidden, folded)
        assert at is not None
        hidden = self.layers(hidden, at, folded)
        self.shared_projections()
        with tape.block("head", phase="loss"):
            self.register(final_parameters(model))
            if self.recipe.loss != "score" and model.head == "lm":
                self.register(head_parameters(model))
            final = [self.decoder.norm(hidden, self.names.final_norm)]
            del at, hidden
            self.inputs.clear()
            returned = self.head(final)
            self.net.weight_casts.clear()
            if not self.recipe.keeps_outputs:
                self.net.cached.clear()
        if self.recipe.task in LOGPROBS or returned is not None:
            with tape.block(COMPARE, phase="loss"):
                del returned
        return tape.finish()


def _folds(
    model: Model, trains: Callable[[int], bool], alone: int = 0, windowed: bool = False
) -> list[tuple[int, int]]:
    """(layer, how many it stands for): of each run of equal layers the first two, one between, the last two.

    ``trains``: whether a layer has trained parameters; ``alone``: so many layers at the start are no part of a run;
    ``windowed``: layers that slide have a mask that others lack.
    """
    kinds = [(model.kind(index, windowed), trains(index)) for index in range(model.layers)]
    out: list[tuple[int, int]] = []
    start = 0
    for index in range(1, model.layers + 1):
        if alone < index < model.layers and kinds[index] == kinds[start]:
            continue
        alike = index - start
        if alike > _UNFOLDED:
            out += [(start, 1), (start + 1, 1), (start + 2, alike - 4), (index - 2, 1), (index - 1, 1)]
        else:
            out += [(layer, 1) for layer in range(start, index)]
        start = index
    return out


def build_step(
    model: Model, recipe: Recipe, *, folded: bool = False, frozen: bool = False, records: bool = True
) -> Step:
    """The forward pass of one micro-batch of ``recipe`` on ``model``.

    Args:
        frozen: no parameter is trained; records: autograd does, which it does not in evaluation.

    Raises:
        NotModelled: a family, quantisation or mode whose operations are not written down here yet.
    """
    refuse(model, recipe)
    if model.head == "seq2seq":
        from finefit.step.seq2seq import Seq2Seq  # it builds on the class above

        if model.family == "whisper":
            from finefit.step.whisper import Whisper

            return Whisper(model, recipe, frozen, records).build(folded)
        return Seq2Seq(model, recipe, frozen, records).build(folded)
    if model.head not in DECODERS:
        from finefit.step.encoder import EncoderBuilder  # it builds on the class above

        return EncoderBuilder(model, recipe, frozen, records).build(folded)
    return Builder(model, recipe, frozen, records).build(folded)
