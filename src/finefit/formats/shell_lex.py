"""Shell scripts as tokens: raw words, operators and array assignments, each with its line.

Only the lexical rules of POSIX shells and bash arrays (POSIX.1-2017 XCU 2.2-2.3; bash reference manual 3.1):
quotes, escapes, comments, line continuation, here-documents. Nothing is executed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from finefit.errors import InputError

MAX_TOKENS = 20_000  # the longest of the real scripts has about 1,000
MAX_NESTING = 20
_ARRAY = re.compile(r"^[A-Za-z_]\w*\+?=$")
_OPERATORS = ("&&", "||", ";;", "<<<", "<<-", "<<", ">>", ">&", "<&", "&>", ";", "&", "|", "(", ")", "<", ">")


@dataclass(frozen=True, slots=True)
class Token:
    """kind: "word" (raw text with its quotes), "array" (``NAME=`` or ``NAME+=`` with words), "op" or "end" of line.

    ``start`` and ``end`` of a word are offsets into the text with plain line feeds.
    """

    kind: str
    text: str
    line: int
    words: tuple[Token, ...] = ()
    start: int = 0
    end: int = 0


def tokens(text: str, name: str) -> tuple[list[Token], list[tuple[int, str]]]:
    """Tokens of a script, and its comments with their lines.

    Raises:
        InputError: a quote or bracket that is never closed, or a script too large to be one.
    """
    return _Lexer(text.replace("\r\n", "\n"), name).run()


class _Lexer:
    def __init__(self, text: str, name: str) -> None:
        self.text, self.name = text, name
        self.at, self.line = 0, 1
        self.out: list[Token] = []
        self.comments: list[tuple[int, str]] = []
        self.heredocs: list[str] = []

    def run(self) -> tuple[list[Token], list[tuple[int, str]]]:
        while (token := self.next()) is not None:
            self.out.append(token)
            if len(self.out) > MAX_TOKENS:
                raise InputError("the script is longer than any launch script", where=self.name, fix="name the config")
        return self.out, self.comments

    def next(self) -> Token | None:
        text = self.text
        while self.at < len(text):
            char = text[self.at]
            if text.startswith("\\\n", self.at):
                self.at, self.line = self.at + 2, self.line + 1
            elif char in " \t":
                self.at += 1
            elif char == "#":
                end = text.find("\n", self.at)
                end = len(text) if end < 0 else end
                self.comments.append((self.line, text[self.at : end]))
                self.at = end
            elif char == "\n":
                token = Token("end", "\n", self.line)
                self.at, self.line = self.at + 1, self.line + 1
                self._skip_heredocs()
                return token
            else:
                return self._operator() or self._word()
        return None

    def _operator(self) -> Token | None:
        for operator in _OPERATORS:
            if self.text.startswith(operator, self.at):
                line = self.line
                self.at += len(operator)
                if operator in ("<<", "<<-"):
                    self._heredoc_mark()
                return Token("op", operator, line)
        return None

    def _heredoc_mark(self) -> None:
        match = re.compile(r"[ \t]*(['\"]?)([^\s'\";|&<>()]+)\1").match(self.text, self.at)
        if match:
            self.heredocs.append(match[2])

    def _skip_heredocs(self) -> None:
        for mark in self.heredocs:
            while self.at < len(self.text):
                end = self.text.find("\n", self.at)
                end = len(self.text) if end < 0 else end
                row = self.text[self.at : end].strip()
                self.at, self.line = min(end + 1, len(self.text)), self.line + 1
                if row == mark:
                    break
        self.heredocs.clear()

    def _word(self) -> Token:
        start, line = self.at, self.line
        parts: list[str] = []
        while self.at < len(self.text):
            char = self.text[self.at]
            if self.text.startswith("\\\n", self.at):
                self.at, self.line = self.at + 2, self.line + 1
            elif char in " \t\n;&|<>)":
                break
            elif char == "(":
                raw = "".join(parts)
                if _ARRAY.match(raw):
                    return self._array(raw, line)
                break
            else:
                parts.append(self._piece(0))
        if self.at == start:  # a bracket that opens nothing known
            self.at += 1
            return Token("op", self.text[start], line)
        return Token("word", "".join(parts), line, start=start, end=self.at)

    def _array(self, raw: str, line: int) -> Token:
        self.at += 1
        words: list[Token] = []
        while (token := self.next()) is not None:
            if token.kind == "op" and token.text == ")":
                return Token("array", raw, line, tuple(words))
            if token.kind == "word":
                words.append(token)
            if len(words) > MAX_TOKENS:
                break
        raise InputError("a bracket is never closed", where=f"{self.name}:{line}", fix="close it")

    def _piece(self, nesting: int) -> str:
        """One character, or one quoted or bracketed part as a whole."""
        if nesting > MAX_NESTING:
            raise InputError("the script is nested too deep", where=f"{self.name}:{self.line}", fix="name the config")
        text, start = self.text, self.at
        if text.startswith("$(", start) or text.startswith("${", start):
            return self._balanced(text[start + 1], nesting)
        char = text[start]
        if char == "\\":
            self.at += 2
            self.line += text.count("\n", start, self.at)
            return text[start : self.at]
        if char in "'`":
            return self._until(char)
        if char == '"':
            return self._double(nesting)
        self.at += 1
        self.line += char == "\n"
        return char

    def _until(self, quote: str) -> str:
        start = self.at
        end = self.text.find(quote, start + 1)
        if end < 0:
            raise InputError("a quote is never closed", where=f"{self.name}:{self.line}", fix="close it")
        self.at = end + 1
        self.line += self.text.count("\n", start, end)
        return self.text[start : self.at]

    def _double(self, nesting: int) -> str:
        line, parts = self.line, ['"']
        self.at += 1
        while self.at < len(self.text):
            if self.text[self.at] == '"':
                self.at += 1
                return "".join([*parts, '"'])
            if self.text[self.at] in "'":
                parts.append("'")
                self.at += 1
            else:
                parts.append(self._piece(nesting + 1))
        raise InputError("a quote is never closed", where=f"{self.name}:{line}", fix="close it")

    def _balanced(self, opening: str, nesting: int) -> str:
        closing = ")" if opening == "(" else "}"
        line, depth = self.line, 0
        parts = ["$"]
        self.at += 1
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == opening:
                depth += 1
            elif char == closing:
                depth -= 1
            if char in (opening, closing):
                parts.append(char)
                self.at += 1
                if depth == 0:
                    return "".join(parts)
            else:
                parts.append(self._piece(nesting + 1))
        raise InputError("a bracket is never closed", where=f"{self.name}:{line}", fix="close it")
