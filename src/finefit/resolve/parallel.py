"""How a copy of the model is cut over GPUs, tool by tool, and what is assumed of each cut."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

from finefit.errors import NotModelled
from finefit.resolve.notes import Notes
from finefit.resolve.readings.reading import Reading
from finefit.workload.recipe import Parallel

# Stacks that divide embedding, head and logits among the tensor ranks, beside Megatron-Core (VocabParallelEmbedding):
# torchtitan 0.2.2 models/llama3/infra/parallelize.py. transformers' plans gather the logits.
_VOCABULARY = ("torchtitan",)


def parallel_of(reading: Reading, notes: Notes) -> Parallel:
    """The degrees of a reading.

    Raises:
        NotModelled: context and sequence parallelism together.
    """
    stated = reading.get("parallel") or {}
    degrees = {name: size for name, size in stated.items() if size > 1} if isinstance(stated, Mapping) else {}
    if "cp" in degrees and "sp" in degrees:
        raise NotModelled(
            "context and sequence parallelism together is not modelled yet",
            where=reading.where("parallel"),
            fix="keep one of them",
        )
    sliced = reading.text("strategy") in ("device_map", "ddp+device_map")
    found = Parallel(
        tensor=degrees.get("tp", 1),
        pipeline=degrees.get("device_map", 1) if sliced else degrees.get("pp", 1),
        context=degrees.get("cp", degrees.get("sp", 1)),
        expert=degrees.get("ep", 1),
        vocabulary=reading.tool in _VOCABULARY or reading.text("strategy") == "megatron",
        replicas=degrees.get("dp_replicate", 1),
        one_at_a_time=sliced,
    )
    for field in fields(Parallel):
        if field.name == "vocabulary":
            notes.derived("parallel.vocabulary", f"as {reading.tool}@{reading.version} cuts it")
        elif "parallel" in reading.values and reading.values["parallel"].value:
            notes.source(f"parallel.{field.name}", reading.values["parallel"].source)
    for sentence in _assumed(found):
        notes.assume(sentence)
    return found


def _assumed(parallel: Parallel) -> list[str]:
    said = []
    if parallel.tensor > 1:
        said.append(
            f"tensor parallelism over {parallel.tensor} GPUs divides heads and feed-forward widths; norms and hidden "
            "states are planned whole on each, an upper bound where sequence parallelism divides them too"
        )
    if parallel.pipeline > 1 and parallel.one_at_a_time:
        said.append(
            f"the layers are spread evenly over {parallel.pipeline} GPUs, which work one after the other; embedding "
            "and head are planned on the same GPU, an upper bound"
        )
    elif parallel.pipeline > 1:
        said.append(
            f"a pipeline of {parallel.pipeline} stages divides the layers evenly; the first stage's micro-batches in "
            "flight, the embedding and the head are planned on the same GPU, an upper bound"
        )
    if parallel.context > 1:
        said.append(f"each row's tokens are divided over {parallel.context} GPUs, keys and values travel between them")
    if parallel.expert > 1:
        said.append(
            f"the experts are divided over {parallel.expert} GPUs and tokens spread evenly over them; the fullest GPU "
            "of an uneven routing needs more"
        )
    return said
