"""Linear layers: plain, with LoRA beside them, on quantised storage.

Follows peft 0.21.2 ``tuners/lora/layer.py`` and ``bnb.py``, bitsandbytes 0.50.2
``autograd/_functions.py`` and ``nn/modules.py``.
"""

from __future__ import annotations

from finefit.step.adapters import Adapters
from finefit.step.net import Net
from finefit.step.ops import Flops
from finefit.step.size import Size
from finefit.step.tape import Ref
from finefit.workload.dtypes import DType


class Linears:
    """``call(x, path)`` runs the linear module at ``path`` of the current block's prefix."""

    def __init__(self, net: Net) -> None:
        self.net = net
        self.shapes: dict[str, tuple[int, int]] = {}  # full path -> (in, out)
        self.quantised: set[str] = set()
        self.adapted: set[str] = set()
        self.biased: set[str] = set()
        self.adapters = Adapters(self)

    def __call__(self, x: Ref, path: str, kind: str = "linear") -> Ref:
        net = self.net
        with net.tape.module(path):
            full = net.tape.path
            if full not in self.adapted:
                return self.base(x, full, kind)
            assert net.recipe.lora is not None
            if net.recipe.lora.kind not in ("lora", "lora_fa"):
                return self.adapters(x, full, kind)
            if full in self.quantised and net.recipe.quant is not None and not net.recipe.quant.stored:
                return self._lora_quantised(x, full, kind)
            return self._lora(x, full, kind)

    def base(self, x: Ref, full: str, kind: str) -> Ref:
        n_out = self.shapes[full][1]
        if full not in self.quantised:
            bias = f"{full}.bias" if full in self.biased else None
            return self.net.dense(x, f"{full}.weight", n_out, bias=bias, kind=kind)
        quant = self.net.recipe.quant
        assert quant is not None
        if quant.stored:
            return self._stored(x, full, kind)
        return self._int8(x, full, kind) if quant.kind == "int8" else self._four_bit(x, full, kind)

    # -- GPTQ, AWQ ---------------------------------------------------------------------------------

    def _stored(self, x: Ref, full: str, kind: str) -> Ref:
        """The packed weight is kept for backward and restored, one weight at a time, in both directions.

        auto_gptq 0.7.1 triton_utils/kernels.py ``QuantLinearFunction`` saves the packed weight alone; its later
        kernels restore it before the product.
        """
        net, (n_in, n_out) = self.net, self.shapes[full]
        quant = net.recipe.quant
        assert quant is not None
        dense = (Size(quant.compute_dtype.bytes, n_in * n_out),)
        out = net.tape.op(
            "gemm_stored",
            [net.cast(x, quant.compute_dtype)],
            n_out,
            quant.compute_dtype,
            symbols=x.symbols,
            temps=dense,
            back=dense,
            flops=Flops(kind, 2 * n_in * n_out, x.symbols),
        )
        return net.cast(out, x.dtype)

    # -- bitsandbytes ------------------------------------------------------------------------------

    def _four_bit(self, x: Ref, full: str, kind: str) -> Ref:
        """``Linear4bit.forward``: the weight is dequantised into a temporary, forward and backward.

        Only the packed weight is kept for backward (``MatMul4Bit.forward`` saves (None, B)).
        """
        net, (n_in, n_out) = self.net, self.shapes[full]
        quant = net.recipe.quant
        assert quant is not None
        compute = quant.compute_dtype
        dense: tuple[Size, ...] = (Size(compute.bytes, n_in * n_out),)
        if quant.double:  # the 8-bit constants are restored to fp32 first
            dense = (Size(4, n_in * n_out // 64), *dense)
        out = net.tape.op(
            "gemm_4bit",
            [net.cast(x, compute)],
            n_out,
            compute,
            symbols=x.symbols,
            temps_assumed=dense,
            back=dense[-1:],  # the constants are gone before the product
            flops=Flops(kind, 2 * n_in * n_out, x.symbols),
        )
        return net.cast(out, x.dtype)

    def _int8(self, x: Ref, full: str, kind: str) -> Ref:
        """``MatMul8bitLt``: input quantised row by row in fp16, int32 product.

        ``ctx.tensors`` holds the input, outside of what autograd saves: checkpointing without reentry keeps it
        from the first forward on. Backward restores the whole weight in the input's dtype.
        """
        tape, (n_in, n_out) = self.net.tape, self.shapes[full]
        half = (Size(2, n_in, x.symbols),) if x.dtype != DType.FP16 else ()
        rows = tape.op("int8_quant", [], n_in, DType.UINT8, symbols=x.symbols, temps=half, needs_grad=False)
        out = tape.op(
            "int8_mm",
            [x],
            n_out,
            x.dtype,
            symbols=x.symbols,
            keeps=[x],
            temps_assumed=(Size(4, n_out, x.symbols),),  # int8_scaled_mm: int8_linear_matmul's result
            back=(Size(x.dtype.bytes, n_in * n_out),),
            flops=Flops(kind, 2 * n_in * n_out, x.symbols),
        )
        del rows
        return out

    # -- PEFT --------------------------------------------------------------------------------------

    def _adapter(self, x: Ref, full: str) -> Ref:
        """``lora_B(lora_A(dropout(x))) * scaling``."""
        net, lora = self.net, self.net.recipe.lora
        assert lora is not None
        return net.scale(self.low_rank_pair(net.dropout(x, lora.dropout), full))

    def low_rank_pair(self, x: Ref, full: str) -> Ref:
        """``lora_B(lora_A(x))``."""
        n_in, n_out = self.shapes[full]
        return self._low_rank(
            self._low_rank(x, f"{full}.lora_A.weight", n_in, None), f"{full}.lora_B.weight", None, n_out
        )

    def _low_rank(self, x: Ref, name: str, n_in: int | None, n_out: int | None) -> Ref:
        """A linear layer one side of which is the rank."""
        net = self.net
        copy, dtype = net.weight(name)
        if net.autocast is not None:
            x = net.cast(x, dtype)
        trainable = net.trainable(name)
        inputs = [x] if copy is None or not trainable else [x, copy]
        saves = ([x] if trainable else []) + ([copy] if copy is not None and x.needs_grad else [])
        rows = tuple(s for s in x.symbols if s != "r")  # tokens, patches of pictures, or rows alone
        numel, symbols = (1, tuple(sorted((*rows, "r")))) if n_out is None else (n_out, rows)
        flops = Flops("lora", 2 * (n_in or n_out or 0), tuple(sorted((*rows, "r"))))
        params = (name,) if copy is None and trainable else ()
        return net.tape.op("mm", inputs, numel, x.dtype, symbols=symbols, saves=saves, params=params, flops=flops)

    def _lora(self, x: Ref, full: str, kind: str) -> Ref:
        net, lora = self.net, self.net.recipe.lora
        assert lora is not None
        result = self.base(x, full, kind)
        dtype = result.dtype
        x = net.cast(x, lora.dtype)
        result = net.add(result, self._adapter(x, full))
        return net.cast(result, dtype)

    def _lora_quantised(self, x: Ref, full: str, kind: str) -> Ref:
        """``Linear4bit.forward`` and ``Linear8bitLt.forward`` of peft: cast only outside autocast."""
        net, lora, quant = self.net, self.net.recipe.lora, self.net.recipe.quant
        assert lora is not None and quant is not None
        result = self.base(x, full, kind)
        if quant.kind != "int8":
            result = net.contiguous(result)  # "defensively clone"
        if net.autocast is not None:
            return net.add(result, self._adapter(x, full))
        x = net.cast(x, lora.dtype)
        output = self._adapter(x, full)
        output = net.cast(output, result.dtype)
        return net.add(result, output)
