"""The sentences finefit writes for people, read from its source as templates with named holes.

Report modules mark their texts: ``t("msgid")`` and ``N_("msgid")``. Everywhere else a sentence is a string or
f-string of two words or more, or of one beside a hole, that a person will read; what nobody reads (docstrings,
patterns, help of the command line, errors of damaged package data) is left out here.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src" / "finefit"
MARKERS = ("t", "N_")
_PACKAGES = (
    "api.py",
    "catalog",
    "cost",
    "formats",
    "lab",
    "market",
    "memory",
    "planner",
    "resolve",
    "speed",
    "step",
    "units.py",
    "workload",
)
_ERRORS = ("InputError", "NotModelled", "SourceUnreachable", "UnknownGpu", "UnknownModel")
_SILENT_MODULES = (
    "memory/context.py",  # sources of constants
    "memory/allocator.py",  # misuse by a programmer
    "catalog/_tables.py",  # damaged package data
    "catalog/offer_table.py",
)
_SILENT_CALLS = ("DataError", "ValueError", "TypeError", "RuntimeError", "AssertionError", "compile", "exec_driver_sql")
_SILENT_KEYWORDS = ("source",)
_WORD_LISTS = ("_TYPES", "FIELDS")  # dictionaries whose values are names, or words for programmers
_HOLE = re.compile(r"\{[a-z_]+(:[^{}]*)?\}")
_PATTERN = re.compile(r"\\[bdswS]|\(\?")  # a regular expression
_WORD = re.compile(r"[A-Za-z]{2,}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")


def msgids() -> dict[str, list[str]]:
    """All msgids, each with the modules that write it."""
    found: dict[str, list[str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        module = path.relative_to(SOURCE).as_posix()
        tree = ast.parse(path.read_text(encoding="utf-8"))
        texts = _marked(tree) if module.startswith("report/") else _sentences(tree, module)
        for text in texts:
            places = found.setdefault(text, [])
            if module not in places:
                places.append(module)
    return found


def _marked(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in MARKERS:
            first = node.args[0]
            for text in (first.body, first.orelse) if isinstance(first, ast.IfExp) else (first,):
                if isinstance(text, ast.Constant) and isinstance(text.value, str):
                    yield text.value


def _sentences(tree: ast.Module, module: str) -> Iterator[str]:
    # The other texts of these are the help of the command line, and names of the libraries' code.
    if module.startswith(("app/", "lab/")) and module != "lab/notes.py":
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _ERRORS:
                yield from _walk(node)
    elif module.partition("/")[0] in _PACKAGES and module not in _SILENT_MODULES:
        yield from _walk(tree)


def _walk(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "message":
        first = node.args[0]  # planner.message: already a template
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            if _WORD.search(re.sub(r"\{[^}]*\}", "", first.value)):
                yield first.value
            for child in (*node.args[1:], *node.keywords):
                yield from _walk(child)
            return
    text = template(node)
    if text is not None:
        words = _WORD.findall(re.sub(r"\{[^}]*\}", "", text))
        several = len(words) >= 2 or (_HOLE.search(text) and max(map(len, words), default=0) >= 5)
        if several and " " in text and not _PATTERN.search(text):
            yield text
        return
    children = ast.iter_child_nodes(node)
    if isinstance(node, ast.AnnAssign) and _is_word_list(node):
        children = iter([key for found in ast.walk(node) if isinstance(found, ast.Dict) for key in found.keys if key])
    for child in children:
        if not _is_silent(child):
            yield from _walk(child)


def _is_word_list(node: ast.AnnAssign) -> bool:
    return isinstance(node.target, ast.Name) and node.target.id in _WORD_LISTS


def _is_silent(node: ast.AST) -> bool:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return True  # a docstring
    if isinstance(node, ast.keyword):
        return node.arg in _SILENT_KEYWORDS
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute):
            if node.func.attr == "split" and isinstance(node.func.value, ast.Constant):
                return True  # a list of words
            return node.func.attr in _SILENT_CALLS
        return isinstance(node.func, ast.Name) and node.func.id in _SILENT_CALLS
    return False


def template(node: ast.AST) -> str | None:
    """The template of a string literal, None for anything else: ``f"no {a.name!r}"`` is ``no {name}``."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value if _HOLE.search(node.value) else _escaped(node.value)  # holes: filled by str.format
    if not isinstance(node, ast.JoinedStr):
        return None
    names: dict[str, str] = {}
    parts = []
    for value in node.values:
        if isinstance(value, ast.Constant):
            parts.append(_escaped(str(value.value)))
        else:
            parts.append("{" + _hole(value, names) + "}")
    return "".join(parts)


def _escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _hole(value: ast.expr, names: dict[str, str]) -> str:
    """A readable name for an expression in a template, the same for the same expression."""
    key = ast.unparse(value)
    if key not in names:
        base = _name(value.value if isinstance(value, ast.FormattedValue) else value)
        taken = set(names.values())
        name, count = base, 2
        while name in taken:
            name, count = f"{base}_{count}", count + 1
        names[key] = name
    return names[key]


def _name(value: ast.expr) -> str:
    match value:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name.lstrip("_").lower()
        case ast.Call(func=ast.Attribute(attr="join"), args=[first, *_]):
            return _name(first)
        case ast.Call(args=[first, *_]):
            return _name(first)
        case ast.Call(func=ast.Attribute(value=inner)) | ast.Subscript(value=inner):
            return _name(inner)
        case ast.BinOp(left=inner) | ast.IfExp(body=inner) | ast.BoolOp(values=[inner, *_]):
            return _name(inner)
        case ast.Constant(value=str(text)) if _NAME.fullmatch(text):
            return text.lower()
    return "value"
