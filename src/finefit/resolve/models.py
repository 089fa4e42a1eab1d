"""What the user calls a model → ``Model``: a path, a catalogue name, or a Hub id already downloaded.

Nothing is fetched. What exists on disk comes first, as it does in transformers; a catalogue name comes
before the Hub cache, because its row states what a config.json may leave out.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from finefit.catalog import models as catalogue
from finefit.errors import InputError, NotModelled, UnknownModel
from finefit.formats.hf_config import model_from_config
from finefit.workload.model import Model


def resolve_model(text: str, *, where: str | None = None) -> Model:
    """The model that ``text`` names.

    Args:
        text: path of a config.json or of the folder that holds it, catalogue name or alias, or Hub id.
        where: the flag or file and line it was written at, for errors.

    Raises:
        InputError: an empty name, or a file that is no configuration of a model.
        UnknownModel: not a path, not in the catalogue and not in the local Hub cache.
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
        if cached is None:
            raise UnknownModel(
                f"{name!r} is not in the catalogue and not downloaded here", where=where, fix=unknown.fix
            ) from None
        revision = cached.parent.name[:7]
        return model_from_config(_read(cached), name, f"{name}@{revision} (Hub cache)")


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
    file = path / "config.json" if path.is_dir() else path
    if not file.is_file():
        raise InputError(
            f"the folder {path} holds no config.json",
            where=where,
            fix="name the folder that holds the model's config.json",
        )
    name = file.resolve().parent.name if file.name == "config.json" else file.stem
    return model_from_config(_read(file), name, str(file))


def _looks_like_path(name: str) -> bool:
    return name.startswith(("/", "./", "../", "~", ".\\", "..\\")) or name.endswith(".json") or name.count("/") > 1


def _read(file: Path) -> dict[str, Any]:
    import json  # only for files: a catalogue name needs no parser

    try:
        config = json.loads(file.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read: {error}", where=str(file), fix="check the file") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"is not JSON: {error}", where=str(file), fix="name a model's config.json") from error
    if not isinstance(config, dict):
        raise InputError("is not a JSON object", where=str(file), fix="name a model's config.json")
    return config


def cached_file(repo: str, name: str = "config.json") -> Path | None:
    """A file of a repository in the local Hub cache, of its newest snapshot.

    Layout and environment of huggingface_hub (``constants.py`` HF_HUB_CACHE, HF_HOME;
    ``file_download.py`` repo_folder_name): ``models--org--name/snapshots/<commit>/config.json``.
    """
    if any(part in ("", ".", "..") for part in repo.split("/")):
        return None
    home = os.environ.get("HF_HOME") or str(Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface")
    cache = Path(os.environ.get("HF_HUB_CACHE") or str(Path(home) / "hub")).expanduser()
    folder = cache / f"models--{repo.replace('/', '--')}"
    main = folder / "refs" / "main"
    try:
        if main.is_file():
            config = folder / "snapshots" / main.read_text(encoding="utf-8").strip() / name
            if config.is_file():
                return config
        found = [file for file in folder.glob(f"snapshots/*/{name}") if file.is_file()]
        return max(found, key=lambda file: file.parent.stat().st_mtime, default=None)
    except OSError:  # a cache we may not read is as good as none
        return None
