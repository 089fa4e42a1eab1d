"""Files of models that other programs have downloaded: the caches of huggingface_hub and ModelScope."""

from __future__ import annotations

import os
from pathlib import Path


def cached_file(repo: str, name: str = "config.json") -> Path | None:
    """A file of a repository in a local cache, of its newest snapshot; None where there is none."""
    if any(part in ("", ".", "..") for part in repo.split("/")) or "\0" in repo:
        return None
    try:
        return _hugging_face(repo, name) or _modelscope(repo, name)
    except OSError:  # a cache we may not read is as good as none
        return None


def _hugging_face(repo: str, name: str) -> Path | None:
    """Layout and environment of huggingface_hub (``constants.py`` HF_HUB_CACHE, HF_HOME; ``file_download.py``
    repo_folder_name): ``models--org--name/snapshots/<commit>/config.json``.
    """
    home = os.environ.get("HF_HOME") or str(Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface")
    cache = Path(os.environ.get("HF_HUB_CACHE") or str(Path(home) / "hub")).expanduser()
    folder = cache / f"models--{repo.replace('/', '--')}"
    main = folder / "refs" / "main"
    if main.is_file():
        config = folder / "snapshots" / main.read_text(encoding="utf-8").strip() / name
        if config.is_file():
            return config
    found = [file for file in folder.glob(f"snapshots/*/{name}") if file.is_file()]
    return max(found, key=lambda file: file.parent.stat().st_mtime, default=None)


def _modelscope(repo: str, name: str) -> Path | None:
    """Layout of modelscope 1.40.2 (``utils/file_utils.py`` get_model_cache_root, ``hub/utils/utils.py``
    get_model_masked_directory): ``models/org/name``, with "___" for a dot; earlier releases without ``models``.
    """
    stated = os.environ.get("MODELSCOPE_CACHE")
    roots = [Path(stated).expanduser()] if stated else [Path("~/.cache/modelscope/hub").expanduser()]
    for root in (roots[0] / "models", *roots):
        for spelled in (repo, repo.replace(".", "___")):
            file = root / spelled / name
            if file.is_file():
                return file
    return None
