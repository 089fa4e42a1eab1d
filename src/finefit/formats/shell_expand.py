"""Shell words with their variables put in: quotes, ``${VAR:-8}``, ``$((A / B))``, ``$(expr A / B)``, arrays.

The rules are those of POSIX.1-2017 XCU 2.6 and of bash arrays. Nothing is executed: what only a run can
tell (another command's output, positional parameters, unset variables) becomes ``UNKNOWN`` inside the word.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence

UNKNOWN = "\ue000"  # a private-use character: it cannot stand in a script's own text by accident
_NAME = re.compile(r"[A-Za-z_]\w*")
_PARAMETER = re.compile(r"^([A-Za-z_]\w*)(\[[@*]\]|\[\d+\])?(?:(:?[-=?+])(.*))?$", re.S)
_FALLBACK = re.compile(r"\|\|\s*echo\s+(['\"]?)([\w./+-]+)\1\s*$")
_INTEGER = re.compile(r"^[-+]?\d+$")
MAX_WORD = 20_000  # characters a word may grow to; real command lines stay below
MAX_DEPTH = 20

Variables = Mapping[str, str | Sequence[str]]


def expand(raw: str, variables: Variables, depth: int = 0) -> list[str]:
    """The fields a raw word becomes: usually one; none or several where a variable is split or an array spread."""
    fields = _Fields()
    _into(fields, raw, variables, depth, quoted=False)
    return fields.done()


def text(raw: str, variables: Variables, depth: int = 0) -> str:
    """The same as one text without splitting, as in ``NAME=word``."""
    fields = _Fields()
    _into(fields, raw, variables, depth, quoted=True, outer=True)
    return " ".join(fields.done())


class _Fields:
    def __init__(self) -> None:
        self.out: list[str] = []
        self.current: str | None = None
        self.size = 0

    def add(self, piece: str) -> None:
        self.size += len(piece)
        if self.size <= MAX_WORD:
            self.current = (self.current or "") + piece

    def split(self, piece: str) -> None:
        """An unquoted expansion: blanks end the field."""
        words = piece.split()
        if piece[:1].isspace():
            self.end()
        for number, word in enumerate(words):
            if number:
                self.end()
            self.add(word)
        if words and piece[-1:].isspace():
            self.end()

    def end(self) -> None:
        if self.current is not None:
            self.out.append(self.current)
            self.current = None

    def done(self) -> list[str]:
        self.end()
        return self.out


def _into(fields: _Fields, raw: str, variables: Variables, depth: int, quoted: bool, outer: bool = False) -> None:
    """Add the parts of a raw word. ``outer``: quotes are still quotes, though nothing is split."""
    if depth > MAX_DEPTH:
        fields.add(UNKNOWN)
        return
    at = 0
    inside = quoted and not outer
    while at < len(raw):
        char = raw[at]
        if char == "\\" and at + 1 < len(raw):
            following = raw[at + 1]
            if following == "\n":
                pass
            elif inside and following not in '$`"\\':
                fields.add(char + following)
            else:
                fields.add(following)
            at += 2
        elif char == "'" and not inside:
            end = raw.find("'", at + 1)
            end = len(raw) if end < 0 else end
            fields.add(raw[at + 1 : end])
            at = end + 1
        elif char == '"' and not inside:
            end = _closing_quote(raw, at)
            body = raw[at + 1 : end]
            if body == "$@" or (body.endswith("[@]}") and body.startswith("${") and body.count("${") == 1):
                _spread(fields, body, variables)
            else:
                fields.add("")
                _into(fields, body, variables, depth + 1, quoted=True)
            at = end + 1
        elif char == "`":
            end = raw.find("`", at + 1)
            end = len(raw) if end < 0 else end
            fields.add(_command(raw[at + 1 : end], variables, depth))
            at = end + 1
        elif char == "$":
            piece, at = _dollar(raw, at, variables, depth)
            if piece is None:
                continue
            if quoted:
                fields.add(piece)
            else:
                fields.split(piece)
        else:
            fields.add(char)
            at += 1


def _spread(fields: _Fields, body: str, variables: Variables) -> None:
    value = () if body == "$@" else variables.get(body[2:-4], ())
    words = [value] if isinstance(value, str) else list(value)
    for number, word in enumerate(words):
        if number:
            fields.end()
        fields.add(word)


def _dollar(raw: str, at: int, variables: Variables, depth: int) -> tuple[str | None, int]:
    """What stands at a dollar sign, and where the rest begins."""
    if raw.startswith("$((", at):
        end = _matching(raw, at + 1, "(", ")")
        return _arithmetic(raw[at + 3 : end - 2], variables, depth), end
    if raw.startswith("$(", at):
        end = _matching(raw, at + 1, "(", ")")
        return _command(raw[at + 2 : end - 1], variables, depth), end
    if raw.startswith("${", at):
        end = _matching(raw, at + 1, "{", "}")
        return _parameter(raw[at + 2 : end - 1], variables, depth), end
    match = _NAME.match(raw, at + 1)
    if match:
        return _lookup(match[0], variables), match.end()
    if at + 1 < len(raw) and raw[at + 1] in "@*":
        return None, at + 2
    if at + 1 < len(raw) and raw[at + 1] in "0123456789#?$!-":
        return UNKNOWN, at + 2
    return "$", at + 1


def _parameter(body: str, variables: Variables, depth: int) -> str:
    match = _PARAMETER.match(body)
    if match is None:  # ${#NAME}, ${NAME##*/} and the like
        return UNKNOWN
    name, index, operator, word = match.groups()
    value = variables.get(name)
    if index and value is not None and not isinstance(value, str):
        if index in ("[@]", "[*]"):
            return " ".join(value)
        number = int(index[1:-1])
        return value[number] if number < len(value) else ""
    if operator is None:
        return _lookup(name, variables)
    held = value if isinstance(value, str) or value is None else " ".join(value)
    present = held is not None and (held != "" or not operator.startswith(":"))
    if operator[-1] == "+":
        return text(word, variables, depth + 1) if present else ""
    if present:
        return held or ""
    return UNKNOWN if operator[-1] == "?" else text(word, variables, depth + 1)


def _lookup(name: str, variables: Variables) -> str:
    value = variables.get(name)
    if value is None:
        return UNKNOWN
    return value if isinstance(value, str) else next(iter(value), "")


def _command(body: str, variables: Variables, depth: int) -> str:
    """``expr`` and ``echo``; of any other command only the value it falls back to, ``|| echo gpu``."""
    body = body.strip()
    if fallback := _FALLBACK.search(body):
        return fallback[2]
    if body.startswith(("expr ", "echo ")) and not re.search(r"[|;&<>`]", body):
        rest = " ".join(expand(body[5:].replace("\\*", "*"), variables, depth + 1))
        return rest if body.startswith("echo") else _calculated(rest)
    return UNKNOWN


def _arithmetic(body: str, variables: Variables, depth: int) -> str:
    replaced = text(body, variables, depth + 1)

    def number(match: re.Match[str]) -> str:
        value = variables.get(match[0])
        return value if isinstance(value, str) and _INTEGER.match(value) else UNKNOWN

    return _calculated(_NAME.sub(number, replaced))


def _calculated(expression: str) -> str:
    """Whole-number arithmetic on plain digits; the shell's division drops what is left over."""
    if UNKNOWN in expression or len(expression) > 200:
        return UNKNOWN
    try:
        return str(_value(ast.parse(expression.strip(), mode="eval").body))
    except (SyntaxError, ValueError, ArithmeticError, RecursionError, MemoryError):
        return UNKNOWN


def _value(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int) and not isinstance(node.value, bool):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand)
    if isinstance(node, ast.BinOp):
        left, right = _value(node.left), _value(node.right)
        if isinstance(node.op, ast.Add):
            return left + right
        if isinstance(node.op, ast.Sub):
            return left - right
        if isinstance(node.op, ast.Mult) and abs(left) < 2**63 and abs(right) < 2**63:
            return left * right
        if isinstance(node.op, ast.Div | ast.FloorDiv):
            quotient = abs(left) // abs(right)
            return quotient if (left < 0) == (right < 0) else -quotient
        if isinstance(node.op, ast.Mod):
            return abs(left) % abs(right) * (-1 if left < 0 else 1)
    raise ValueError("not arithmetic on whole numbers")


def _matching(raw: str, at: int, opening: str, closing: str) -> int:
    """Where the bracket that opens at ``at`` has closed (the end of the word where it never does)."""
    depth = 0
    for position in range(at, len(raw)):
        if raw[position] == opening:
            depth += 1
        elif raw[position] == closing:
            depth -= 1
            if depth == 0:
                return position + 1
    return len(raw) + 1


def _closing_quote(raw: str, at: int) -> int:
    position = at + 1
    while position < len(raw):
        char = raw[position]
        if char == "\\":
            position += 2
        elif raw.startswith(("$(", "${"), position):
            pair = ("(", ")") if raw[position + 1] == "(" else ("{", "}")
            position = _matching(raw, position + 1, *pair)
        elif char == '"':
            return position
        else:
            position += 1
    return len(raw)
