"""From the names people write ("4090", "A100-80GB", "RTX 6000 Ada") to one card of the catalogue.

A name is a set of words and, where it is given, a memory size. A card answers to a name when one of its
own names holds all those words. Of several, the plain one is meant (no further word such as D, Ti, Laptop);
of several plain ones of equal memory the SXM board; of plain ones of different memory the one that the
catalogue marks as the plain reading. Anything else is asked back: a guess would cost the user a wrong answer.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import cache

from finefit.catalog.gpu_table import Card, cards
from finefit.errors import UnknownGpu
from finefit.units import gib
from finefit.workload import Gpu

_SIZE = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)\s*(?:gib|gb|g)(?!\w)")
_BARE_SIZE = re.compile(r"(?<=[a-z0-9] )(\d{1,3})$")  # "A100 80"; product numbers have four digits
_REWRITES = (
    (re.compile(r"笔记本|移动版|\b(?:mobile|notebook)\b"), " laptop "),
    (re.compile(r"昇腾"), " ascend "),
    (re.compile(r"(?<=[\u4e00-\u9fff])(?=[a-z0-9])|(?<=[a-z0-9])(?=[\u4e00-\u9fff])"), " "),
    (re.compile(r"\bpci[- ]?e\b"), " pcie "),
    (re.compile(r"\bmax-?q\b"), "maxq"),
    (re.compile(r"[-_/(),;]+"), " "),
    (re.compile(r"\b(rtx|gtx|quadro|tesla)(?=a?\d|pro)"), r"\1 "),
    (re.compile(r"\bpro(?=\d{4})"), "pro "),
    (re.compile(r"(?<=\d{4})m\b"), " laptop "),
    (re.compile(r"(?<=\d{4})(ti(?=super)|ti\b|super\b|d\b|ada\b|laptop\b)"), r" \1 "),
    (re.compile(r"\b([ahv]\d{3})(?=sxm|pcie|nvl)"), r"\1 "),
    (re.compile(r"\bsxm\d\b"), "sxm"),
    (re.compile(r"\bgaudi (?=\d\b)"), "gaudi"),
)
# Words of makers, drivers and shops that tell no two cards apart (torch says "NVIDIA H100 80GB HBM3").
_NOISE = frozenset(("nvidia", "geforce", "tesla", "amd", "instinct", "huawei", "intel", "apple", "moore", "threads"))
_NOISE |= {"gpu", "gpus", "card", "cards", "desktop", "server", "workstation", "edition", "generation"}
_NOISE |= {"hbm2", "hbm2e", "hbm3", "hbm3e", "英伟达", "华为", "摩尔线程", "显卡", "卡"}
_FORMS = frozenset(("sxm", "pcie"))  # the same chip and memory on another board
_OPTIONAL = _FORMS | {"rtx", "gtx", "ascend"}
_VARIANTS = frozenset(("d", "laptop", "nvl", "v2"))
_SUFFIXES = _VARIANTS | {"ti", "super"}  # words that make another product of a name that stands without them
_LISTED = 8

_READ_AS = "{name} is read as {card}; other cards of that name: {others}"
_READ_AS_ONLY = "{name} is read as {card}"
_TWO_DEVICES = "torch sees each {card} as {devices} devices of {memory:.1f} GiB"
_UNKNOWN = "no GPU named {name} is in the catalogue"
_SEVERAL = "{name} stands for several cards"


@dataclass(frozen=True, slots=True)
class GpuMatch:
    """The card a name means, and what the user should know about the name (at most a line each)."""

    gpu: Gpu
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Name:
    words: frozenset[str]
    size: float | None


def find_gpu(text: str, *, where: str | None = None) -> GpuMatch:
    """The GPU that ``text`` names: an id, a product name or what people call it, in any case and spacing.

    Args:
        where: the flag or line the name was read from, for the error.

    Raises:
        UnknownGpu: nothing of that name, or several cards; ``fix`` lists the nearest names or the choices.
    """
    match = match_gpu(text)
    if match is None:
        raise _refusal(text.strip(), where)
    return match


def match_gpu(text: str) -> GpuMatch | None:
    """Like :func:`find_gpu`, with None for a name that means no card or several."""
    given = text.strip()
    for card in cards():
        own_names = (card.gpu.id, card.gpu.name, card.label, *card.aliases)
        if given.lower() in (own.lower() for own in own_names) and given.lower() not in _shared_aliases():
            return _match(card, ())
    name = _parse(given)
    fitting = _fitting(name, _named(name))
    chosen = _choose(name, fitting) if _says_which(name) else None
    if chosen is None:
        return None
    others = [card for card in fitting if card is not chosen and _extra_words(name, card) <= _VARIANTS]
    if others:
        return _match(chosen, (_READ_AS.format(name=given, card=chosen.label, others=_list(others)),))
    if name.size is None and _parse(chosen.gpu.name).size is not None:  # the maker sells it in other sizes too
        return _match(chosen, (_READ_AS_ONLY.format(name=given, card=chosen.label),))
    return _match(chosen, ())


def names_a_card(text: str) -> bool:
    """Whether ``text`` holds a model number of the catalogue ("4090", "h100"), so that it can be a GPU's name."""
    return _says_which(_parse(text))


def _match(card: Card, notes: tuple[str, ...]) -> GpuMatch:
    if card.devices > 1:
        memory = gib(card.gpu.memory)
        notes += (_TWO_DEVICES.format(card=card.label, devices=card.devices, memory=memory),)
    return GpuMatch(card.gpu, notes)


def _parse(text: str) -> _Name:
    plain = unicodedata.normalize("NFKC", text).lower()
    for pattern, replacement in _REWRITES:
        plain = pattern.sub(replacement, plain)
    plain = " ".join(word for word in plain.split() if word not in _NOISE)
    size: float | None = None
    found = _SIZE.search(plain) or _BARE_SIZE.search(plain)
    if found:
        size = float(found[1])
        plain = _SIZE.sub(" ", _BARE_SIZE.sub(" ", plain))  # "80GB (79.18 GiB)": the first size is the nominal one
    return _Name(frozenset(plain.split()), size)


@cache
def _names(card: Card) -> tuple[_Name, ...]:
    """The names of one card as word sets; remarks in parentheses are not part of a name."""
    bare = re.sub(r"\(.*?\)", "", card.gpu.name)
    return tuple(_parse(name) for name in (bare, card.gpu.id, *card.aliases))


@cache
def _model_numbers() -> frozenset[str]:
    words = frozenset().union(*(name.words for card in cards() for name in _names(card)))
    return frozenset(word for word in words if any(c.isdigit() for c in word)) - _SUFFIXES


@cache
def _shared_aliases() -> frozenset[str]:
    """Aliases of more than one card ("Ascend 910B")."""
    aliases = [alias.lower() for card in cards() for alias in card.aliases]
    return frozenset(alias for alias in aliases if aliases.count(alias) > 1)


def _says_which(name: _Name) -> bool:
    """Whether a model number or a whole name is given; "Ti" or "Ada" alone says nothing."""
    return bool(name.words & _model_numbers()) or any(name.words == own.words for c in cards() for own in _names(c))


def _named(name: _Name) -> list[Card]:
    return [card for card in cards() if name.words and any(name.words <= own.words for own in _names(card))]


def _fitting(name: _Name, named: list[Card]) -> list[Card]:
    return [card for card in named if name.size is None or card.has_size(name.size)]


def _extra_words(name: _Name, card: Card) -> frozenset[str]:
    """What the card's closest name says beyond ``name``, board form and series aside."""
    extras = (own.words - name.words - _OPTIONAL for own in _names(card) if name.words <= own.words)
    return min(extras, key=len)


def _choose(name: _Name, fitting: list[Card]) -> Card | None:
    plain = [card for card in fitting if not _extra_words(name, card)]
    sizes = {card.gpu.memory_nominal_gb for card in plain}
    if len(sizes) > 1:
        plain = [card for card in plain if card.plain_reading]
    if len(plain) > 1:
        plain = [card for card in plain if any("sxm" in own.words for own in _names(card))]
    return plain[0] if len(plain) == 1 else None


def _refusal(given: str, where: str | None) -> UnknownGpu:
    """The error for a name that :func:`match_gpu` does not take, with what to write instead."""
    name = _parse(given)
    named = _named(name)
    if not name.words:
        choices = [card for card in cards() if card.nominal_gb == name.size]
        several = bool(choices)
    else:
        products = [card for card in _fitting(name, named) if not _extra_words(name, card) & _SUFFIXES]
        choices, several = products or named, len(products) > 1
    if choices:
        fix = f"write one of: {_list(choices)}"
    else:
        near = _nearest(given, name)
        fix = f"nearest names: {_list(near)}" if near else "name the card as its maker does, for instance RTX 4090"
    return UnknownGpu((_SEVERAL if several else _UNKNOWN).format(name=repr(given)), where=where, fix=fix)


def _nearest(given: str, name: _Name) -> list[Card]:
    """Cards with a model number that is in the text ("Kaggle T4"), else those whose names are spelt alike."""
    numbers = name.words & _model_numbers()
    if numbers:
        return [card for card in cards() if any(numbers & own.words for own in _names(card))]
    import difflib  # only a wrong name pays for it

    spellings = {key.lower(): card for card in cards() for key in (card.gpu.id, card.gpu.name, *card.aliases)}
    close = difflib.get_close_matches(given.lower(), spellings, n=6, cutoff=0.5)
    return list(dict.fromkeys(spellings[key] for key in close))


def _list(choices: list[Card]) -> str:
    labels = [card.label for card in choices[:_LISTED]]
    if len(choices) > _LISTED:
        labels.append(f"and {len(choices) - _LISTED} more")
    return ", ".join(labels)
