"""From "2x RTX 4090", "H100:8" or "2 x 8 H100" to a cluster."""

from __future__ import annotations

import re
import unicodedata

from finefit.catalog.gpu_names import find_gpu, match_gpu, names_a_card
from finefit.catalog.gpu_table import card_by_id
from finefit.errors import InputError, NotModelled
from finefit.workload import Cluster

_TIMES = r"\s*(?:[x×*]|张|卡|块)\s*"
_NODES = r"\s*(?:nodes?|台|机)?\s*[x×*]\s*"
# In order of trial. The first whose name part holds a model number is meant: "2 x 4090" is two cards,
# "4090 x2" too, and "2080 Ti" is no count at all.
_SHAPES = tuple(
    re.compile(shape, re.I)
    for shape in (
        rf"(?P<nodes>\d{{1,6}}){_NODES}(?P<count>\d{{1,6}})(?:{_TIMES}|\s+)(?P<name>\D.*|\d.+)",
        rf"(?P<nodes>\d{{1,6}}){_NODES}(?P<name>\D.*?)\s*:\s*(?P<count>\d{{1,6}})",
        rf"(?P<count>\d{{1,6}})(?:{_TIMES}|\s+)(?P<name>.+)",
        r"(?P<name>.+?)\s*[x×*:]\s*(?P<count>\d{1,6})",
    )
)
_SEPARATORS = re.compile(r"\s*[+,;&、和]\s*|\s+and\s+")
_BROKEN_COUNT = re.compile(r"-\s*\d|\d+\.\d+\s*[x×*\s]")
# HGX and DGX boards carry eight GPUs; more in one machine is rare enough to say what was assumed.
_BOARD = 8

_FORMS = "write 2x RTX 4090, H100:8, or 2 x 8 H100 for two machines of eight"
_ONE_MACHINE = 'taken as {count} GPUs in one machine; for {nodes} machines write "{nodes} x 8 {name}"'


def parse_gpus(text: str, *, where: str = "--gpu") -> tuple[Cluster, tuple[str, ...]]:
    """GPUs as people write them: "RTX 4090", "2x RTX 4090", "8*A100-80GB", "H100:8", "2 x 8 H100" (nodes × GPUs).

    Returns:
        The cluster and notes for the user, a line each. ``count`` is the number of devices over all nodes: a card
        of two dies counts twice.

    Raises:
        UnknownGpu: the card is not known, or its name stands for several.
        NotModelled: different cards in one run.
        InputError: no GPU at all, or a count that is no positive whole number.
    """
    given = unicodedata.normalize("NFKC", text).strip()
    if not given:
        raise InputError("no GPU is named", where=where, fix=_FORMS)
    if _BROKEN_COUNT.match(given):
        raise InputError(f"{text!r} does not start with a whole number of GPUs", where=where, fix=_FORMS)
    parts = _SEPARATORS.split(given)
    if len(parts) > 1 and all(names_a_card(part) for part in parts):
        raise NotModelled(f"{text!r} mixes GPUs in one run", where=where, fix="name one kind of GPU; " + _FORMS)
    nodes, per_node, name = _split(given)
    if nodes < 1 or per_node < 1:
        raise InputError(f"{text!r} asks for no GPU", where=where, fix=_FORMS)
    match = find_gpu(name, where=where)
    notes = match.notes
    devices = card_by_id(match.gpu.id).devices
    if nodes == 1 and per_node > _BOARD and per_node % _BOARD == 0:
        notes += (_ONE_MACHINE.format(count=per_node, nodes=per_node // _BOARD, name=name),)
    return Cluster(match.gpu, nodes * per_node * devices, nodes), notes


def _split(given: str) -> tuple[int, int, str]:
    """Nodes, GPUs a node and the name."""
    if match_gpu(given):
        return 1, 1, given
    for shape in _SHAPES:
        found = shape.fullmatch(given)
        if found and names_a_card(found["name"]):
            groups = found.groupdict()
            return int(groups.get("nodes") or 1), int(groups["count"]), groups["name"].strip()
    return 1, 1, given
