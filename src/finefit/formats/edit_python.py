"""Changes to Python training scripts by the spans of literals in their syntax tree. Nothing is executed."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Sequence

from finefit.errors import InputError
from finefit.formats.edits import Edit, How, Replacement, by_hand
from finefit.formats.python_file import in_order, keywords

_BREAK = re.compile(r"\r\n|[\r\n]")


def changes(text: str, name: str, edits: Sequence[Edit]) -> tuple[list[Replacement], set[str]]:
    """The spans to replace, and the names of variables that they change on the way.

    Raises:
        InputError: a value that is no literal of its own, with its line.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InputError(f"this is not Python: {error}", where=name, fix="name the training config") from None
    source = _Source(text, name, tree)
    out, touched = [], set()
    for edit in edits:
        if edit.how is not How.SET:
            raise by_hand(f"{edit.key} is not changed in a Python file", name, edit.value)
        replacement, variable = source.change(edit)
        if replacement not in out:  # two keys that one variable holds
            out.append(replacement)
        touched |= {variable} - {""}
    return out, touched


class _Source:
    def __init__(self, text: str, name: str, tree: ast.Module) -> None:
        self.text, self.name = text, name
        ends = [match.end() for match in _BREAK.finditer(text)]
        self.starts = [0, *ends]
        self.calls: dict[str, ast.Call] = {}
        self.values: dict[str, ast.expr] = {}
        self.assigned: dict[str, list[ast.expr]] = {}
        for node in in_order(tree):
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                self.assigned.setdefault(node.targets[0].id, []).append(node.value)
                if node.col_offset == 0:
                    self.values[node.targets[0].id] = node.value
            elif isinstance(node, ast.Call) and (prefix := keywords(node)):
                if prefix not in self.calls or not _trainer(node):
                    self.calls[prefix] = node
                for argument in node.keywords:
                    if argument.arg is not None:
                        self.values[f"{prefix}.{argument.arg}"] = argument.value

    def change(self, edit: Edit) -> tuple[Replacement, str]:
        """The span of a key's literal, and the variable that holds it."""
        node = self.values.get(edit.key)
        if node is None:
            return self._insert(edit), ""
        variable = ""
        if isinstance(node, ast.Name):
            variable = node.id
            held = self.assigned.get(variable, [])
            if len(held) != 1:
                what = f"{edit.key} comes from {variable}, which is set in {len(held)} places"
                raise by_hand(what, f"{self.name}:{node.lineno}", edit.value)
            node = held[0]
        if not isinstance(node, ast.Constant):
            raise by_hand(f"{edit.key} is computed", f"{self.name}:{node.lineno}", edit.value)
        return Replacement(*self._span(node), repr(edit.value)), variable

    def _insert(self, edit: Edit) -> Replacement:
        prefix, _, argument = edit.key.partition(".")
        call = self.calls.get(prefix)
        if call is None or not call.keywords or not argument:
            raise by_hand(f"{edit.key} is not written here", self.name, edit.value)
        ordered = [*call.args, *(keyword.value for keyword in call.keywords)]
        last = max(ordered, key=lambda node: (node.end_lineno or 0, node.end_col_offset or 0))
        keyword = call.keywords[-1]
        begin = self._offset(keyword.lineno, keyword.col_offset)
        before = re.search(r"[(,](\s*)\Z", self.text[:begin])
        gap = before[1] if before and before[1] else " "
        end = self._span(last)[1]
        return Replacement(end, end, f",{gap}{argument}={edit.value!r}")

    def _span(self, node: ast.expr) -> tuple[int, int]:
        return (
            self._offset(node.lineno, node.col_offset),
            self._offset(node.end_lineno or node.lineno, node.end_col_offset or node.col_offset),
        )

    def _offset(self, line: int, column: int) -> int:
        """Offset of a place that ``ast`` gives in bytes of UTF-8."""
        start = self.starts[line - 1]
        row = self.text[start : self.starts[line] if line < len(self.starts) else len(self.text)]
        return start + len(row.encode()[:column].decode(errors="ignore"))


def _trainer(node: ast.Call) -> bool:
    called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return str(called).endswith("Trainer")
