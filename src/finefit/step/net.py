"""Tensor operations as PyTorch runs them: what each allocates, saves and needs in its backward.

Formulas follow ``tools/autograd/derivatives.yaml`` and the ATen kernels of torch 2.13.0; every one is
compared with a trace of the real library by ``benchmarks.trace``.
"""

from __future__ import annotations

from finefit.step.ops import Flops
from finefit.step.size import Size
from finefit.step.tape import Ref, Tape
from finefit.workload.dtypes import DType
from finefit.workload.model import Model
from finefit.workload.recipe import Recipe


def promote(a: DType, b: DType) -> DType:
    """Result type of an element-wise operation on two floating tensors."""
    if a == b:
        return a
    return DType.FP32  # bf16 with fp16, or either with fp32


class Net:
    """Operations on one tape for one model and recipe."""

    def __init__(self, tape: Tape, model: Model, recipe: Recipe) -> None:
        self.tape, self.model, self.recipe = tape, model, recipe
        self.autocast = recipe.autocast
        self.weight_casts: dict[str, Ref] = {}  # autocast's cache: lives until the context exits
        self.cached: list[Ref] = []  # keys and values that the model returns, with the storage they are views of
        self.attended: Ref | None = None  # attention weights, which the layer's variable "_" holds to its end

    @property
    def half(self) -> DType:
        """dtype of matrix products."""
        return self.autocast or self.recipe.weight_dtype

    def cache(self, *tensors: Ref) -> None:
        """The model's outputs hold these."""
        for x in tensors:
            self.tape.keep_beyond_block(x)
            self.cached.append(x)

    # -- element-wise ------------------------------------------------------------------------------

    def alias(self, x: Ref) -> Ref:
        """Another reference to the same tensor: a view, or a no-op."""
        return Ref(self.tape, x.value, x.numel, x.symbols, x.dtype)

    def cast(self, x: Ref, dtype: DType, *, category: str = "activations") -> Ref:
        """``x.to(dtype)``: nothing where the dtype is right already."""
        if x.dtype == dtype:
            return self.alias(x)
        return self.tape.op("to", [x], x.numel, dtype, symbols=x.symbols, category=category)

    def wide(self, x: Ref) -> Ref:
        """The input of an operation that autocast runs in fp32 (aten/src/ATen/autocast_mode.h AT_FORALL_FP32)."""
        return x if self.autocast is None else self.cast(x, DType.FP32)

    def add(self, a: Ref, b: Ref) -> Ref:
        """``a + b`` of equal shapes: the gradient is handed on, nothing is saved."""
        dtype = promote(a.dtype, b.dtype)
        wide = a.dtype == b.dtype
        return self.tape.op("add", [a, b], a.numel, dtype, symbols=a.symbols, passes=wide)

    def sub(self, a: Ref, b: Ref) -> Ref:
        """``a - b`` of equal shapes: the gradient is handed on to ``a`` and negated for ``b``."""
        dtype = promote(a.dtype, b.dtype)
        passes = (a.dtype == dtype, False)
        return self.tape.op("sub", [a, b], a.numel, dtype, symbols=a.symbols, passes=passes)

    def mul(self, a: Ref, b: Ref, name: str = "mul") -> Ref:
        """``a * b``; ``b`` may be broadcast. Each factor is saved for the other's gradient."""
        dtype = promote(a.dtype, b.dtype)
        saves = ([b] if a.needs_grad else []) + ([a] if b.needs_grad else [])
        back: tuple[Size, ...] = ()
        if b.needs_grad and (b.numel, b.symbols) != (a.numel, a.symbols):
            back = (Size(dtype.bytes, a.numel, a.symbols),)  # full-size product before sum_to_size
        return self.tape.op(name, [a, b], a.numel, dtype, symbols=a.symbols, saves=saves, back=back)

    def scale(self, x: Ref) -> Ref:
        """``x * number``: needs nothing in its backward."""
        return self.tape.op("mul", [x], x.numel, x.dtype, symbols=x.symbols)

    def unary(self, name: str, x: Ref, *, back_copies: int = 0) -> Ref:
        """An activation that saves its input; its backward is one kernel unless it decomposes."""
        copies = (x.size,) * back_copies
        return self.tape.op(name, [x], x.numel, x.dtype, symbols=x.symbols, saves=[x], back=copies)

    def forced_leaf(self, x: Ref) -> None:
        """A leaf made to require a gradient: its AccumulateGrad node holds it as long as there is a graph."""
        self.tape.op("accumulate_grad", [x], 0, x.dtype, symbols=(), saves=[x])

    def contiguous(self, x: Ref) -> Ref:
        """A copy; its backward hands the gradient on."""
        return self.tape.op("clone", [x], x.numel, x.dtype, symbols=x.symbols, passes=True)

    def dropout(self, x: Ref, p: float) -> Ref:
        """``native_dropout``: saves a boolean mask of the same shape (aten/native/cuda/Dropout.cu)."""
        if p == 0 or not self.tape.records:  # evaluation drops nothing
            return self.alias(x)
        mask = self.tape.op("dropout_mask", [], x.numel, DType.BOOL, symbols=x.symbols, needs_grad=False)
        return self.tape.op("native_dropout", [x], x.numel, x.dtype, symbols=x.symbols, saves=[mask])

    # -- parameters --------------------------------------------------------------------------------

    def trainable(self, name: str) -> bool:
        return self.tape.params[name].trainable

    def weight_dtype(self, name: str) -> DType:
        return self.tape.params[name].dtype

    def weight(self, name: str) -> tuple[Ref | None, DType]:
        """A matrix as the matmul sees it: under autocast an fp32 weight is cast to the compute dtype.

        Returns the cast copy (None when the parameter itself is used) and its dtype. The copy of a
        trainable leaf is cached until autocast exits (torch/csrc autocast_mode cached_cast).
        """
        param = self.tape.params[name]
        if self.autocast is None or param.dtype == self.autocast:
            return None, param.dtype
        if name in self.weight_casts:
            return self.weight_casts[name], self.autocast
        params = (name,) if param.trainable else ()
        cast = self.tape.op(
            "to", [], param.numel, self.autocast, symbols=param.symbols, params=params, category="buffers"
        )
        if param.trainable:
            self.weight_casts[name] = cast
            self.tape.keep_beyond_block(cast)
        return cast, self.autocast

    # -- matrix products ---------------------------------------------------------------------------

    def dense(self, x: Ref, name: str, n_out: int, *, bias: str | None = None, kind: str = "linear") -> Ref:
        """``F.linear``: saves its input for the weight's gradient and the weight for the input's."""
        n_in = x.numel
        copy, dtype = self.weight(name)
        if self.autocast is not None:
            x = self.cast(x, dtype)
        trainable = self.trainable(name)
        inputs = [x]
        saves = [x] if trainable else []
        params: tuple[str, ...] = ()
        if copy is not None:
            if copy.needs_grad:
                inputs.append(copy)
            if x.needs_grad:
                saves.append(copy)
        elif trainable:
            params = (name,)
        if bias is not None and self.trainable(bias):
            params += (bias,)
        return self.tape.op(
            "mm" if bias is None else "addmm",
            inputs,
            n_out,
            x.dtype,
            symbols=x.symbols,
            saves=saves,
            params=params,
            flops=Flops(kind, 2 * n_in * n_out, x.symbols),
            category="logits" if kind == "head" else "activations",
            saves_weight=x.needs_grad,
        )

    def rms_norm(self, x: Ref, name: str | None, *, width: int | None = None, gemma: bool = False) -> Ref:
        """``LlamaRMSNorm.forward`` (Gemma multiplies by ``1 + weight`` in fp32 before casting back).

        ``width``: normalised width where it is not the whole (QK norms work on one head).
        """
        tape, numel, symbols = self.tape, x.numel, x.symbols
        rows = numel // (width or numel)
        wide = self.cast(x, DType.FP32)
        square = tape.op("pow", [wide], numel, DType.FP32, symbols=symbols, saves=[wide], back=(wide.size, wide.size))
        mean = tape.op("mean", [square], rows, DType.FP32, symbols=symbols)
        del square
        rstd = tape.op("rsqrt", [mean], rows, DType.FP32, symbols=symbols, save_out=True)
        del mean
        normed = self.mul(wide, rstd)
        del wide, rstd
        if name is None:
            return self.cast(normed, x.dtype)
        if gemma:
            return self.cast(self.weigh(normed, name, dtype=DType.FP32), x.dtype)
        return self.weigh(self.cast(normed, x.dtype), name)

    def weigh(self, x: Ref, name: str, dtype: DType | None = None) -> Ref:
        """``weight * x`` with a broadcast vector."""
        trainable = self.trainable(name)
        out = promote(x.dtype, dtype or self.weight_dtype(name))
        return self.tape.op(
            "mul",
            [x],
            x.numel,
            out,
            symbols=x.symbols,
            saves=[x] if trainable else [],
            params=(name,) if trainable else (),
            back=(Size(out.bytes, x.numel, x.symbols),) if trainable else (),
            saves_weight=x.needs_grad,
        )

    def layer_norm(self, x: Ref, name: str) -> Ref:
        """``F.layer_norm``: one kernel, saves its input, mean and reciprocal deviation in fp32."""
        weight, bias = f"{name}.weight", f"{name}.bias"
        params = tuple(p for p in (weight, bias) if p in self.tape.params and self.trainable(p))
        source = self.alias(x)
        if self.autocast is not None:  # on autocast's fp32 list; NemotronLayerNorm1P casts to autocast's type itself
            source = self.cast(x, self.autocast if self.model.family == "nemotron" else DType.FP32)
        stats = [
            self.tape.op(stat, [], 1, DType.FP32, symbols=x.symbols, needs_grad=False) for stat in ("mean", "rstd")
        ]
        return self.tape.op(
            "native_layer_norm",
            [source],
            x.numel,
            source.dtype,
            symbols=x.symbols,
            saves=[source, *stats],
            params=params,
        )
