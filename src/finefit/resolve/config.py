"""From a training config to a whole workload: read, refuse what is not modelled, fill the tool's defaults."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from finefit.errors import InputError, UnknownModel
from finefit.formats import llamafactory, yaml11
from finefit.formats.said import Said
from finefit.resolve.alike import alike
from finefit.resolve.companions import model_named
from finefit.resolve.data import config_lengths, file_lengths
from finefit.resolve.images import of_llamafactory, pictured
from finefit.resolve.notes import Notes
from finefit.resolve.recipe import recipe_of
from finefit.resolve.resolved import Resolved
from finefit.resolve.saving import evaluation_of, saving_of
from finefit.resolve.settings import Settings
from finefit.resolve.stored_quant import restored
from finefit.resolve.unmodelled import refuse_unmodelled
from finefit.workload.lengths import Lengths
from finefit.workload.model import Model


def resolve_config(
    path: str | Path,
    *,
    tool: str | None = None,
    overrides: Mapping[str, object] | None = None,
    data: str | Path | None = None,
    lengths: Lengths | None = None,
) -> Resolved:
    """A LLaMA-Factory config as a workload, each field with its source.

    Args:
        path: the YAML or JSON file, or a script that calls llamafactory-cli.
        tool: "llamafactory" where the user says that it is one; its content tells if left out.
        overrides: the tool's own keys with other values, as ``key=value`` after the file ("cutoff_len": 4096);
            a text is read as YAML.
        data: a data file that stands for the data sets the config names.
        lengths: lengths stated by flags; they win over ``data`` and over the config's data sets.

    Raises:
        InputError: the file or a value in it is wrong, or the model is unknown.
        NotModelled: the file is understood and finefit does not model the run.
    """
    said = llamafactory.read(path, tool)
    if overrides:
        said = overridden(said, overrides, yaml11.Dialect.OMEGACONF)
    settings, notes = Settings(said), Notes()
    for sentence in (*said.warnings, *settings.unknown_keys()):
        notes.warn(sentence)
    refuse_unmodelled(settings)
    if not settings.flag("do_train"):
        notes.warn(f"{said.path}: do_train is not true, so LLaMA-Factory would not train with this file")
    text = settings.text("model_name_or_path") or ""
    model = _model(settings, text, notes)
    notes.source("model", settings.source("model_name_or_path"))
    if lengths is None:
        lengths = config_lengths(settings, notes) if data is None else _file(data, settings, text, notes)
    recipe = recipe_of(settings, model, lengths, notes)
    if lengths.samples and recipe.max_samples and lengths.samples > recipe.max_samples:
        where = settings.where("max_samples")
        notes.warn(f"{where}: the config cuts {lengths.samples} samples to {recipe.max_samples}")
    resolved = Resolved(
        model=model,
        model_text=text,
        recipe=recipe,
        lengths=lengths,
        origin=str(path),
        sources=MappingProxyType(dict(notes.sources)),
        assumptions=tuple(notes.assumptions),
        warnings=tuple(notes.warnings),
        saving=saving_of(settings),
        evaluation=evaluation_of(settings, lengths.samples),
    )
    return pictured(resolved, lambda: of_llamafactory(settings))


def overridden(said: Said, overrides: Mapping[str, object], dialect: yaml11.Dialect) -> Said:
    """The config with other values for some of its keys; a text is read as the tool reads YAML."""

    def parsed(key: str, value: object) -> object:
        return yaml11.load_scalar(value, f"--set: {key}", dialect) if isinstance(value, str) else value

    return said.override({key: parsed(key, value) for key, value in overrides.items()}, "--set")


def _file(data: str | Path, settings: Settings, model: str, notes: Notes) -> Lengths:
    cutoff = settings.optional_integer("cutoff_len", minimum=1)
    return file_lengths(data, notes, model=model, cutoff=cutoff, template=settings.text("template"))


def _model(settings: Settings, text: str, notes: Notes) -> Model:
    where = settings.where("model_name_or_path")
    try:
        model = model_named(settings.said, text, where)
    except (UnknownModel, InputError) as unknown:
        found = alike(text, where, notes, quantised=settings.stated("quantization_bit"))
        if found is None:
            raise unknown
        model = found
    return restored(model, "LLaMA-Factory", where, notes)
