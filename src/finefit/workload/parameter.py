"""One parameter tensor: its name, shape and kind."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter tensor.

    Attributes:
        name: path inside its block as the library names it ("self_attn.q_proj.weight").
        shape: as the library stores it; a Linear is (out, in), GPT-2's Conv1D is (in, out).
        kind: "linear" (a matrix that LoRA and bitsandbytes may replace), "head", "embedding",
            "position", "norm" (its bias too), "bias" (of a linear module or the head), "activation"
            (the learned scalars of xIELU), "router" (scores of the experts: no ``nn.Linear``) or "experts"
            (all experts in one tensor, which neither LoRA by module name nor bitsandbytes reaches).
    """

    name: str
    shape: tuple[int, ...]
    kind: str

    @property
    def module(self) -> str:
        """Path of the module that owns it ("self_attn.q_proj")."""
        return self.name.rpartition(".")[0]

    @property
    def numel(self) -> int:
        """Number of elements."""
        count = 1
        for dim in self.shape:
            count *= dim
        return count
