"""What each optimizer keeps for a parameter and holds while it steps, read in the code named beside it.

Names are the optimizers' own. A state or temporary without a dtype has the parameter's.
"""

from __future__ import annotations

from dataclasses import dataclass

from finefit.workload.dtypes import DType

_FP32, _BF16, _BYTE = DType.FP32, DType.BF16, DType.UINT8


@dataclass(frozen=True, slots=True)
class State:
    """One state tensor of a parameter.

    Attributes:
        extent: "full" (the parameter's shape), "rows" (one number a row), "cols" (one a column).
        of: the parameters that have it: "any"; "matrix" or "vector"; "hidden" (matrices that are neither embedding
            nor head) or "other".
        block: elements that share one fp32 constant, in states of 8 or 4 bits; 0: none.
        packed: elements of a byte.
    """

    name: str
    extent: str = "full"
    dtype: DType | None = None
    of: str = "any"
    block: int = 0
    packed: int = 1


@dataclass(frozen=True, slots=True)
class Kind:
    """An optimizer.

    Attributes:
        together: temporaries of the parameter's shape for all parameters at once, in its "foreach" form.
        each: temporaries of one parameter at a time, those that are there together; "foreach" has none.
        other: the same of embeddings, heads and vectors, where it differs; None: it does not.
        squares: bf16 matrices of a hidden matrix's shorter side, beside those of ``each``.
        widened: fp32 copies of a 16-bit gradient (1) and of its parameter too (2), beside those.
        table: entries of the fp32 table that each quantised state has of its own.
        host: states rest in host memory; one parameter's are on the GPU while it is updated.
        lags: an update in backward waits for the next gradient.
        low_rank: "galore" or "apollo": states of the targets have the shape of a projection of their gradient.
    """

    states: tuple[State, ...] = ()
    together: int = 0
    each: tuple[DType | None, ...] = ()
    other: tuple[DType | None, ...] | None = None
    squares: int = 0
    widened: int = 0
    table: int = 0
    host: bool = False
    lags: bool = False
    low_rank: str = ""

    @property
    def quantised(self) -> bool:
        """States are kept in blocks of 8 or 4 bits."""
        return any(state.block for state in self.states)


def _plain(*names: str, dtype: DType | None = None) -> tuple[State, ...]:
    return tuple(State(name, dtype=dtype) for name in names)


def _blocks(*names: str, packed: int = 1) -> tuple[State, ...]:
    return tuple(State(name, dtype=_BYTE, block=256, packed=packed) for name in names)


_ADAM = ("exp_avg", "exp_avg_sq")
_FACTORED = (
    State("exp_avg_sq_row", "rows", _FP32, "matrix"),
    State("exp_avg_sq_col", "cols", _FP32, "matrix"),
    State("exp_avg_sq", "full", _FP32, "vector"),
)

# Below this many elements bitsandbytes (0.50.2 optim/optimizer.py init_state, min_8bit_size) and torchao (0.18.0
# optim/adam.py _new_buffer) keep a state as it would be without quantisation.
SMALLEST_QUANTISED = 4096

OPTIMIZERS: dict[str, Kind] = {
    # torch 2.13.0 optim/: adamw.py (_multi_tensor_adam: sqrt of exp_avg_sq; the loop: it and its quotient),
    # sgd.py, adagrad.py (std and numerator), rmsprop.py (avg)
    "adamw": Kind(_plain(*_ADAM), together=1, each=(None, None)),
    "sgd": Kind(),
    "sgd_momentum": Kind(_plain("momentum_buffer")),
    "adagrad": Kind(_plain("sum"), together=2, each=(None, None)),
    "rmsprop": Kind(_plain("square_avg"), together=1, each=(None,)),
    # bitsandbytes 0.50.2 optim/: optimizer.py Optimizer1State and Optimizer2State, ademamix.py (state1 holds two)
    "adamw_32bit": Kind(_plain("state1", "state2", dtype=_FP32)),
    "adamw_8bit": Kind(_blocks("state1", "state2")),
    "lion_32bit": Kind(_plain("state1", dtype=_FP32)),
    "lion_8bit": Kind(_blocks("state1")),
    "rmsprop_32bit": Kind(_plain("state1", dtype=_FP32)),
    "rmsprop_8bit": Kind(_blocks("state1")),
    "ademamix_32bit": Kind(_plain("state1.fast", "state1.slow", "state2", dtype=_FP32)),
    "ademamix_8bit": Kind(_blocks("state1.fast", "state1.slow", "state2")),
    # torchao 0.18.0 optim/: adam.py, subclass_8bit.py, subclass_4bit.py; the update is one compiled kernel
    "adamw_torchao_8bit": Kind(_blocks(*_ADAM), table=256),
    "adamw_torchao_4bit": Kind(_blocks(*_ADAM, packed=2), table=16),
    # torchdistx optimizers/anyprecision_optimizer.py, with fp32 moments, as transformers asks for them
    "adamw_anyprecision": Kind(_plain(*_ADAM, dtype=_FP32), each=(_FP32, _FP32)),
    # transformers 5.24.0 optimization.py Adafactor: gradient and parameter in fp32, two of the update
    "adafactor": Kind(_FACTORED, each=(_FP32, _FP32), widened=2),
    # came_pytorch 0.1.3 CAME.py: the gradient in fp32; the update, the instability and its square
    "came": Kind(
        (
            State("exp_avg", dtype=_FP32),
            *_FACTORED,
            State("exp_avg_res_row", "rows", _FP32, "matrix"),
            State("exp_avg_res_col", "cols", _FP32, "matrix"),
        ),
        each=(_FP32, _FP32, _FP32),
        widened=1,
    ),
    # adam_mini 1.1.1: the first moment; one second moment a row
    "adam_mini": Kind((State("m"), State("vmean", "rows", None, "matrix")), each=(None, None)),
    # llamafactory 0.9.5 third_party/muon/muon.py: the gradient with momentum; in bf16 the matrix, its two products,
    # their sum and two of the shorter side. AdamW for the rest
    "muon": Kind(
        (
            State("momentum_buffer", of="hidden"),
            State("moment1", of="other"),
            State("moment2", of="other"),
        ),
        each=(None, _BF16, _BF16, _BF16, _BF16),
        other=(None, None),
        squares=2,
    ),
    # galore_torch 1.0 adamw.py, adamw8bit.py, adafactor.py; apollo_torch 1.0.3 apollo.py
    "galore_adamw": Kind(_plain(*_ADAM), each=(None, None), low_rank="galore"),
    "galore_adamw_8bit": Kind(_blocks("state1", "state2"), low_rank="galore"),
    "galore_adafactor": Kind(_FACTORED, each=(_FP32, _FP32), widened=2, low_rank="galore"),
    "apollo_adamw": Kind(_plain(*_ADAM), each=(None, None), low_rank="apollo"),
    # lomo_optim 0.1.1 lomo.py (gradient and parameter in fp32), adalomo.py (and the update twice)
    "lomo": Kind(widened=2, lags=True),
    "adalomo": Kind(_FACTORED, each=(_FP32, _FP32), widened=1, lags=True),
    # grokadamw 0.1.2 grokadamw.py: three states on the CPU; on the GPU they, grok_grad and its product
    "grokadamw": Kind(_plain(*_ADAM, "grok_ema"), each=(None, None, None, None, None), host=True),
    # schedulefree 1.4.1: the iterate z; foreach makes the denominator of all parameters
    "schedule_free_adamw": Kind(_plain("z", "exp_avg_sq"), together=1),
    "schedule_free_radam": Kind(_plain("z", "exp_avg_sq"), together=1),
    "schedule_free_sgd": Kind(_plain("z")),
    # torch-optimi 0.3.3 stableadamw.py: Kahan compensation of 16-bit parameters; one Triton kernel a parameter
    "stable_adamw": Kind(_plain(*_ADAM)),
    "stable_adamw_kahan": Kind(_plain(*_ADAM, "kahan_comp")),
}
