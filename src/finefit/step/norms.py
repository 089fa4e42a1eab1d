"""Norms and activations that some families write out in plain tensor operations.

transformers 5.24.0 ``models/cohere/modeling_cohere.py`` and ``activations.py``.
"""

from __future__ import annotations

from collections.abc import Callable

from finefit.step.net import Net, promote
from finefit.step.size import Size
from finefit.step.tape import Ref
from finefit.workload.dtypes import DType


def cohere_norm(net: Net, x: Ref, name: str, width: int | None) -> Ref:
    """``CohereLayerNorm.forward``: mean and variance as separate kernels in fp32, the difference taken twice."""
    tape, numel, symbols = net.tape, x.numel, x.symbols
    rows = numel // (width or numel)
    wide = net.cast(x, DType.FP32)
    mean = tape.op("mean", [wide], rows, DType.FP32, symbols=symbols)
    centred = tape.op("sub", [wide, mean], numel, DType.FP32, symbols=symbols)
    square = tape.op("pow", [centred], numel, DType.FP32, symbols=symbols, saves=[centred], back=(wide.size, wide.size))
    variance = tape.op("mean", [square], rows, DType.FP32, symbols=symbols)
    del square, centred
    centred = tape.op("sub", [wide, mean], numel, DType.FP32, symbols=symbols)
    rstd = tape.op("rsqrt", [variance], rows, DType.FP32, symbols=symbols, save_out=True)
    normed = net.mul(centred, rstd)
    del centred, rstd, wide
    out = net.weigh(normed, name, DType.FP32)
    del normed
    return net.cast(out, x.dtype)


def relu_squared(net: Net, x: Ref) -> Ref:
    """``ReLUSquaredActivation``: keeps the result of relu for both kernels. Autocast runs ``pow`` in fp32.

    Backward of ``pow`` multiplies a power by a number before the gradient: two temporaries.
    """
    tape = net.tape
    out = tape.op("relu", [x], x.numel, x.dtype, symbols=x.symbols, save_out=True)
    base = net.wide(out)
    return tape.op("square", [base], x.numel, base.dtype, symbols=x.symbols, saves=[base], back=(base.size, base.size))


def bloom_gelu(net: Net, x: Ref) -> Ref:
    """``GeLUFunction`` of modeling_bloom.py: saves its input, computes outside autograd in both directions.

    Forward holds at most four results at once, backward six.
    """
    size = x.size
    return net.tape.op(
        "GeLUFunction", [x], x.numel, x.dtype, symbols=x.symbols, saves=[x], temps=(size,) * 3, back=(size,) * 5
    )


def xielu(net: Net, x: Ref) -> Ref:
    """``XIELUActivation._xielu_python``, which runs without the CUDA package; autocast runs ``expm1`` in fp32."""
    tape, numel, symbols = net.tape, x.numel, x.symbols
    alpha = f"{tape.path}.act_fn.alpha_p"  # one element, but a dimension: it takes part in type promotion
    trained, dtype = net.trainable(alpha), DType.FP32 if net.autocast else net.weight_dtype(alpha)
    mask = tape.leaf(numel, DType.BOOL, symbols, "gt")

    def scaled(value: Ref) -> Ref:
        """A product with a learned scalar, whose gradient is summed from a full-size product."""
        wide = promote(value.dtype, dtype)
        saved, back = ([value], (Size(wide.bytes, numel, symbols),)) if trained else ([], ())
        return tape.op("mul", [value], numel, wide, symbols=symbols, saves=saved, back=back)

    once = scaled(x)
    twice = net.mul(once, x)
    del once
    positive = net.add(twice, net.scale(x))
    del twice
    low = tape.op("minimum", [x], numel, x.dtype, symbols=symbols, saves=[x])
    base = net.wide(low)
    grown = tape.op("expm1", [base], numel, base.dtype, symbols=symbols, save_out=True, back=(base.size,))
    del low, base
    difference = net.sub(grown, x)
    del grown
    product = scaled(difference)
    del difference
    negative = net.add(product, net.scale(x))
    del product
    return tape.op("where", [positive, negative], numel, negative.dtype, symbols=symbols, saves=[mask])


ACTIVATIONS: dict[str, Callable[[Net, Ref], Ref]] = {
    "relu2": relu_squared,
    "gelu_bloom": bloom_gelu,
    "xielu": xielu,
}
