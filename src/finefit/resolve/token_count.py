"""Tokens of texts: by the model's own tokenizer where it lies on this machine, else by characters."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from finefit.errors import FinefitError, InputError
from finefit.resolve.hub_cache import cached_file
from finefit.resolve.models import resolve_model
from finefit.resolve.samples import RATIO, tokens_in

# How far tokenizers differ from the rule: the card of Cohere/multilingual-22-12 (huggingface.co) measured 4.8
# characters a token of English and 1.1 of Chinese on 10,000 paragraphs of Wikipedia each, 0.208 and 0.909 tokens a
# character: 0.208 / 0.3 = -31 %, 0.909 / 0.6 = +52 %.
ERROR = (-0.31, 0.52)


@dataclass(frozen=True, slots=True)
class Counter:
    """Counts tokens.

    Attributes:
        count: texts → tokens of each; ``special`` adds the tokens the tokenizer puts around a text.
        source: the tokenizer's file, or the rule.
        exact: the model's own tokenizer counts.
        chat_template: the Jinja template that lies beside the tokenizer; None without.
        bos, eos: the texts of these tokens, "" where there are none.
    """

    count: Callable[[Sequence[str], bool], list[int]]
    source: str
    exact: bool
    chat_template: str | None = None
    bos: str = ""
    eos: str = ""


def counter_of(model: str, tokenizer: str | Path | None = None) -> Counter:
    """The counter for a model: its folder's, its Hub cache's or the stated tokenizer; the rule of thumb without.

    Raises:
        InputError: a stated tokenizer that cannot be used, or a tokenizer without the library.
    """
    file = _stated(tokenizer) if tokenizer is not None else _found(model)
    if file is None:
        return Counter(lambda texts, special: [round(tokens_in(text)) for text in texts], RATIO, False)
    try:
        from tokenizers import Tokenizer
    except ImportError:
        if tokenizer is None:
            return Counter(lambda texts, special: [round(tokens_in(text)) for text in texts], RATIO, False)
        raise InputError(
            "tokenizers is not installed", where="--tokenizer", fix="pip install 'finefit[data]'"
        ) from None
    try:
        loaded = Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises Exception itself
        raise InputError(
            f"the tokenizer cannot be read: {str(error)[:80]}", where=str(file), fix="name a tokenizer.json"
        ) from None
    loaded.no_truncation()
    loaded.no_padding()

    def count(texts: Sequence[str], special: bool) -> list[int]:
        return [len(found) for found in loaded.encode_batch_fast(list(texts), add_special_tokens=special)]

    config = _beside(file)
    return Counter(
        count, str(file), True, _chat_template(file, config), _token(config, "bos_token"), _token(config, "eos_token")
    )


def _stated(path: str | Path) -> Path:
    file = Path(path).expanduser()
    file = file / "tokenizer.json" if file.is_dir() else file
    if not file.is_file():
        raise InputError(f"there is no file {file}", where="--tokenizer", fix="name a tokenizer.json or its folder")
    return file


def _found(model: str) -> Path | None:
    try:
        path = Path(model).expanduser()
        folder: Path | None = path if path.is_dir() else path.parent if path.is_file() else None
    except (OSError, RuntimeError, ValueError):
        folder = None
    if folder is not None:
        file = folder / "tokenizer.json"
        return file if file.is_file() else None
    names = [model]
    with suppress(FinefitError):  # a model that is not modelled may have its tokenizer in the cache all the same
        names.append(resolve_model(model).name)
    return next((found for name in names if (found := cached_file(name, "tokenizer.json"))), None)


def _beside(tokenizer: Path) -> dict[str, Any]:
    """tokenizer_config.json of the same folder; empty where there is none that can be read."""
    try:
        config = json.loads((tokenizer.parent / "tokenizer_config.json").read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError):
        return {}
    return config if isinstance(config, dict) else {}


def _chat_template(tokenizer: Path, config: dict[str, Any]) -> str | None:
    """chat_template.jinja, else the config's, of several the one named default (transformers 5.24.0)."""
    try:
        return (tokenizer.parent / "chat_template.jinja").read_text(encoding="utf-8")
    except (OSError, ValueError):
        found = config.get("chat_template")
    if isinstance(found, list):
        found = next((e.get("template") for e in found if isinstance(e, dict) and e.get("name") == "default"), None)
    return found if isinstance(found, str) else None


def _token(config: dict[str, Any], name: str) -> str:
    value = config.get(name)
    value = value.get("content") if isinstance(value, dict) else value
    return value if isinstance(value, str) else ""
