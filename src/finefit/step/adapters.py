"""Linear layers with adapters other than plain LoRA, line by line after peft 0.21.2 ``tuners/<kind>/layer.py``.

Shapes: (in, out) of the base layer, r the rank; vectors beside tokens are broadcast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from finefit.step.ops import Flops
from finefit.step.size import Size
from finefit.step.tape import Ref
from finefit.workload.dtypes import DType

if TYPE_CHECKING:
    from finefit.step.linear import Linears


class Adapters:
    """One method for each kind of ``workload.Lora.kind``; all take the input and the layer's full path."""

    def __init__(self, linears: Linears) -> None:
        self.linears, self.net = linears, linears.net

    def __call__(self, x: Ref, full: str, kind: str) -> Ref:
        lora = self.net.recipe.lora
        assert lora is not None
        run = {
            "dora": self._dora,
            "ia3": self._ia3,
            "vera": self._vera,
            "adalora": self._adalora,
            "oft": self._oft,
        }[lora.kind]
        return run(x, full, kind)

    def _vector(self, name: str) -> Ref:
        """A product of a trained vector: small, and what it scales needs it."""
        param = self.net.tape.params[name]
        return self.net.tape.op("mul", [], param.numel, param.dtype, symbols=param.symbols, params=(name,))

    def _converts(self, full: str) -> bool:
        """bitsandbytes' layers cast their input only outside autocast (``lora/bnb.py``)."""
        return full not in self.linears.quantised or self.net.autocast is None

    # -- DoRA ----------------------------------------------------------------------------------------

    def _dora(self, x: Ref, full: str, kind: str) -> Ref:
        """``lora/dora.py`` ``DoraLinearLayer.forward``, ``lora/variants.py`` ``DoraLinearVariant.forward``."""
        net, lora = self.net, self.net.recipe.lora
        assert lora is not None
        result = self.linears.base(x, full, kind)
        dtype = result.dtype
        if full in self.linears.quantised and self._four_bit():
            result = net.contiguous(result)
        if self._converts(full):
            x = net.cast(x, lora.dtype)
        dropped = lora.dropout > 0
        x = net.dropout(x, lora.dropout)
        result = net.add(result, self._dora_output(x, None if dropped else result, full))
        return net.cast(result, dtype) if self._converts(full) else result

    def _four_bit(self) -> bool:
        quant = self.net.recipe.quant
        return quant is not None and quant.kind in ("nf4", "fp4")

    def _dora_output(self, x: Ref, base: Ref | None, full: str) -> Ref:
        """(m/‖W‖ - 1) · Wx + m/‖W‖ · BAx; the norm of W + BA is made anew each time, without gradients.

        The identity that gives BA through a forward pass, BA and W in the input's dtype live until the function
        returns.
        """
        net, tape = self.net, self.net.tape
        n_in, n_out = self.linears.shapes[full]
        lora = net.recipe.lora
        assert lora is not None
        compute = net.autocast or lora.dtype
        eye = net.cast(tape.op("eye", [], n_in * n_in, lora.dtype, symbols=(), needs_grad=False), compute)
        middle = tape.op("mm", [], n_in, compute, symbols=("r",), needs_grad=False)
        delta = tape.op("mm", [], n_in * n_out, compute, symbols=(), needs_grad=False)
        delta = net.cast(delta, x.dtype)
        weight = self._whole_weight(full, x.dtype)
        scaled = tape.op("mul", [], n_in * n_out, x.dtype, symbols=(), needs_grad=False)
        total = tape.op("add", [], n_in * n_out, x.dtype, symbols=(), needs_grad=False)
        del scaled
        norm = tape.op("linalg_vector_norm", [], n_out, x.dtype, symbols=(), needs_grad=False)
        del total
        name = f"{full}.lora_magnitude_vector.weight"
        scale = tape.op("div", [], n_out, lora.dtype, symbols=(), saves=[norm], params=(name,))
        inner = self.linears.low_rank_pair(x, full)
        if base is None:
            base = self._product(x, weight, n_out)
        shifted = tape.op("sub", [scale], n_out, scale.dtype, symbols=(), passes=True)
        first = net.mul(base, shifted)
        second = net.scale(net.mul(inner, scale))
        out = net.add(first, second)
        del eye, middle, delta, weight
        return out

    def _whole_weight(self, full: str, dtype: DType) -> Ref | None:
        """``dequantize_module_weight`` in the input's dtype; None where the parameter is used as it lies."""
        net, tape = self.net, self.net.tape
        n_in, n_out = self.linears.shapes[full]
        if full not in self.linears.quantised:
            if net.weight_dtype(f"{full}.weight") == dtype:
                return None
            return tape.op("to", [], n_in * n_out, dtype, symbols=(), needs_grad=False, category="workspace")
        quant = net.recipe.quant
        assert quant is not None
        temps = (Size(4, n_in * n_out // 64),) * 2 if quant.double else ()
        stored = tape.op(
            "dequantize", [], n_in * n_out, net.recipe.weight_dtype, symbols=(), temps=temps, needs_grad=False
        )
        return net.cast(stored, dtype)

    def _product(self, x: Ref, weight: Ref | None, n_out: int) -> Ref:
        """``F.linear`` with a frozen weight that the backward needs."""
        net = self.net
        if net.autocast is not None:
            x = net.cast(x, net.autocast)
            weight = None if weight is None else net.cast(weight, net.autocast)
        saves = [] if weight is None else [weight]
        flops = Flops("lora", 2 * x.numel * n_out, x.symbols)
        return net.tape.op("mm", [x], n_out, x.dtype, symbols=x.symbols, saves=saves, flops=flops)

    # -- (IA)³ -----------------------------------------------------------------------------------------

    def _ia3(self, x: Ref, full: str, kind: str) -> Ref:
        """``ia3/layer.py`` ``Linear.forward``: the output, or a feed-forward layer's input, times a vector."""
        net, lora = self.net, self.net.recipe.lora
        assert lora is not None
        scale = self._vector(f"{full}.ia3_l")
        if full.rpartition(".")[2] in lora.feedforward:
            scaled = net.cast(net.mul(net.cast(x, lora.dtype), scale), x.dtype)
            return self.linears.base(scaled, full, kind)
        result = self.linears.base(x, full, kind)
        return net.cast(net.mul(result, scale), result.dtype)

    # -- VeRA --------------------------------------------------------------------------------------------

    def _vera(self, x: Ref, full: str, kind: str) -> Ref:
        """``vera/layer.py`` ``Linear.forward``: two frozen matrices that all layers share, two trained vectors."""
        net, tape, lora = self.net, self.net.tape, self.net.recipe.lora
        assert lora is not None
        n_in, n_out = self.linears.shapes[full]
        result = self.linears.base(x, full, kind)
        dtype = result.dtype
        if full in self.linears.quantised and self._four_bit():
            result = net.contiguous(result)
        x = net.dropout(net.cast(x, lora.dtype), lora.dropout)
        down = self._frozen(x, 1, ("b", "r", "s"), 2 * n_in)
        down = net.mul(down, tape.op("view", [], 1, lora.dtype, symbols=("r",), params=(f"{full}.vera_lambda_d",)))
        up = self._frozen(down, n_out, ("b", "s"), 2 * n_out)
        up = net.mul(up, tape.op("view", [], n_out, lora.dtype, symbols=(), params=(f"{full}.vera_lambda_b",)))
        return net.cast(net.add(result, up), dtype)

    def _frozen(self, x: Ref, numel: int, symbols: tuple[str, ...], flops: int) -> Ref:
        x = self.net.cast(x, self.net.autocast) if self.net.autocast is not None else x
        return self.net.tape.op("mm", [x], numel, x.dtype, symbols=symbols, flops=Flops("lora", flops, ("b", "r", "s")))

    # -- AdaLoRA ---------------------------------------------------------------------------------------

    def _adalora(self, x: Ref, full: str, kind: str) -> Ref:
        """``adalora/layer.py`` ``SVDLinear.forward``: x (A·E)ᵀ Bᵀ over the rank's number, added into the result.

        That number has a gradient once the adapter is set, so its numerator is kept. The penalty for A and B that
        are not orthogonal is left out: r × r each, and gradients that come earlier.
        """
        net, tape, lora = self.net, self.net.tape, self.net.recipe.lora
        assert lora is not None
        n_in, n_out = self.linears.shapes[full]
        result = self.linears.base(x, full, kind)
        x = net.dropout(net.cast(x, lora.dtype), lora.dropout)
        names = (f"{full}.lora_A", f"{full}.lora_E")
        scaled = tape.op("mul", [], n_in, lora.dtype, symbols=("r",), params=names, back=(Size(4, n_in, ("r",)),))
        flops = Flops("lora", 2 * n_in, ("b", "r", "s"))
        copy, compute = net.weight(f"{full}.lora_B")
        x, scaled = net.cast(x, compute), net.cast(scaled, compute)
        down = tape.op("mm", [x, scaled], 1, compute, symbols=("b", "r", "s"), saves=[x, scaled], flops=flops)
        if copy is None:
            up = tape.op("mm", [down], n_out, compute, saves=[down], params=(f"{full}.lora_B",), flops=flops)
        else:
            up = tape.op("mm", [down, copy], n_out, compute, saves=[down, copy], flops=flops)
        up = net.scale(up)
        full_size = (Size(lora.dtype.bytes, n_out, up.symbols),)
        up = tape.op("div", [up], n_out, lora.dtype, saves=[up], params=(f"{full}.ranknum",), back=full_size)
        return tape.add_into(result, up)

    # -- OFT ---------------------------------------------------------------------------------------------

    def _oft(self, x: Ref, full: str, kind: str) -> Ref:
        """``oft/layer.py``: the input's blocks are rotated by a Cayley-Neumann series of skew matrices."""
        net, tape, lora = self.net, self.net.tape, self.net.recipe.lora
        assert lora is not None
        n_in, _ = self.linears.shapes[full]
        name, numel, dtype = f"{full}.oft_R.weight", n_in * lora.block, lora.dtype
        previous = x.dtype
        x = net.cast(x, dtype)

        def square(op: str, inputs: list[Ref], saves: list[Ref], params: tuple[str, ...] = ()) -> Ref:
            return tape.op(op, inputs, numel, dtype, symbols=(), saves=saves, params=params)

        matrix = square("index_put", [], [], (name,))
        skew = square("sub", [matrix], [])
        del matrix
        rotation = square("add_", [skew], [])
        power = square("bmm", [skew, skew], [skew, skew])
        for _ in range(2):
            power = square("bmm", [power, skew], [power, skew])
        del power, skew
        compute = net.autocast or dtype
        blocks = net.cast(x, compute)  # a view of the input otherwise
        rotation = net.cast(rotation, compute)
        turned = tape.op("bmm", [blocks, rotation], n_in, compute, saves=[blocks, rotation])
        whole = net.contiguous(turned)
        x = net.cast(whole, previous)
        del blocks, rotation, turned, whole
        return self.linears.base(x, full, kind)
