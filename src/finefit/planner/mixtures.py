"""What an answer about a mixture of experts or a hybrid rests on, and what surprises people about it."""

from __future__ import annotations

from finefit.workload import Model, Recipe
from finefit.workload.parameters import active_count, layers_numel, parameter_count


def mixture_assumptions(model: Model, recipe: Recipe) -> tuple[str, ...]:
    """Sentences about routing and about where adapters sit; none for dense models."""
    experts = model.experts
    if experts is None:
        return _plain_torch(model)
    total, active = parameter_count(model), active_count(model)
    said = [
        f"all {experts.count} experts of a layer are held and {experts.per_token} work on a token: "
        f"{active:,} of {total:,} parameters; memory does not depend on how even the routing is, as each token is "
        "copied once for each of its experts (grouped_mm, the default of transformers 5)"
    ]
    if recipe.method == "lora" and layers_numel(model, "experts"):
        said.append(
            "adapters sit on linear modules, the experts have none: they are stacked in one tensor a layer, which "
            "PEFT reaches from 0.19 on where their projections are named"
        )
    return (*said, *_plain_torch(model))


def _plain_torch(model: Model) -> tuple[str, ...]:
    """What layers without attention are computed with."""
    if not {"linear", "mamba2"} & set(model.layer_types):
        return ()
    return (
        "layers of linear attention or Mamba 2 are planned in plain torch, as transformers runs them where no fused "
        "kernels are installed; with flash-linear-attention or mamba-ssm they need less",
    )


def mixture_warnings(model: Model, recipe: Recipe) -> tuple[str, ...]:
    """Experts that quantisation passes over."""
    experts = layers_numel(model, "experts")
    if recipe.quant is None or not experts:
        return ()
    share = round(100 * experts / parameter_count(model))
    if recipe.quant.kbit_prepare:
        return (
            f"bitsandbytes does not quantise the experts ({share} % of the parameters are 3-D tensors, not linear "
            "modules), and k-bit preparation casts them to fp32: 4 bytes a parameter",
        )
    return (
        f"bitsandbytes does not quantise the experts ({share} % of the parameters are 3-D tensors, not linear "
        "modules): they stay in 16 bits",
    )
