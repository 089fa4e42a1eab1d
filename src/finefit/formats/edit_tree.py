"""Changes to YAML and JSON texts by the spans of their keys and values.

YAML is cut by PyYAML's own events and tokens, so that the spans are those the tool's reader sees. An anchor before
a value stays, an alias is replaced where it stands, a key that comes through ``<<`` is written out beside it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from finefit.errors import InputError
from finefit.formats.edits import Edit, How, Replacement, by_hand
from finefit.formats.yaml11 import MAX_DEPTH

_BREAK = re.compile(r"\r\n|[\n\r\x85\u2028\u2029]")
_JSON = re.compile(r'\s*(?:("(?:[^"\\]|\\.)*")|([{}\[\]:,])|([^\s{}\[\]:,"]+))', re.S)
_PLAIN = re.compile(r"[A-Za-z_./][\w./+-]*\Z")


@dataclass(slots=True)
class Node:
    """A value and where it stands; a mapping has pairs, a list items, an alias neither."""

    kind: str  # "scalar" | "map" | "list" | "alias"
    start: int
    end: int
    text: str = ""
    flow: bool = False
    column: int = 0
    pairs: list[tuple[Node, Node]] = field(default_factory=list)
    items: list[Node] = field(default_factory=list)

    def last(self) -> int:
        """End of the last character that belongs to it: PyYAML ends a block where the next begins."""
        inner = self.pairs[-1][1] if self.pairs else self.items[-1] if self.items else None
        return self.end if inner is None or self.flow else inner.last()


def changes(text: str, name: str, edits: Sequence[Edit], *, json_text: bool = False) -> list[Replacement]:
    """The spans to replace.

    Raises:
        InputError: a key that cannot be reached, with its line.
    """
    root = json_tree(text, name) if json_text else yaml_tree(text, name)
    if root is None or root.kind != "map":
        raise InputError("the file is not keys with values", where=name, fix="name a config")
    writer = _Writer(text, name, json_text)
    waiting: dict[str, list[Edit]] = {}
    out: list[Replacement] = []
    for edit in edits:
        found = writer.reach(root, edit.key)
        if found is None and edit.how is not How.REMOVE:
            waiting.setdefault(edit.near, []).append(edit)
        elif found is not None:
            out.append(writer.change(edit, *found))
    for group in waiting.values():
        out += [writer.insert(root, edit) for edit in group]
    return out


class _Writer:
    def __init__(self, text: str, name: str, json_text: bool) -> None:
        self.text, self.name, self.json = text, name, json_text

    def line(self, node: Node) -> str:
        return f"{self.name}:{len(_BREAK.findall(self.text, 0, node.start)) + 1}"

    def reach(self, root: Node, key: str) -> tuple[Node, int] | None:
        """The mapping that holds a key and the pair's number; None where the key is not written."""
        node, left = root, key
        while node.kind == "map":
            names = [(number, k.text) for number, (k, _) in enumerate(node.pairs)]
            exact = [number for number, text in names if text == left]
            if exact:
                return node, exact[-1]  # of a key written twice the last counts
            inner = [(number, text) for number, text in names if text and left.startswith(f"{text}.")]
            if not inner:
                return None
            number, text = inner[-1]
            node, left = node.pairs[number][1], left[len(text) + 1 :]
        return None

    def change(self, edit: Edit, holder: Node, number: int) -> Replacement:
        key, value = holder.pairs[number]
        if edit.how is How.REMOVE:
            return self._remove(edit, holder, number)
        if edit.how is How.APPEND:
            if value.kind != "list" or not value.items:
                raise by_hand(f"{edit.key} is no list to which an item can be added", self.line(key), edit.value)
            last = value.items[-1]
            if value.flow:
                return Replacement(last.end, last.end, f", {self.value(edit.value)}")
            return self._new_line(last.last(), f"{' ' * value.column}- {self.value(edit.value)}")
        if value.kind in ("map", "list") and not value.flow:
            raise by_hand(f"{edit.key} is a section of its own", self.line(key), edit.value)
        blank = " " if value.start == value.end and not self.text[: value.start].endswith(" ") else ""
        return Replacement(value.start, value.end, blank + self.value(edit.value))

    def _remove(self, edit: Edit, holder: Node, number: int) -> Replacement:
        key, value = holder.pairs[number]
        begin = self._line_start(key.start)
        if holder.flow or len(holder.pairs) == 1 or self.text[begin : key.start].strip():
            raise InputError(f"{edit.key} must go", where=self.line(key), fix="take it out yourself, then plan again")
        end = self._line_end(value.last())
        return Replacement(begin, end, "")

    def insert(self, root: Node, edit: Edit) -> Replacement:
        """A new key in the deepest section that is there; sections that are not come with it."""
        node, left = root, edit.key
        while "." in left:
            inner = [(k.text, v) for k, v in node.pairs if k.text and left.startswith(f"{k.text}.")]
            if not inner:
                break
            text, below = inner[-1]
            if below.kind != "map":
                raise by_hand(f"{text} is written elsewhere or is no section", self.line(below), edit.key)
            node, left = below, left[len(text) + 1 :]
        value = edit.value if edit.how is How.SET else [edit.value]
        first, *rest = left.split(".")
        for part in reversed(rest):
            value = {part: value}
        near = edit.near.rpartition(".")[2]
        beside = next((pair for pair in reversed(node.pairs) if pair[0].text == near), None)
        beside = beside or (node.pairs[-1] if node.pairs else None)
        if beside is None or node.flow:
            return self._into_flow(node, beside, first, value)
        return self._new_line(beside[1].last(), f"{self._indent(node)}{first}: {self.value(value)}")

    def _into_flow(self, node: Node, beside: tuple[Node, Node] | None, key: str, value: object) -> Replacement:
        quoted = self.json or bool(beside and self.text[beside[0].start] == '"')
        pair = f"{json.dumps(key) if quoted else key}: {self.value(value)}"
        if beside is None:
            at = node.end - 1
            return Replacement(at, at, pair)
        before = re.search(r"[{,](\s*)\Z", self.text[: beside[0].start])
        gap = before[1] if before and before[1] else " "
        return Replacement(beside[1].end, beside[1].end, f",{gap}{pair}")

    def _indent(self, node: Node) -> str:
        start = node.pairs[0][0].start
        before = self.text[self._line_start(start) : start]
        return before if not before.strip() else " " * node.column

    def _new_line(self, after: int, row: str) -> Replacement:
        """A line of its own below the one on which ``after`` stands."""
        if after and _BREAK.fullmatch(self.text[after - 1]):  # a block of text ends with its line break
            return Replacement(after, after, row + self._newline())
        end = self._line_end(after)
        if end == len(self.text) and not (end and _BREAK.fullmatch(self.text[end - 1])):
            return Replacement(end, end, self._newline() + row)
        return Replacement(end, end, row + self._newline())

    def _line_start(self, at: int) -> int:
        return max((m.end() for m in _BREAK.finditer(self.text, 0, at)), default=0)

    def _line_end(self, at: int) -> int:
        found = _BREAK.search(self.text, at)
        return found.end() if found else len(self.text)

    def _newline(self) -> str:
        found = _BREAK.search(self.text)
        return found[0] if found and found[0] in ("\n", "\r\n") else "\n"

    def value(self, value: object) -> str:
        """A value as the file's language writes it."""
        return json.dumps(value, ensure_ascii=False) if self.json else yaml_value(value)


def yaml_value(value: object) -> str:
    """A value as YAML 1.1 text on one line, in the flow style."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{yaml_value(k)}: {yaml_value(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(yaml_value, value)) + "]"
    if isinstance(value, str):
        plain = _PLAIN.match(value) and yaml.safe_load(value) == value
        return value if plain else json.dumps(value, ensure_ascii=False)
    if isinstance(value, float) and "e" in repr(value) and "." not in repr(value):
        return repr(value).replace("e", ".0e")  # YAML 1.1 takes 2e-05 for text
    return json.dumps(value)


# YAML --------------------------------------------------------------------------------------------------------------


def yaml_tree(text: str, name: str) -> Node | None:
    """The document's values with their spans, by PyYAML's events.

    Raises:
        InputError: not YAML, or nested too deep.
    """
    try:
        scalars = {
            token.end_mark.index: token.start_mark.index
            for token in yaml.scan(text, Loader=yaml.SafeLoader)
            if isinstance(token, yaml.ScalarToken)
        }
        events = yaml.parse(text, Loader=yaml.SafeLoader)
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                return _yaml_node(next(events), events, scalars, 0)
    except yaml.YAMLError as error:
        raise InputError(f"this is not YAML: {str(error).splitlines()[0]}", where=name, fix="correct it") from None
    except RecursionError:
        raise InputError("the file is nested too deep", where=name, fix="name the training config") from None
    return None


def _yaml_node(event: Any, events: Iterator[Any], scalars: Mapping[int, int], depth: int) -> Node:
    """One value; ``Any`` because PyYAML's types leave marks and anchors open."""
    if depth > MAX_DEPTH:
        raise RecursionError
    start, end = event.start_mark.index, event.end_mark.index
    if isinstance(event, yaml.AliasEvent):
        return Node("alias", start, end)
    if isinstance(event, yaml.ScalarEvent):
        bare = scalars.get(end, start) if end > start else end
        tagged = event.tag is not None and event.anchor is None  # a new value brings its own type
        return Node("scalar", start if tagged else bare, end, event.value)
    mapping = isinstance(event, yaml.MappingStartEvent)
    node = Node("map" if mapping else "list", start, end, flow=bool(event.flow_style))
    children: list[Node] = []
    for inner in events:
        if isinstance(inner, yaml.CollectionEndEvent):
            node.end = inner.end_mark.index if inner.end_mark else end  # PyYAML always has one
            break
        if mapping and not children and inner.start_mark:
            node.column = inner.start_mark.column
        children.append(_yaml_node(inner, events, scalars, depth + 1))
    if mapping:
        node.pairs = list(zip(children[::2], children[1::2], strict=True))
    else:
        node.items, node.column = children, event.start_mark.column
    return node


# JSON --------------------------------------------------------------------------------------------------------------


def json_tree(text: str, name: str) -> Node:
    """The values of a JSON text that ``json`` accepts, with their spans.

    Raises:
        InputError: not JSON, or nested too deep.
    """
    wrong = InputError("this is not JSON", where=name, fix="correct the JSON")
    root = Node("list", 0, len(text), flow=True)
    open_values: list[tuple[Node, list[Node]]] = [(root, [])]  # each with the key that waits for its value
    at = 0
    while (match := _JSON.match(text, at)) is not None:
        at = match.end()
        group = match.lastindex or 0
        start, mark = match.start(group), match[2]
        if mark in ("{", "["):
            if len(open_values) > MAX_DEPTH:
                raise InputError("the file is nested too deep", where=name, fix="name the training config")
            inner = Node("map" if mark == "{" else "list", start, at, flow=True)
            _take(*open_values[-1], inner)
            open_values.append((inner, []))
        elif mark in ("}", "]"):
            if len(open_values) == 1:
                raise wrong
            open_values.pop()[0].end = at
        elif mark is None:
            try:
                literal = json.loads(match[1], strict=False) if match[1] else match[3]
            except ValueError:
                raise wrong from None
            _take(*open_values[-1], Node("scalar", start, at, str(literal)))
    if len(open_values) != 1 or len(root.items) != 1 or text[at:].strip():
        raise wrong
    return root.items[0]


def _take(holder: Node, keys: list[Node], node: Node) -> None:
    """A value takes its place: in an object every second one belongs to the key before it."""
    if holder.kind == "list":
        holder.items.append(node)
    elif keys:
        holder.pairs.append((keys.pop(), node))
    else:
        keys.append(node)
