"""The optimizer of a recipe as its library makes it, with the implementation that it takes on a GPU.

Fake tensors would silently get the plain loop, so the implementation is always stated. Libraries beside torch,
transformers and bitsandbytes are imported when a recipe names their optimizer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import torch

from finefit.errors import NotModelled
from finefit.workload.recipe import Optimizer

Named = list[tuple[str, torch.nn.Parameter]]

# Optimizer → module, class and package of what Trainer or LLaMA-Factory would run
_LIBRARIES = {
    "galore_adamw": ("galore_torch", "GaLoreAdamW", "galore-torch"),
    "galore_adafactor": ("galore_torch", "GaLoreAdafactor", "galore-torch"),
    "apollo_adamw": ("apollo_torch", "APOLLOAdamW", "apollo-torch"),
    "schedule_free_adamw": ("schedulefree", "AdamWScheduleFree", "schedulefree"),
    "schedule_free_radam": ("schedulefree", "RAdamScheduleFree", "schedulefree"),
    "schedule_free_sgd": ("schedulefree", "SGDScheduleFree", "schedulefree"),
    "lomo": ("lomo_optim", "Lomo", "lomo-optim"),
    "adalomo": ("lomo_optim", "AdaLomo", "lomo-optim"),
    "grokadamw": ("grokadamw", "GrokAdamW", "grokadamw"),
    "adam_mini": ("adam_mini", "Adam_mini", "adam-mini"),
    "came": ("came_pytorch", "CAME", "came-pytorch"),
}
# transformers 5.24.0 trainer_optimizer.py: what it passes beside the learning rate
_GALORE = {"update_proj_gap": 200, "scale": 0.25, "proj_type": "std"}
_APOLLO = {"update_proj_gap": 200, "scale": 1.0, "proj_type": "std", "proj": "random", "scale_type": "channel"}
_ADAFACTOR = {"scale_parameter": False, "relative_step": False}
_BITS = {"32bit": 32, "8bit": 8}


def build_optimizer(named: Named, optimizer: Optimizer) -> torch.optim.Optimizer:
    """The optimizer of trained parameters.

    Raises:
        NotModelled: an optimizer that cannot be traced, or whose package is not installed.
    """
    if optimizer.in_backward and not optimizer.kind.lags:
        return _LayerWise(named, replace(optimizer, in_backward=False))
    parameters = [parameter for _, parameter in named]
    name, flags = optimizer.name, {"foreach": optimizer.impl == "foreach"}
    if name == "adamw":
        return torch.optim.AdamW(parameters, lr=1e-4, fused=optimizer.impl == "fused", **flags)
    if name == "sgd":
        return torch.optim.SGD(
            parameters, lr=1e-4, momentum=0.9 if optimizer.momentum else 0.0, fused=optimizer.impl == "fused", **flags
        )
    if name in ("adagrad", "rmsprop"):
        plain: Any = {"adagrad": torch.optim.Adagrad, "rmsprop": torch.optim.RMSprop}[name]
        made: torch.optim.Optimizer = plain(parameters, lr=1e-4, **flags)
        return made
    if name == "adafactor":
        from transformers.optimization import Adafactor

        return Adafactor(parameters, lr=1e-4, **_ADAFACTOR)
    kind, _, bits = name.rpartition("_")
    if kind in ("adamw", "lion", "rmsprop", "ademamix") and bits in _BITS and not optimizer.paged:
        return _bitsandbytes(kind, parameters, _BITS[bits])
    if name in _LIBRARIES:
        return _library(named, optimizer)
    raise NotModelled(f"the optimizer {name!r} cannot be traced", fix="trace the recipe with adamw")


def _bitsandbytes(kind: str, parameters: list[torch.nn.Parameter], bits: int) -> torch.optim.Optimizer:
    import bitsandbytes as bnb

    classes = {"adamw": "AdamW", "lion": "Lion", "rmsprop": "RMSprop", "ademamix": "AdEMAMix"}
    made: torch.optim.Optimizer = getattr(bnb.optim, classes[kind])(parameters, lr=1e-4, optim_bits=bits)
    return made


def _library(named: Named, optimizer: Optimizer) -> torch.optim.Optimizer:
    module, name, package = _LIBRARIES[optimizer.name]
    try:
        factory: Callable[..., torch.optim.Optimizer] = getattr(import_module(module), name)
    except ImportError as error:
        raise NotModelled(
            f"tracing {optimizer.name} needs {error.name or package}", fix=f"pip install {package}"
        ) from error
    if optimizer.kind.low_rank == "apollo":
        setattr(import_module("apollo_torch.random_projector"), "stable_randn", _randn)  # noqa: B010
    parameters = [parameter for _, parameter in named]
    if optimizer.kind.lags:
        return _lomo(factory, named)
    if optimizer.name == "adam_mini":
        width = max(p.shape[-1] for n, p in named if "q_proj" in n)
        heads = {"dim": width, "n_heads": width // 128}  # as LLaMA-Factory passes them, for heads of 128
        return factory(named, lr=1e-4, verbose=False, **heads)
    if not optimizer.rank:
        made = factory(parameters, lr=1e-4)
        if hasattr(made, "train"):  # schedule-free optimizers step in their training mode only
            made.train()
        return made
    targets = [p for n, p in named if n.rpartition(".")[0].endswith(optimizer.targets) and p.ndim == 2]
    chosen = {id(p) for p in targets}
    low: dict[str, Any] = {"rank": optimizer.rank, **(_GALORE if "galore" in optimizer.name else _APOLLO)}
    groups = [{"params": [p for p in parameters if id(p) not in chosen]}, {"params": targets, **low}]
    return factory(groups, lr=1e-4, **(_ADAFACTOR if "adafactor" in optimizer.name else {}))


class _LayerWise(torch.optim.Optimizer):
    """An optimizer for each parameter, stepped when its gradient is there.

    As transformers 5.24.0 trainer_optimizer.py ``_setup_low_rank_optimizer`` and torchtune's ``optimizer_in_bwd`` do.
    """

    def __init__(self, named: Named, optimizer: Optimizer) -> None:
        super().__init__([parameter for _, parameter in named], {})
        self.each = {parameter: build_optimizer([(name, parameter)], optimizer) for name, parameter in named}
        for _, parameter in named:
            parameter.register_post_accumulate_grad_hook(self._update)

    def _update(self, parameter: torch.Tensor) -> None:
        self.each[parameter].step()  # type: ignore[index]
        self.each[parameter].zero_grad()  # type: ignore[index]

    def step(self, closure: Any = None) -> None:
        """Nothing is left to do."""
        for parameter, optimizer in self.each.items():
            self.state[parameter] = optimizer.state[parameter]


def _lomo(factory: Callable[..., torch.optim.Optimizer], named: Named) -> torch.optim.Optimizer:
    """LOMO takes the model; the last gradient is used after backward (lomo.py ``fused_backward``)."""
    model = SimpleNamespace(named_parameters=lambda: iter(named), parameters=lambda: iter([p for _, p in named]))
    made: Any = factory(model, lr=1e-4)
    made.step = lambda: made.grad_func(0)
    optimizer: torch.optim.Optimizer = made
    return optimizer


def _randn(shape: Any, seed: int, device: Any = None, dtype: Any = None) -> torch.Tensor:
    """apollo_torch's ``stable_randn`` without its generator, which a torch without CUDA has none of."""
    return torch.randn(shape, device=device, dtype=dtype)


def state_tensors(optimizer: torch.optim.Optimizer) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """(parameter, state tensor) pairs; a projection's matrix counts as a state."""
    for parameter, state in optimizer.state.items():
        for value in state.values():
            matrix = getattr(value, "ortho_matrix", None)  # galore_torch, apollo_torch
            if isinstance(value, torch.Tensor):
                yield parameter, value
            elif isinstance(matrix, torch.Tensor):
                yield parameter, matrix
