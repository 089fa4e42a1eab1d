"""Models of a row that no catalogue knows by name: shapes in words, and names that mean another's shape."""

from __future__ import annotations

import re
from dataclasses import replace

from benchmarks.rows import Skip
from finefit.catalog import models
from finefit.errors import FinefitError
from finefit.workload.dtypes import DType
from finefit.workload.model import Model

# "12 layers, 768, 12 heads, ctx 1024, vocab 50257, untied head, qkv_bias False, dropout 0.1"
_GPT2 = re.compile(r"\bGPT-?2\b.*?(\d+) layers, (\d+), (\d+) heads, ctx (\d+), vocab (\d+)(.*)", re.I)
# "Llama-3 70B shape truncated to 12 layers"
_CUT = re.compile(r"^(?P<name>.+?) shape truncated to (?P<layers>\d+) layers", re.I)
# Shapes under the name of the release before the one that first had them: Llama 3's paper (arXiv 2407.21783, table 3)
# gives 70B and 405B; the weights of 405B came as 3.1.
_SHAPES = {"Llama-3 405B": "meta-llama/Llama-3.1-405B"}


def find(name: str) -> tuple[Model, str | None]:
    """The model a row names, and what had to be assumed about it.

    Raises:
        Skip: nothing is known of that name.
    """
    if match := _GPT2.search(name):
        return _gpt2(*match.groups()), "shape built from the words of the row"
    if match := _CUT.match(name):
        whole, about = find(_SHAPES.get(match["name"], match["name"]))
        kept = int(match["layers"])
        cut = replace(whole, layers=kept, layer_types=whole.layer_types[:kept], shapes=whole.shapes[:kept])
        return cut, about or "shape built from the words of the row"
    # "NAME (what it is)": the words in brackets are a comment
    try:
        return models.find(name), None
    except FinefitError as error:
        bare = re.sub(r"\s*\(.*\)\s*$", "", name)
        if bare != name and bare:
            try:
                return models.find(bare), f"model {name!r} taken as {bare!r}"
            except FinefitError:
                pass
        raise Skip(f"model not known: {name}") from error


def _gpt2(layers: str, hidden: str, heads: str, context: str, vocab: str, rest: str) -> Model:
    width, count = int(hidden), int(heads)
    dropout = re.search(r"dropout ([\d.]+)", rest)
    rate = float(dropout[1]) if dropout else 0.0
    return Model(
        name=f"gpt2-{layers}x{hidden}",
        family="gpt2",
        hidden=width,
        layers=int(layers),
        heads=count,
        kv_heads=count,
        head_dim=width // count,
        ffn=4 * width,
        vocab=int(vocab),
        tied="untied" not in rest,
        activation="gelu_new",
        gated_mlp=False,
        norm="layer",
        qkv_bias="qkv_bias False" not in rest,
        o_bias=True,
        mlp_bias=True,
        position="learned",
        max_position=int(context),
        fused_qkv=True,
        attention_dropout=rate,
        residual_dropout=rate,
        embedding_dropout=rate,
        checkpoint_dtype=DType.FP32,
        origin="words",
    )
