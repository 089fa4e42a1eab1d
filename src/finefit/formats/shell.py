"""Launch scripts: the commands they would run, with their words spelled out. Nothing is executed.

Assignments, arrays, ``if``, ``case`` and ``for`` are followed as far as the text alone decides them. A condition
that only a run can decide (a probe of the machine, a positional parameter) counts as false; a loop's body is
read once. What stays open in a word is ``shell_expand.UNKNOWN``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from finefit.formats.shell_expand import UNKNOWN, expand, text
from finefit.formats.shell_lex import Token, tokens

_ASSIGN = re.compile(r"^([A-Za-z_]\w*)(\+?)=(.*)$", re.S)
_FUNCTION = re.compile(r"^[A-Za-z_][\w-]*$")
_SPREAD = re.compile(r'"?\$\{([A-Za-z_]\w*)\[@\]\}"?\Z')
_SEPARATORS = {";", "&&", "||", "|", "&", ";;"}
_REDIRECTS = {"<", ">", ">>", "<<", "<<-", "<<<", ">&", "<&", "&>"}
_PREFIXES = {"export", "declare", "local", "readonly", "typeset"}
# What every run has: a home and a folder, of which nobody knows more than that paths begin there; and a first
# machine, whose part of a script for several machines is the one read
_GIVEN = {"HOME": "~", "PWD": ".", "NODE_RANK": "0", "RANK": "0", "SLURM_NODEID": "0", "SLURM_PROCID": "0"}
_GIVEN.update({"SKYPILOT_NODE_RANK": "0", "DSTACK_NODE_RANK": "0"})
MAX_COMMANDS = 2_000
MAX_NESTING = 50
MAX_ARRAY = 2_000  # words; arrays that spread themselves would double without end


@dataclass(frozen=True, slots=True)
class Word:
    """One word of a command and the line it stands on; ``known`` unless only a run could tell all of it.

    ``span`` is where its own letters stand in the source with plain line feeds, ``raw`` how they are written there;
    None and "" for a word that an expansion made.
    """

    text: str
    line: int
    span: tuple[int, int] | None = field(default=None, compare=False)
    raw: str = field(default="", compare=False)

    @property
    def known(self) -> bool:
        return UNKNOWN not in self.text


@dataclass(frozen=True, slots=True)
class Command:
    """A simple command: its words, and the environment its script has set so far."""

    words: tuple[Word, ...]
    environment: Mapping[str, Word]
    line: int


@dataclass(frozen=True, slots=True)
class Script:
    """Commands in order, comments with their lines, what is odd about the writing; where each variable is set."""

    commands: tuple[Command, ...]
    comments: tuple[tuple[int, str], ...]
    warnings: tuple[str, ...]
    assignments: Mapping[str, tuple[Word, ...]] = field(default_factory=dict)


def read(source: str, name: str, *, first_line: int = 1) -> Script:
    """The commands of a script.

    Args:
        source: its text.
        name: what to call it in errors and warnings, usually the path.
        first_line: line of the file on which the text begins, for a script inside another file.

    Raises:
        InputError: a quote or bracket that is never closed, or no launch script's size.
    """
    found, comments = tokens(source, name)
    runner = _Runner(found, name, first_line - 1)
    runner.block(frozenset(), taken=True, depth=0)
    shift = first_line - 1
    return Script(
        tuple(runner.commands),
        tuple((line + shift, row) for line, row in comments),
        tuple(runner.warnings),
        {name: tuple(words) for name, words in runner.assignments.items()},
    )


class _Runner:
    def __init__(self, found: Sequence[Token], name: str, shift: int) -> None:
        self.tokens, self.name, self.shift = found, name, shift
        self.at = 0
        self.variables: dict[str, str | Sequence[str]] = dict(_GIVEN)
        self.environment: dict[str, Word] = {}
        self.commands: list[Command] = []
        self.warnings: list[str] = []
        self.arrays: dict[str, list[Word]] = {}
        self.assignments: dict[str, list[Word]] = {}  # of every branch, each value as it is written

    def block(self, until: frozenset[str], taken: bool, depth: int) -> str:
        """Follow statements up to a closing word, which is consumed and returned."""
        while self.at < len(self.tokens) and len(self.commands) < MAX_COMMANDS:
            token = self.tokens[self.at]
            if token.kind == "word" and token.text in until:
                self.at += 1
                return token.text
            if token.kind == "op" and token.text in until:
                self.at += 1
                return token.text
            if token.kind == "word" and token.text == "if" and depth < MAX_NESTING:
                self.at += 1
                self._if(taken, depth)
            elif token.kind == "word" and token.text == "case" and depth < MAX_NESTING:
                self.at += 1
                self._case(taken, depth)
            elif token.kind == "word" and token.text in ("for", "while", "until") and depth < MAX_NESTING:
                self.at += 1
                self._loop(token.text, taken, depth)
            elif token.kind in ("end", "op") or token.text in ("{", "}", "!", "then", "do", "function"):
                self.at += 1
            else:
                self._simple(taken)
        return ""

    def _if(self, taken: bool, depth: int) -> None:
        done = False
        while True:
            holds = self._condition(taken)
            branch = taken and not done and holds is True
            word = self.block(frozenset({"elif", "else", "fi"}), branch, depth + 1)
            done = done or holds is True
            if word == "else":
                self.block(frozenset({"fi"}), taken and not done, depth + 1)
                return
            if word != "elif":
                return

    def _case(self, taken: bool, depth: int) -> None:
        subject = ""
        if self.at < len(self.tokens):
            subject = text(self.tokens[self.at].text, self.variables)
        while self.at < len(self.tokens) and self.tokens[self.at].text != "in":
            self.at += 1
        self.at += 1
        done = False
        while self.at < len(self.tokens):
            patterns: list[str] = []
            while self.at < len(self.tokens):
                token = self.tokens[self.at]
                self.at += 1
                if token.kind == "op" and token.text == ")":
                    break
                if token.kind == "word":
                    if token.text == "esac":
                        return
                    patterns.append(token.text)
            matches = UNKNOWN not in subject and any(
                fnmatchcase(subject, text(pattern, self.variables)) for pattern in patterns
            )
            word = self.block(frozenset({";;", "esac"}), taken and matches and not done, depth + 1)
            done = done or matches
            if word == "esac":
                return

    def _loop(self, kind: str, taken: bool, depth: int) -> None:
        if kind == "for" and self.at + 1 < len(self.tokens) and self.tokens[self.at].kind == "word":
            name = self.tokens[self.at].text
            values: list[str] = []
            self.at += 1
            while self.at < len(self.tokens) and self.tokens[self.at].text not in ("do", ";", "\n"):
                token = self.tokens[self.at]
                if token.kind == "word" and token.text != "in":
                    values += expand(token.text, self.variables)
                self.at += 1
            self.variables[name] = values[0] if len(values) == 1 else UNKNOWN
        else:
            self._condition(False, frozenset({"do"}))
        self.block(frozenset({"done"}), taken, depth + 1)

    def _condition(self, taken: bool, until: frozenset[str] = frozenset({"then"})) -> bool | None:
        """Whether the text up to ``then`` holds; None where only a run can tell."""
        words: list[Token] = []
        while self.at < len(self.tokens) and self.tokens[self.at].text not in until:
            if self.tokens[self.at].text not in ("\n", ";"):
                words.append(self.tokens[self.at])
            self.at += 1
        self.at += 1
        return self._holds(words) if taken else False

    def _holds(self, words: list[Token]) -> bool | None:
        for operator, decides in (("||", True), ("&&", False)):
            depth = 0
            for number in range(len(words) - 1, -1, -1):
                token = words[number].text
                depth += (token in ("}", ")", "]]")) - (token in ("{", "(", "[["))
                if token == operator and depth == 0:
                    sides = [self._holds(words[:number]), self._holds(words[number + 1 :])]
                    if decides in sides:
                        return decides
                    return None if None in sides else not decides
        if words and words[0].text in ("{", "(") and words[-1].text in ("}", ")"):
            return self._holds(words[1:-1])
        if words and words[0].text == "!":
            inner = self._holds(words[1:])
            return None if inner is None else not inner
        if len(words) > 2 and words[0].text in ("[", "[[") and words[-1].text in ("]", "]]"):
            if words[0].text == "[[" and any(word.text in ("&&", "||") for word in words):
                return self._holds(words[1:-1])
            return self._test([text(word.text, self.variables) for word in words[1:-1]])
        if words and words[0].text == "test":
            return self._test([text(word.text, self.variables) for word in words[1:]])
        return None

    @staticmethod
    def _test(words: list[str]) -> bool | None:
        if words[:1] == ["!"]:
            inner = _Runner._test(words[1:])
            return None if inner is None else not inner
        if any(UNKNOWN in word for word in words):
            return None
        if len(words) == 1:
            return words[0] != ""
        if len(words) == 2 and words[0] in ("-n", "-z"):
            return (words[1] != "") == (words[0] == "-n")
        if len(words) != 3:
            return None
        left, operator, right = words
        if operator in ("=", "=="):
            return left == right
        if operator == "!=":
            return left != right
        try:
            a, b = int(left), int(right)
        except ValueError:
            return None
        table = {"-eq": a == b, "-ne": a != b, "-lt": a < b, "-le": a <= b, "-gt": a > b, "-ge": a >= b}
        return table.get(operator)

    def _simple(self, taken: bool) -> None:
        """Assignments and the words of one command."""
        words: list[Word] = []
        own: dict[str, Word] = {}
        exported = False
        line = self.tokens[self.at].line + self.shift
        while self.at < len(self.tokens):
            token = self.tokens[self.at]
            if token.kind == "end" or (token.kind == "op" and token.text in (_SEPARATORS | {"(", ")"})):
                break
            self.at += 1
            if token.kind == "op":
                if token.text in _REDIRECTS and self.at < len(self.tokens) and self.tokens[self.at].kind == "word":
                    self.at += 1  # the file a redirection names
            elif token.kind == "array":
                if taken:
                    self._array(token)
            elif not words and token.text in _PREFIXES:
                exported = True
            elif not words and (match := _ASSIGN.match(token.text)):
                word = Word(text(match[3], self.variables), token.line + self.shift)
                span = (token.start + match.start(3), token.end)
                self.assignments.setdefault(match[1], []).append(replace(word, span=span, raw=match[3]))
                if match[2] and isinstance(held := self.variables.get(match[1], ""), str):
                    word = Word(held + word.text, word.line)
                own[match[1]] = word
            else:
                words += self._words(token)
        if not taken:
            return
        if not words:  # plain assignments last; those before a command hold for it alone
            for key, word in own.items():
                self.variables[key] = word.text
                self.arrays.pop(key, None)
            if exported:
                self.environment.update(own)
            return
        self._warn(words, line)
        if not (len(words) == 1 and _FUNCTION.match(words[0].text) and self._is_function()):
            self.commands.append(Command(tuple(words), {**self.environment, **own}, line))

    def _words(self, token: Token) -> list[Word]:
        """The words that one token becomes: an array's own where it is spread, itself where nothing expands."""
        spread = _SPREAD.match(token.text)
        if spread and spread[1] in self.arrays:
            return self.arrays[spread[1]]
        fields = expand(token.text, self.variables)
        span = (token.start, token.end) if len(fields) == 1 and not self.shift else None
        return [Word(field, token.line + self.shift, span, token.text if span else "") for field in fields]

    def _is_function(self) -> bool:
        return [token.text for token in self.tokens[self.at : self.at + 2]] == ["(", ")"]

    def _array(self, token: Token) -> None:
        name = token.text.rstrip("+=")
        held = self.variables.get(name, ())
        words = [] if not token.text.endswith("+=") else self.arrays.get(name, [])
        if token.text.endswith("+=") and isinstance(held, str):
            words = [Word(held, token.line + self.shift)]
        words = [*words, *(word for inner in token.words for word in self._words(inner))][:MAX_ARRAY]
        self.arrays[name] = words
        self.variables[name] = tuple(word.text for word in words)

    def _warn(self, words: list[Word], line: int) -> None:
        first, last = words[0].text, words[-1].text
        if first.startswith("--"):
            self.warnings.append(
                f"{self.name}:{line}: {first[:40]} begins a line of its own, so the command before it never gets it: "
                "a comment or a missing backslash has cut that command"
            )
        if last.strip() == "" and last:
            self.warnings.append(
                f"{self.name}:{words[-1].line}: a backslash before a blank does not continue the line; "
                "the command ends here"
            )
