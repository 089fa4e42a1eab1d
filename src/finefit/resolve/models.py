"""What the user calls a model → ``Model``: a path, a catalogue name, or a Hub id already downloaded.

What exists on disk comes first, as it does in transformers; a catalogue name comes before the caches of the Hubs,
because its row states what a config.json may leave out. The Hub itself is asked last, for an id that nobody here knows.
Code that a repository brings along is never run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from finefit.catalog import models as catalogue
from finefit.errors import InputError, NotModelled, UnknownModel
from finefit.formats.hf_config import model_from_config
from finefit.resolve.hub_cache import cached_file
from finefit.workload.model import Model

_MAX_CONFIG = 5_000_000  # bytes; the longest of the published ones take some 100 kB
_FILES = (".json", ".gguf", ".safetensors")


def resolve_model(text: str, *, where: str | None = None) -> Model:
    """The model that ``text`` names.

    Args:
        text: path of a config.json, of the folder that holds it, of a safetensors file beside it or of a GGUF file;
            catalogue name or alias; Hub id.
        where: the flag or file and line it was written at, for errors.

    Raises:
        InputError: an empty name, or a file that is no configuration of a model.
        UnknownModel: not a path, not in the catalogue, not in a local cache and not on the Hub.
        HubUnreachable: the Hub did not answer.
        NotModelled: known, but not a decoder modelled yet.
    """
    name = text.strip()
    if not name:
        raise InputError(
            "the name of the model is empty", where=where, fix="name a model, or the path of a config.json"
        )
    explicit = _looks_like_path(name)
    path = _existing(name)
    if path and (explicit or path.is_file() or (path / "config.json").is_file()):
        return _from_path(path, where)
    if explicit:
        raise InputError(f"there is no file or folder {name}", where=where, fix="check the path of the model")
    try:
        return catalogue.find(name, where=where)
    except UnknownModel as unknown:
        cached = cached_file(name)
        if cached is not None:
            revision = cached.parent.name[:7]
            return model_from_config(_completed(_read(cached), cached.parent), name, f"{name}@{revision} (Hub cache)")
        from finefit.resolve.hub import found_on_hub, may_ask

        if not may_ask(name):
            raise UnknownModel(
                f"{name!r} is not in the catalogue and not downloaded here", where=where, fix=unknown.fix
            ) from None
        remote = found_on_hub(name, where=where, advice=str(unknown.fix))
        return model_from_config(remote.config, name, remote.origin)


def model_file(text: str) -> Path | None:
    """The config.json on this machine that ``resolve_model`` reads for ``text``; None where it reads none."""
    name = text.strip()
    path = _existing(name) if name else None
    if path is not None:
        file = path / "config.json" if path.is_dir() else path
        if file.is_file():
            return file
    if not name or _looks_like_path(name):
        return None
    try:
        catalogue.find(name)
    except UnknownModel:
        return cached_file(name)
    except NotModelled:
        return None
    return None


def _existing(name: str) -> Path | None:
    try:
        path = Path(name).expanduser()
        return path if path.exists() else None
    except (OSError, RuntimeError, ValueError):  # too long for a file name, ~ of nobody, a null character
        return None


def _from_path(path: Path, where: str | None) -> Model:
    if path.suffix.lower() == ".gguf" and path.is_file():
        from finefit.formats import gguf

        header = gguf.read(path)
        return model_from_config(gguf.config_of(header, str(path)), path.stem, str(path))
    if path.suffix.lower() == ".safetensors":
        path = path.parent
    file = path / "config.json" if path.is_dir() else path
    if not file.is_file():
        raise InputError(
            f"the folder {path} holds no config.json",
            where=where,
            fix="name the folder that holds the model's config.json",
        )
    name = file.resolve().parent.name if file.name == "config.json" else file.stem
    return model_from_config(_completed(_read(file), file.parent), name, str(file))


def _completed(config: dict[str, Any], folder: Path) -> dict[str, Any]:
    """With what the files beside it say; only a model on disk needs their readers."""
    from finefit.resolve.sidecars import completed

    return completed(config, folder)


def _looks_like_path(name: str) -> bool:
    return name.startswith(("/", "./", "../", "~", ".\\", "..\\")) or name.endswith(_FILES) or name.count("/") > 1


def _read(file: Path) -> dict[str, Any]:
    import json  # only for files: a catalogue name needs no parser

    try:
        with file.open("rb") as handle:
            raw = handle.read(_MAX_CONFIG + 1)
        if len(raw) > _MAX_CONFIG:
            raise InputError("is larger than any model's config.json", where=str(file), fix="name the model's own file")
        config = json.loads(raw.decode("utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read: {error}", where=str(file), fix="check the file") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"is not JSON: {error}", where=str(file), fix="name a model's config.json") from error
    if not isinstance(config, dict):
        raise InputError("is not a JSON object", where=str(file), fix="name a model's config.json")
    return config
