"""Mixture-of-experts keys of a ``config.json`` → ``Experts``.

Keys and defaults are those of transformers 5.24.0 ``models/<family>/configuration_<family>.py``; of
``deepseek`` those of the ``configuration_deepseek.py`` published beside its weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from finefit.errors import InputError
from finefit.workload.model import Experts


class Keys(Protocol):
    """Typed access to a configuration (``hf_config``)."""

    config: Mapping[str, Any]
    where: str

    def size(self, *names: str, default: int | None = None) -> int: ...
    def flag(self, flag: bool | tuple[str, bool]) -> bool: ...


@dataclass(frozen=True, slots=True)
class _Keys:
    """Where a family keeps its numbers: key names, and defaults of its configuration class.

    Attributes:
        count, per_token, width: (names of the key, default); None: the class has none, so the file must.
        shared: (key, default, whether it counts experts of ``width`` rather than giving a width).
        dense: which layers have an ordinary MLP.
    """

    count: tuple[tuple[str, ...], int | None]
    per_token: tuple[tuple[str, ...], int | None] = (("num_experts_per_tok",), None)
    width: tuple[tuple[str, ...], int | None] = (("moe_intermediate_size",), None)
    shared: tuple[str, int, bool] | None = None
    shared_gate: bool = False
    normalised: bool | tuple[str, bool] = ("norm_topk_prob", False)
    groups: str = ""
    group_default: int = 1
    dense: Callable[[Keys, int], tuple[int, ...]] = lambda keys, layers: ()


def _first_dense(default: int) -> Callable[[Keys, int], tuple[int, ...]]:
    """DeepSeek's ``first_k_dense_replace``, and every ``moe_layer_freq``-th layer from there on."""

    def dense(keys: Keys, layers: int) -> tuple[int, ...]:
        first, period = _count(keys, "first_k_dense_replace", default), _count(keys, "moe_layer_freq", 1) or 1
        return tuple(i for i in range(layers) if i < first or i % period)

    return dense


def _listed_dense(default: int) -> Callable[[Keys, int], tuple[int, ...]]:
    """``mlp_layer_types``: "dense" or "sparse" a layer; by default so many dense ones first."""

    def dense(keys: Keys, layers: int) -> tuple[int, ...]:
        listed = keys.config.get("mlp_layer_types")
        if not isinstance(listed, list):
            return tuple(range(min(layers, _count(keys, "first_k_dense_replace", default))))
        return tuple(i for i, kind in enumerate(listed) if kind == "dense")

    return dense


def _leading_dense(keys: Keys, layers: int) -> tuple[int, ...]:
    """configuration_lfm2_moe.py: ``num_dense_layers`` (default 2) come first."""
    return tuple(range(min(layers, _count(keys, "num_dense_layers", 2))))


def _qwen(keys: Keys, layers: int) -> tuple[int, ...]:
    """modeling_qwen3_moe.py: ``mlp_only_layers``, and all but every ``decoder_sparse_step``-th layer."""
    step, listed = _count(keys, "decoder_sparse_step", 1) or 1, keys.config.get("mlp_only_layers") or ()
    if not isinstance(listed, list | tuple) or not all(isinstance(i, int) for i in listed):
        raise InputError(f"mlp_only_layers is {listed!r}", where=keys.where, fix="give a list of layer numbers")
    return tuple(i for i in range(layers) if i in listed or (i + 1) % step)


def _ernie(keys: Keys, layers: int) -> tuple[int, ...]:
    """configuration_ernie4_5_moe.py: first and last sparse layer (-1: the model's last) and an interval."""
    start, period = _count(keys, "moe_layer_start_index", 1), _count(keys, "moe_layer_interval", 1) or 1
    end = keys.config.get("moe_layer_end_index")
    last = end if isinstance(end, int) and end >= 0 else layers - 1
    return tuple(i for i in range(layers) if i < start or i > last or (i + 1) % period)


_LOCAL = ("num_local_experts", "num_experts")
_ROUTED = ("n_routed_experts", "num_local_experts")
MIXTURES: dict[str, _Keys] = {
    "mixtral": _Keys((_LOCAL, 8), (("num_experts_per_tok",), 2), (("intermediate_size",), 14336), normalised=True),
    "phimoe": _Keys((_LOCAL, 16), (("num_experts_per_tok",), 2), (("intermediate_size",), 6400), normalised=True),
    "granitemoe": _Keys((_LOCAL, 8), (("num_experts_per_tok",), 2), (("intermediate_size",), 11008), normalised=False),
    "olmoe": _Keys((_LOCAL[::-1], 64), (("num_experts_per_tok",), 8), (("intermediate_size",), 2048)),
    "qwen2_moe": _Keys(
        (_LOCAL[::-1], 60),
        (("num_experts_per_tok",), 4),
        (("moe_intermediate_size",), 1408),
        shared=("shared_expert_intermediate_size", 5632, False),
        shared_gate=True,
        dense=_qwen,
    ),
    "qwen3_moe": _Keys(
        (_LOCAL[::-1], 128), (("num_experts_per_tok",), 8), (("moe_intermediate_size",), 768), dense=_qwen
    ),
    "glm4_moe": _Keys(
        (_ROUTED, 128),
        (("num_experts_per_tok",), 8),
        (("moe_intermediate_size",), 1408),
        shared=("n_shared_experts", 1, True),
        normalised=("norm_topk_prob", True),
        groups="n_group",
        dense=_first_dense(1),
    ),
    "dots1": _Keys((_ROUTED, None), shared=("n_shared_experts", 0, True), groups="n_group", dense=_first_dense(0)),
    "ernie4_5_moe": _Keys(
        (("moe_num_experts", "num_experts"), 64),
        (("moe_k", "num_experts_per_tok"), 6),
        (("moe_intermediate_size",), 1536),
        shared=("moe_num_shared_experts", 2, True),
        normalised=True,
        dense=_ernie,
    ),
    "minimax_m2": _Keys((_LOCAL, 256), (("num_experts_per_tok",), 8), (("intermediate_size",), 1536), normalised=True),
    "gpt_oss": _Keys((_LOCAL, 128), (("num_experts_per_tok",), 4), (("intermediate_size",), 2880), normalised=False),
    "hunyuan_v1_moe": _Keys(
        (_LOCAL[::-1], 1),
        (("moe_topk", "num_experts_per_tok"), 1),
        (("intermediate_size",), 11008),
        shared=("num_shared_expert", 1, True),
        normalised=True,
    ),
    "hy_v3": _Keys(
        (_LOCAL[::-1], 192),
        (("num_experts_per_tok",), 8),
        (("moe_intermediate_size",), 1536),
        shared=("num_shared_experts", 1, True),
        normalised=True,
        dense=_listed_dense(1),
    ),
    "solar_open": _Keys(
        (_ROUTED, 128),
        (("num_experts_per_tok",), 8),
        (("moe_intermediate_size",), 1280),
        shared=("n_shared_experts", 1, True),
        normalised=("norm_topk_prob", True),
        groups="n_group",
    ),
    "mellum": _Keys(
        (_LOCAL[::-1], 64),
        (("num_experts_per_tok",), 8),
        (("moe_intermediate_size",), 896),
        normalised=("norm_topk_prob", True),
        dense=_listed_dense(0),
    ),
    "lfm2_moe": _Keys(
        (_LOCAL[::-1], 32),
        (("num_experts_per_tok",), 4),
        (("moe_intermediate_size",), 1792),
        normalised=("norm_topk_prob", True),
        dense=_leading_dense,
    ),
    "nemotron_h": _Keys(
        (_ROUTED, 8),
        (("num_experts_per_tok",), 2),
        (("moe_intermediate_size",), 7688),
        shared=("moe_shared_expert_intermediate_size", 7688, False),
        normalised=("norm_topk_prob", True),
        groups="n_group",
    ),
    "qwen3_next": _Keys(
        (_LOCAL[::-1], 512),
        (("num_experts_per_tok",), 10),
        (("moe_intermediate_size",), 512),
        shared=("shared_expert_intermediate_size", 512, False),
        shared_gate=True,
        normalised=("norm_topk_prob", True),
        dense=_qwen,
    ),
    "qwen3_5_moe_text": _Keys(
        (_LOCAL[::-1], 256),
        (("num_experts_per_tok",), 8),
        (("moe_intermediate_size",), 512),
        shared=("shared_expert_intermediate_size", 512, False),
        shared_gate=True,
        normalised=True,
    ),
    "deepseek_v2": _Keys(
        (_ROUTED, 64),
        width=(("moe_intermediate_size",), 1407),
        shared=("n_shared_experts", 2, True),
        normalised=False,
        groups="n_group",
        dense=_first_dense(0),
    ),
    "deepseek_v3": _Keys(
        (_ROUTED, 256),
        (("num_experts_per_tok",), 8),
        (("moe_intermediate_size",), 2048),
        shared=("n_shared_experts", 1, True),
        normalised=("norm_topk_prob", True),
        groups="n_group",
        group_default=8,
        dense=_first_dense(3),
    ),
    "glm4_moe_lite": _Keys(
        (_ROUTED, 64),
        (("num_experts_per_tok",), 4),
        (("moe_intermediate_size",), 1536),
        shared=("n_shared_experts", 1, True),
        normalised=("norm_topk_prob", True),
        groups="n_group",
        dense=_listed_dense(1),
    ),
    "deepseek": _Keys((_ROUTED, None), shared=("n_shared_experts", 0, True), dense=_first_dense(0)),
}


def experts(keys: Keys, family: str, layers: int) -> Experts | None:
    """The mixture of experts of a family; None for a dense one.

    Raises:
        InputError: a needed key is missing or impossible.
    """
    spelled = MIXTURES.get(family)
    if spelled is None:
        return None
    count, per_token, width = (
        keys.size(*names, default=default) for names, default in (spelled.count, spelled.per_token, spelled.width)
    )
    if per_token > count:
        raise InputError(
            f"a token cannot visit {per_token} of {count} experts",
            where=keys.where,
            fix="num_experts_per_tok must be at most the number of experts",
        )
    shared = 0
    if spelled.shared is not None:
        key, default, counts = spelled.shared
        shared = _count(keys, key, default) * (width if counts else 1)
    return Experts(
        count,
        per_token,
        width,
        shared=shared,
        shared_gate=spelled.shared_gate and shared > 0,
        normalised=keys.flag(spelled.normalised),
        groups=keys.size(spelled.groups, default=spelled.group_default) if spelled.groups else 1,
        dense_layers=spelled.dense(keys, layers),
    )


def _count(keys: Keys, key: str, default: int) -> int:
    """A whole number from 0 on; null and absent are the default."""
    value = keys.config.get(key)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InputError(f"{key} is {value!r}", where=keys.where, fix=f"{key} must be a whole number from 0 on")
    return value
