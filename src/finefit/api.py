"""The façade that the command line, the web pages and notebooks share.

    >>> import finefit
    >>> answer = finefit.estimate("meta-llama/Llama-3.1-8B", method="qlora", seq=2048, gpu="RTX 4090")
    >>> answer.fits
    <Fits.YES: 'yes'>

Every answer is a frozen dataclass with ``to_dict()``, the JSON contract object. Input that cannot be used
raises an error of ``finefit.errors``, which names the input, the place and the fix. The package exports
``plan`` and, since ``finefit.memory`` is the folder of the memory model, ``memory`` by the name ``estimate``.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, TypedDict, Unpack

from finefit.errors import InputError, NotModelled
from finefit.planner.answer import MemoryAnswer
from finefit.resolve.flags import resolve_flags
from finefit.resolve.notes import Notes
from finefit.resolve.resolved import Resolved

if TYPE_CHECKING:
    from finefit.catalog.offers import Offer
    from finefit.planner.apply import Applied
    from finefit.planner.convert import Converted
    from finefit.planner.model_facts import ModelFacts
    from finefit.planner.plan import LargestModels, MethodTable, Plan
    from finefit.planner.reconcile import Reconciled
    from finefit.workload.cluster import Cluster
    from finefit.workload.lengths import Lengths
    from finefit.workload.model import Model

_FASTEST = 100_000  # Gb/s of one machine: more than any has is a slip of the unit
_CONFIGS = (".yaml", ".yml", ".toml", ".sh", ".bash", ".slurm", ".sbatch", ".py")


class Flags(TypedDict, total=False):
    """How a model is trained, as ``finefit.resolve.flags.resolve_flags`` takes it; None is the same as left out."""

    method: str | None
    rank: int | None
    targets: str | Sequence[str] | None
    batch: int | None
    seq: int | None
    accum: int | None
    eval_batch: int | None
    precision: str | None
    optimizer: str | None
    checkpointing: str | None
    attention: str | None
    quant_bits: int | None
    kbit_prepare: bool | None
    loss: str | None
    sharding: str | None
    padded: bool | None
    train_layers: int | None
    train_modules: str | None
    epochs: float | None
    image_size: str | None
    images: int | None
    freeze: str | None


class Data(TypedDict, total=False):
    """How much data there is: a file to count, or numbers (``stated_lengths``)."""

    data: str | Path | None
    samples: int | None
    mean_length: float | None
    tokens: int | None
    longest: int | None


class Question(Flags, Data, total=False):
    """Everything ``plan`` takes by name besides the GPUs and what is wished for."""


def memory(
    model: str | Path,
    *,
    gpu: str | None = None,
    as_of: str | dt.date | None = None,
    exact: bool = False,
    explain: bool = False,
    **flags: Unpack[Flags],
) -> MemoryAnswer | MethodTable:
    """What one GPU needs to train ``model``; the table of methods where the method or the length is left out.

    Args:
        model: catalogue name, path of a config.json or its folder, or Hub id already downloaded.
        gpu: "RTX 4090", "2x H100"; without it the memory alone is answered.
        as_of: the day of the answer, today if left out.
        exact: answer from a stored trace of the real library code where there is one.
        explain: with the formulas behind the peak, which are the model's and not a trace's.
        flags: as ``Flags``.

    Raises:
        InputError, UnknownModel, UnknownGpu, NotModelled: what, where and how to fix it.
    """
    day = day_of(as_of)
    cluster, notes = _cluster(gpu)
    resolved = _with_warnings(resolve_flags(str(model), **flags), notes)
    if resolved.recipe is None:
        return _table(str(model), resolved, cluster, day, flags)
    resolved = _with_doubts(resolved, cluster)
    from finefit.planner.memory_answer import memory_answer

    if exact and explain:
        raise InputError("--explain shows the model's formulas, which a trace does not have", fix="leave out --exact")
    return memory_answer(resolved, cluster, day, exact=exact, explained=explain)


def plan(
    source: str | Path | None = None,
    *,
    gpu: str | None = None,
    budget: str | None = None,
    deadline: str | None = None,
    kinds: Sequence[str] = ("on-demand",),
    currency: str | None = None,
    overrides: Mapping[str, object] | None = None,
    config_format: str | None = None,
    as_of: str | dt.date | None = None,
    network: float | None = None,
    explain: bool = False,
    refreshed: Iterable[Offer] | None = None,
    **question: Unpack[Question],
) -> Plan | MethodTable | LargestModels:
    """Does the run fit, how long does it take, what does it cost, and what should be changed?

    Args:
        source: a training config or launch script of a tool that is read, or a model as ``memory`` takes it; None
            with a GPU alone asks for the largest models that it trains.
        gpu: "RTX 4090", "2x H100"; without it, the cards that hold the run are listed.
        budget: "200USD"; deadline: "24h".
        kinds: kinds of offers, the one the bill is made at first: on-demand, spot, community, monthly, yearly.
        currency: "USD" or "CNY"; that of the budget, else USD, if left out.
        overrides: keys of the config with other values.
        config_format: whose config it is ("axolotl"), where its content does not tell.
        as_of: the day of the answer, today if left out; prices age against it.
        network: Gb/s of one machine's network cards together; that of the usual machine of these GPUs if left out.
        explain: with the parts of a step and the constants they rest on.
        refreshed: newer prices; each stands in for the bundled one of the same offer.
        question: training flags for a model (``Flags``), and the data (``Data``).

    Raises:
        InputError, UnknownModel, UnknownGpu, NotModelled: what, where and how to fix it.
    """
    from finefit.catalog.offers import newest
    from finefit.planner.planning import Wishes, make_plan
    from finefit.units import parse_duration, parse_money

    money = None if budget is None else parse_money(budget)
    day = day_of(as_of)
    wishes = Wishes(
        as_of=day,
        kinds=(kinds,) if isinstance(kinds, str) else tuple(kinds),
        currency=currency_of(currency) or (money.currency if money else "USD"),
        budget=money,
        deadline_seconds=None if deadline is None else parse_duration(deadline),
        explain=explain,
        offers=None if refreshed is None else newest(refreshed, day),
    )
    _check_kinds(wishes.kinds)
    cluster, notes = _cluster(gpu, network)
    flags, data = _split(question)
    if source is None:
        return _largest(cluster, wishes.as_of, notes)
    if config_format is not None or is_config(source):
        resolved = _from_config(source, overrides, data, flags, config_format)
    else:
        resolved = _from_flags(str(source), overrides, data, flags)
    resolved = _with_warnings(resolved, notes)
    if resolved.recipe is None:
        return _table(str(source), resolved, cluster, wishes.as_of, flags)
    return make_plan(_with_doubts(resolved, cluster), cluster, wishes)


def workload(
    source: str | Path,
    *,
    gpu: str | None = None,
    network: float | None = None,
    overrides: Mapping[str, object] | None = None,
    outline: Model | None = None,
    **question: Unpack[Question],
) -> tuple[Resolved, Cluster | None]:
    """What ``plan`` would plan, without planning it: the whole recipe with the source of each field, and the GPUs.

    Args:
        source, gpu, network, overrides, question: as ``plan`` takes them.
        outline: for the tracer, what is known of a model that is not modelled.

    Raises:
        InputError, UnknownModel, UnknownGpu, NotModelled: what, where and how to fix it; a recipe that lacks
            its method or length is wrong input here.
    """
    cluster, notes = _cluster(gpu, network)
    flags, data = _split(question)
    if is_config(source):
        resolved = _from_config(source, overrides, data, flags, None)
    else:
        resolved = _from_flags(str(source), overrides, data, flags, outline)
    resolved.workload(cluster)  # says what is missing
    return _with_warnings(resolved, notes), cluster


def reconcile(
    source: str | Path,
    other: str,
    *,
    gpu: str | None = None,
    overrides: Mapping[str, object] | None = None,
    as_of: str | dt.date | None = None,
    **question: Unpack[Question],
) -> Reconciled:
    """Which term another figure for the memory of one GPU leaves out, with the arithmetic.

    Args:
        other: "60GB" or "55.9GiB".
        source, gpu, overrides, question: as ``plan`` takes them.

    Raises:
        InputError, UnknownModel, UnknownGpu, NotModelled: what, where and how to fix it.
    """
    from finefit.planner import reconcile as planner
    from finefit.units import parse_bytes

    sizes = parse_bytes(other, where="--other")
    resolved, cluster = workload(source, gpu=gpu, overrides=overrides, **question)
    return planner.reconcile(resolved, cluster, sizes, day_of(as_of))


def apply(plan: str | Path, to: str | Path, *, remedy: int | None = None, config_format: str | None = None) -> Applied:
    """A change that a plan proposes, in the text of the config that was planned; nothing is written.

    Args:
        plan: a file with what ``finefit plan CONFIG --json`` printed.
        to: the config.
        remedy: number of the change, from 1; the first that makes the run fit if left out.
        config_format: whose config it is, where its content does not tell.

    Raises:
        InputError, NotModelled: what cannot be changed, where, and what to do by hand.
    """
    from finefit.planner.apply import apply_plan

    return apply_plan(plan, to, remedy=remedy, tool=config_format)


def convert(
    config: str | Path, to: str, *, config_format: str | None = None, output: str | Path | None = None
) -> Converted:
    """A config in the words of another tool, and the lines whose meaning does not carry over.

    Args:
        config: a config or launch script.
        to: "llamafactory", "axolotl", "trl", "ms-swift" or "torchtune".
        config_format: whose config it is, where its content does not tell.
        output: a new file to write it to.

    Raises:
        InputError, NotModelled: what cannot be read or written, and what to do.
    """
    from finefit.planner.apply import write_new
    from finefit.planner.convert import convert as converted

    found = converted(config, to, tool=config_format)
    if output is not None:
        write_new(Path(output), found.text)
    return found


def known_gpus() -> list[tuple[str, int, str]]:
    """Id, bytes of memory that torch reports on one device, and product name of every GPU of the catalogue."""
    from finefit.catalog.gpu_table import cards

    return [(card.gpu.id, card.gpu.memory, card.label) for card in cards()]


def known_models() -> list[tuple[str, int | None, bool]]:
    """Name, parameters (None where nobody counted them) and whether its training is modelled, of every model."""
    from finefit.catalog.models import entries, find

    found = []
    for entry in entries():
        try:
            find(entry.name)
            found.append((entry.name, entry.parameters, True))
        except NotModelled:
            found.append((entry.name, entry.parameters, False))
    return found


def model_file(source: str | Path) -> tuple[Path, bool] | None:
    """The config.json on this machine of a model, and whether finefit models it; None for any other source."""
    from finefit.resolve.models import model_file as find
    from finefit.resolve.models import resolve_model

    file = None if is_config(source) else find(str(source))
    if file is None:
        return None
    try:
        resolve_model(str(source), where="MODEL")
    except NotModelled:
        return file, False
    return file, True


def model_facts(model: str | Path, *, online: bool = False) -> ModelFacts:
    """Shape, exact parameters and stored bytes of a model, from its config and the headers of its files.

    Args:
        model: as ``memory`` takes it; a safetensors or GGUF file too.
        online: read the headers on the Hub where no weights are here.

    Raises:
        InputError, UnknownModel, HubUnreachable, NotModelled: what, where and how to fix it.
    """
    from finefit.planner.model_facts import model_facts as facts

    return facts(str(model), online=online)


def is_config(source: str | Path) -> bool:
    """Whether a name means a training config: by its ending, or a JSON file whose keys are a tool's."""
    text = str(source)
    if text.lower().endswith(_CONFIGS):
        return True
    if not text.lower().endswith(".json"):
        return False
    from finefit.formats import json_file, yaml11
    from finefit.formats.tools import recognise

    try:
        head = yaml11.read_text(Path(text).expanduser())
    except (InputError, RuntimeError):  # RuntimeError: the home of nobody
        return False
    try:
        return recognise([key for key, _, _ in json_file.load_tree(head, text).items]) is not None
    except InputError:  # damaged: whoever wrote these words meant a config
        return '"model_name_or_path"' in head


def _from_config(
    source: str | Path, overrides: Mapping[str, object] | None, data: Data, flags: Flags, tool: str | None
) -> Resolved:
    from finefit.resolve.any_config import resolve_any

    if flags:
        name = sorted(flags)[0].replace("_", "-")
        raise InputError(
            "flags of the recipe are for a model; this is a config, which states its own",
            where=f"--{name}",
            fix="change the config, or write --set KEY=VALUE with the config's key",
        )
    lengths, notes = _stated(data)
    resolved = resolve_any(source, tool=tool, overrides=overrides, data=data.get("data"), lengths=lengths)
    return _with_notes(resolved, notes)


def _from_flags(
    source: str, overrides: Mapping[str, object] | None, data: Data, flags: Flags, outline: Model | None = None
) -> Resolved:
    if overrides:
        raise InputError("this is a model, and --set changes a config", where="--set", fix="use flags such as --seq")
    lengths, notes = _stated(data)
    if lengths is None and data.get("data") is not None:
        from finefit.resolve.data import file_lengths

        lengths = file_lengths(str(data["data"]), notes, model=source, cutoff=flags.get("seq"))
    return _with_notes(resolve_flags(source, lengths=lengths, outline=outline, **flags), notes)


def _split(question: Question) -> tuple[Flags, Data]:
    """The training flags and the data of a question; what is neither is refused, as a call of Python would."""
    for name in question:
        if name not in Flags.__annotations__ and name not in Data.__annotations__:
            raise TypeError(f"finefit takes no argument {name!r}")
    flags = Flags(**{key: question[key] for key in Flags.__annotations__ if question.get(key) is not None})  # type: ignore[literal-required,typeddict-item]
    data = Data(**{key: question[key] for key in Data.__annotations__ if question.get(key) is not None})  # type: ignore[literal-required,typeddict-item]
    return flags, data


def _stated(data: Data) -> tuple[Lengths | None, Notes]:
    """Lengths stated in numbers, None without; numbers and a file contradict each other."""
    notes = Notes()
    numbers = {key: data.get(key) for key in ("samples", "mean_length", "tokens", "longest")}
    if all(value is None for value in numbers.values()):
        return None, notes
    if data.get("data") is not None:
        raise InputError("the data are stated twice, as a file and in numbers", where="--data", fix="state one of them")
    from finefit.resolve.data import stated_lengths

    lengths = stated_lengths(
        samples=data.get("samples"),
        mean_length=data.get("mean_length"),
        tokens=data.get("tokens"),
        longest=data.get("longest"),
        notes=notes,
    )
    return lengths, notes


def _table(source: str, first: Resolved, cluster: Cluster | None, as_of: dt.date, flags: Flags) -> MethodTable:
    """The table of methods and lengths under the user's flags and printed assumptions."""
    from finefit.planner.tables import RANK, method_table

    stated = Flags(**flags)
    for key in ("method", "seq"):
        stated.pop(key, None)  # type: ignore[misc]
    assumed = []
    if flags.get("checkpointing") is None:
        stated["checkpointing"] = "full"
        assumed.append("gradient checkpointing is on")
    if flags.get("rank") is None:
        stated["rank"] = RANK
        assumed.append(f"LoRA and QLoRA have rank {RANK}")
    if flags.get("targets") is None:
        stated["targets"] = "all-linear"
        assumed.append("LoRA and QLoRA sit on every linear layer")
    if flags.get("batch") is None:
        stated["batch"] = 1
        assumed.append("one sample at a time")
    if flags.get("precision") is None:
        assumed.append(f"weights and training are in {first.model.checkpoint_dtype.value}, the checkpoint's precision")

    def resolve(method: str, seq: int) -> Resolved:
        own = Flags(**stated)
        if method == "full":
            own.pop("rank", None)
            own.pop("targets", None)
        if method != "qlora":
            own.pop("quant_bits", None)
            own.pop("kbit_prepare", None)
        own["method"], own["seq"] = method, seq
        one = resolve_flags(source, **own)
        return replace(one, assumptions=(*assumed, *one.assumptions))

    return method_table(resolve, first, method=flags.get("method"), seq=flags.get("seq"), cluster=cluster, as_of=as_of)


def _largest(cluster: Cluster | None, as_of: dt.date, notes: tuple[str, ...]) -> LargestModels:
    if cluster is None:
        raise InputError(
            "nothing to plan", where="CONFIG|MODEL", fix='name a config, a model, or a GPU with --gpu "RTX 4090"'
        )
    from finefit.planner.tables import largest_models

    return largest_models(cluster, as_of, notes)


def _cluster(gpu: str | None, network: float | None = None) -> tuple[Cluster | None, tuple[str, ...]]:
    if gpu is None:
        return None, ()
    from finefit.catalog.gpus import parse_gpus

    cluster, notes = parse_gpus(gpu)
    if network is None:
        return cluster, notes
    if not 0 < network < _FASTEST:
        raise InputError(f"a network of {network:g} Gb/s", where="--network", fix="state Gb/s: 400 for one such card")
    return replace(cluster, network=network * 1e9 / 8), notes


def _check_kinds(kinds: tuple[str, ...]) -> None:
    from finefit.catalog.offers import Kind

    wrong = next((kind for kind in kinds if kind not in list(Kind)), None)
    if wrong is not None or not kinds:
        what = "no kind of offer is named" if wrong is None else f"{wrong[:20]!r} is not a kind of offer"
        raise InputError(what, where="--kinds", fix=f"write some of {', '.join(Kind)}")


def currency_of(text: str | None) -> str | None:
    """The currency that ``--currency`` names, None for none."""
    if text is None:
        return None
    if text.upper() not in ("USD", "CNY"):
        raise InputError(f"{text[:20]!r} is not a currency with prices", where="--currency", fix="write USD or CNY")
    return text.upper()


def day_of(as_of: str | dt.date | None) -> dt.date:
    """The day of the answer: as stated, else today."""
    if as_of is None:
        return dt.date.today()
    if isinstance(as_of, dt.date):
        return as_of
    try:
        return dt.date.fromisoformat(as_of)
    except ValueError:
        raise InputError(f"{as_of[:20]!r} is not a date", where="--as-of", fix="write it as 2026-11-30") from None


def _with_warnings(resolved: Resolved, notes: tuple[str, ...]) -> Resolved:
    return replace(resolved, warnings=(*resolved.warnings, *notes)) if notes else resolved


def _with_doubts(resolved: Resolved, cluster: Cluster | None) -> Resolved:
    """What the stated card lacks for the recipe."""
    if cluster is None or resolved.recipe is None:
        return resolved
    from finefit.resolve.gpus import doubts

    return _with_warnings(resolved, doubts(resolved.recipe, cluster.gpu))


def _with_notes(resolved: Resolved, notes: Notes) -> Resolved:
    """What the lengths added to the sources, assumptions and warnings."""
    if not (notes.sources or notes.assumptions or notes.warnings):
        return resolved
    return replace(
        resolved,
        sources=MappingProxyType({**resolved.sources, **notes.sources}),
        assumptions=(*resolved.assumptions, *notes.assumptions),
        warnings=(*resolved.warnings, *notes.warnings),
    )
