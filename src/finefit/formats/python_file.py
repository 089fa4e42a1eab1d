"""Training scripts in Python, read from the syntax tree and never executed.

Two shapes are common: Unsloth notebooks and scripts, which call ``FastLanguageModel.from_pretrained``,
``get_peft_model`` and a trainer's config class; and xtuner's mmengine configs, which are assignments. Values are
literals, names of literals assigned before, and whole-number arithmetic on them; anything else is unknown.
"""

from __future__ import annotations

import ast
import warnings

from finefit.errors import InputError
from finefit.formats.yaml11 import Document

_MAX_NODES = 100_000
_CALLS = ("from_pretrained", "get_peft_model")
_ARGUMENTS = (
    "SFTConfig",
    "TrainingArguments",
    "DPOConfig",
    "GRPOConfig",
    "KTOConfig",
    "ORPOConfig",
    "UnslothTrainingArguments",
)


class _Unknown:
    """A value that only running the file would tell."""


UNKNOWN = _Unknown()


def load_tree(text: str, name: str) -> Document:
    """Assignments at the top level, and the keyword arguments of the calls that set up training.

    Arguments are named by their call: "from_pretrained.model_name", "get_peft_model.r", "args.optim" for the
    config class. "unsloth" is a key where the file imports it.

    Raises:
        InputError: not Python, or too large.
    """
    try:
        with warnings.catch_warnings():  # an odd escape in someone's file is theirs to know
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except SyntaxError as error:
        raise InputError(
            f"this is not Python: {error.msg}", where=f"{name}:{error.lineno or 1}", fix="name the training config"
        ) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise InputError(f"this is not Python: {error}", where=name, fix="name the training config") from None
    out: dict[str, tuple[object, int]] = {}
    known: dict[str, object] = {}
    try:
        for count, node in enumerate(in_order(tree)):
            if count > _MAX_NODES:
                raise InputError("the file is longer than any training script", where=name, fix="name the config")
            _take(node, out, known)
    except RecursionError:
        raise InputError("the file is nested too deep", where=name, fix="name the training config") from None
    return Document(tuple((key, value, line) for key, (value, line) in out.items()), ())


def in_order(tree: ast.AST) -> list[ast.stmt | ast.expr]:
    """Statements and expressions as they stand in the file."""
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.stmt | ast.expr)]
    return sorted(nodes, key=lambda node: (node.lineno, node.col_offset))


def _take(node: ast.AST, out: dict[str, tuple[object, int]], known: dict[str, object]) -> None:
    if isinstance(node, ast.Import | ast.ImportFrom):
        module = node.module if isinstance(node, ast.ImportFrom) else ",".join(a.name for a in node.names)
        if module and module.partition(".")[0] in ("unsloth", "xtuner"):
            out.setdefault(module.partition(".")[0], (True, node.lineno))
    elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
        value = _value(node.value, known)
        known[node.targets[0].id] = value
        if node.col_offset == 0 and value is not UNKNOWN:
            _put(out, node.targets[0].id, value, node.lineno)
    elif isinstance(node, ast.Call):
        called, prefix = _called(node), keywords(node)
        for argument in node.keywords if prefix else ():
            if argument.arg is not None:
                value = _value(argument.value, known)
                _put(out, f"{prefix}.{argument.arg}", None if value is UNKNOWN else value, argument.value.lineno)
        if prefix and called not in out and not called.endswith("Trainer"):
            out.setdefault(prefix, (called, node.lineno))


def keywords(call: ast.Call) -> str:
    """The name under which a call's keyword arguments are settings; "" for any other call."""
    called = _called(call)
    if called in _CALLS:
        return called if called != "from_pretrained" or _trains(call.func) else ""
    return "args" if called in _ARGUMENTS or called.endswith("Trainer") else ""


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else str(getattr(call.func, "id", ""))


def _trains(function: ast.expr) -> bool:
    """Whether it is Unsloth's ``from_pretrained`` (FastLanguageModel, FastModel, FastVisionModel)."""
    owner = function.value if isinstance(function, ast.Attribute) else None
    return isinstance(owner, ast.Name) and owner.id.startswith("Fast")


def _put(out: dict[str, tuple[object, int]], key: str, value: object, line: int) -> None:
    out[key] = (value, line)
    if isinstance(value, dict):
        for inner, item in value.items():
            if isinstance(inner, str):
                _put(out, f"{key}.{inner}", item, line)


def _value(node: ast.expr, known: dict[str, object]) -> object:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str | int | float | bool | None) else UNKNOWN
    if isinstance(node, ast.Name):
        return known.get(node.id, UNKNOWN)
    if isinstance(node, ast.List | ast.Tuple):
        items = [_value(item, known) for item in node.elts]
        return UNKNOWN if UNKNOWN in items else items
    if isinstance(node, ast.Dict):
        pairs = [
            (_value(k, known) if k else UNKNOWN, _value(v, known)) for k, v in zip(node.keys, node.values, strict=True)
        ]
        return {k: v for k, v in pairs if isinstance(k, str) and v is not UNKNOWN}
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "dict":
        given = {k.arg: _value(k.value, known) for k in node.keywords if k.arg}
        return {k: v for k, v in given.items() if v is not UNKNOWN}
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _value(node.operand, known)
        return -inner if isinstance(inner, int | float) and not isinstance(inner, bool) else UNKNOWN
    if isinstance(node, ast.BinOp):
        left, right = _value(node.left, known), _value(node.right, known)
        whole = [v for v in (left, right) if isinstance(v, int) and not isinstance(v, bool) and abs(v) < 2**31]
        if len(whole) == 2:
            a, b = whole
            if isinstance(node.op, ast.Mult):
                return a * b
            if isinstance(node.op, ast.Add):
                return a + b
            if isinstance(node.op, ast.Sub):
                return a - b
            if isinstance(node.op, ast.FloorDiv) and b:
                return a // b
    return UNKNOWN
