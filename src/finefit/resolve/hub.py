"""A model's config and safetensors headers from a Hub: a few small requests, kept in the user's cache.

The Hub is asked only for an id of the form org/name that neither the catalogue nor a local cache knows. Addresses:
huggingface_hub 1.x ``constants.py`` HUGGINGFACE_CO_URL_TEMPLATE with HF_ENDPOINT, HF_TOKEN, HF_HUB_OFFLINE; ModelScope
(modelscope 1.40.2 ``hub/file_download.py`` get_file_download_url with MODELSCOPE_DOMAIN) where USE_MODELSCOPE_HUB is
set, as LLaMA-Factory 0.9.5 has it. Weights are never downloaded: of a safetensors file only its header.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from finefit.errors import HubUnreachable, UnknownModel
from finefit.formats import safetensors
from finefit.formats.safetensors import Tensor
from finefit.resolve.sidecars import completed_by

if TYPE_CHECKING:
    from finefit.resolve.http import Http

_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}\Z")  # huggingface_hub utils/_validators.py
_FIRST = 100_000  # bytes asked for at first: the header of nearly every file (huggingface_hub hf_api.py)
_MAX_CONFIG = 5_000_000
_AT_ONCE = 8  # headers asked for at a time


@dataclass(frozen=True, slots=True)
class Remote:
    """A model as a Hub has it: its config with what its sidecars and tensors add, and where it came from."""

    config: Mapping[str, Any]
    origin: str


def may_ask(name: str) -> bool:
    """Whether a name is a Hub id and the environment lets the Hub be asked."""
    offline = any(_on(os.environ.get(key)) for key in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"))
    return not offline and _ID.match(name) is not None and ".." not in name


def found_on_hub(name: str, *, where: str | None = None, advice: str = "", refresh: bool = False) -> Remote:
    """The config of a model on the Hub, from the user's cache where it was asked for before.

    Args:
        name: org/name.
        where: the flag or file and line it was written at, for errors.
        advice: what else could be meant, for errors.
        refresh: ask again.

    Raises:
        UnknownModel: not there, or its authors let nobody read it without a token.
        HubUnreachable: no answer in time.
    """
    hub = _Hub(name, where, advice)
    kept = None if refresh else _read(hub.cache)
    if kept is None:
        kept = {"config": hub.config(), "origin": f"{name} ({hub.host})"}
        _keep(hub.cache, kept)
    return Remote(kept["config"], str(kept["origin"]))


def remote_tensors(name: str, *, where: str | None = None) -> Mapping[str, Tensor]:
    """All tensors of a model on the Hub, from the headers of its files.

    Raises:
        UnknownModel, HubUnreachable: as ``found_on_hub``.
    """
    return _Hub(name, where, "").tensors()


class _Hub:
    def __init__(self, name: str, where: str | None, advice: str) -> None:
        from finefit.resolve.http import Http

        self.name, self.where, self.advice = name, where, advice
        self.modelscope = _on(os.environ.get("USE_MODELSCOPE_HUB"))
        if self.modelscope:
            stated = os.environ.get("MODELSCOPE_DOMAIN") or "www.modelscope.cn"
            endpoint, token = stated if "://" in stated else f"https://{stated}", None
        else:
            endpoint, token = os.environ.get("HF_ENDPOINT") or "https://huggingface.co", os.environ.get("HF_TOKEN")
        self.endpoint = endpoint.rstrip("/")
        self.host = self.endpoint.partition("://")[2]
        self.http: Http = Http(token)

    @property
    def cache(self) -> Path:
        from platformdirs import user_cache_path

        folder = re.sub(r"[^\w.-]", "_", self.host)
        return user_cache_path("finefit") / "hub" / folder / f"{self.name.replace('/', '--')}.json"

    def config(self) -> dict[str, Any]:
        text = self.file("config.json")
        try:
            found = None if text is None else json.loads(text)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise self._unknown(f"{self.name} on {self.host} has no config.json that can be read")
        return completed_by(found, self.file, lambda: self.tensors(1))  # one part shows how all are packed

    def tensors(self, most: int | None = None) -> dict[str, Tensor]:
        """The tensors of all parts, or of the first ``most``."""
        index = self.file("model.safetensors.index.json", limit=safetensors.MAX_HEADER)
        names = ["model.safetensors"] if index is None else safetensors.parts(index, self._url("the index"))
        from concurrent.futures import ThreadPoolExecutor

        found: dict[str, Tensor] = {}
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for part in pool.map(self._header, names[:most]):
                found |= part
        return found

    def _header(self, name: str) -> dict[str, Tensor]:
        head = self.file(name, limit=_FIRST, part=(0, _FIRST))
        if head is None:
            return {}
        url = self._url(name)
        size = safetensors.length(head[:8], url)
        body = head[8 : 8 + size]
        if len(body) < size:
            body = self.file(name, limit=size, part=(8, size)) or b""
        return safetensors.tensors(body, size, url)

    def file(self, name: str, limit: int = _MAX_CONFIG, part: tuple[int, int] | None = None) -> bytes | None:
        """A file, or ``part`` of it (first byte, count); None where the repository has none of that name.

        Raises:
            UnknownModel, HubUnreachable: the repository is closed or not there; no answer.
        """
        from finefit.resolve.http import Refused, Silent

        try:
            return self.http.get(self._url(name), limit, part)
        except Silent as silent:
            raise HubUnreachable(
                f"{self.name!r} is not in the catalogue, and {self.host} did not answer ({silent})",
                where=self.where,
                fix="name the folder or config.json of the model, set HF_ENDPOINT to a mirror, or try again",
            ) from None
        except Refused as refused:
            if refused.status == 404 and refused.code in ("", "EntryNotFound") and name != "config.json":
                return None
            if refused.code == "GatedRepo" or refused.status == 403:
                raise UnknownModel(
                    f"{self.name} is gated: {self.host} shows its files to those who accepted its terms",
                    where=self.where,
                    fix="accept them and set HF_TOKEN, or give the path of its config.json",
                ) from None
            raise self._unknown(f"{self.name!r} is neither in the catalogue nor on {self.host}") from None

    def _url(self, name: str) -> str:
        from urllib.parse import quote

        if self.modelscope:
            return f"{self.endpoint}/api/v1/models/{self.name}/repo?Revision=master&FilePath={quote(name)}"
        return f"{self.endpoint}/{self.name}/resolve/main/{quote(name)}"

    def _unknown(self, what: str) -> UnknownModel:
        return UnknownModel(what, where=self.where, fix=self.advice or "give the path of its config.json")


def _on(value: str | None) -> bool:
    return (value or "").strip().upper() in (
        "1",
        "ON",
        "YES",
        "TRUE",
    )  # huggingface_hub constants.py ENV_VARS_TRUE_VALUES


def _read(path: Path) -> dict[str, Any] | None:
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return kept if isinstance(kept, dict) and isinstance(kept.get("config"), dict) and "origin" in kept else None


def _keep(path: Path, kept: Mapping[str, Any]) -> None:
    """Into the cache, whole or not at all; a cache that cannot be written is done without."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f"{path.name}.{os.getpid()}")
        temporary.write_text(json.dumps(kept), encoding="utf-8")
        temporary.replace(path)
    except OSError:
        return
