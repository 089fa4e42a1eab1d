"""YAML 1.1 as PyYAML reads it, with the line of every top-level key and limits on what is accepted.

Tools differ in one rule that changes values: PyYAML's own resolver takes ``2e-5`` (no dot) for text,
OmegaConf's (omegaconf 2.3.0 ``_utils.py`` ``get_yaml_loader``) for a number. ``Dialect`` names the two.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import yaml

from finefit.errors import InputError

MAX_BYTES = 1_000_000  # the longest of 2,451 real configurations is a few kB; a larger file is no configuration
MAX_NODES = 50_000
MAX_DEPTH = 40
MAX_ALIASES = 200  # aliases share nodes in PyYAML; the limit keeps nested ones from growing exponentially

# omegaconf 2.3.0 _utils.py get_yaml_loader: the float rule that accepts numbers without a dot
_OMEGACONF_FLOAT = re.compile(
    r"""^(?:
     [-+]?[0-9]+(?:_[0-9]+)*\.[0-9_]*(?:[eE][-+]?[0-9]+)?
    |[-+]?[0-9]+(?:_[0-9]+)*(?:[eE][-+]?[0-9]+)
    |\.[0-9]+(?:_[0-9]+)*(?:[eE][-+][0-9]+)?
    |[-+]?[0-9]+(?:_[0-9]+)*(?::[0-5]?[0-9])+\.[0-9_]*
    |[-+]?\.(?:inf|Inf|INF)
    |\.(?:nan|NaN|NAN))$""",
    re.X,
)
_FLOAT = "tag:yaml.org,2002:float"
_TIMESTAMP = "tag:yaml.org,2002:timestamp"


class Dialect(StrEnum):
    """Whose reading of YAML 1.1 applies."""

    PYYAML = "pyyaml"
    OMEGACONF = "omegaconf"


@dataclass(frozen=True, slots=True)
class Document:
    """A mapping as read: (key, value, line) in order, and keys written twice with their lines."""

    items: tuple[tuple[str, object, int], ...]
    duplicates: tuple[tuple[str, int], ...]


class _PyYaml(yaml.SafeLoader):
    """PyYAML's own rules."""


class _OmegaConf(yaml.SafeLoader):
    """PyYAML with OmegaConf's float rule, and dates left as text."""


_OmegaConf.yaml_implicit_resolvers = {
    first: [(tag, rule) for tag, rule in rules if tag != _TIMESTAMP]
    for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
for _first in "-+0123456789.":
    _OmegaConf.yaml_implicit_resolvers.setdefault(_first, []).append((_FLOAT, _OMEGACONF_FLOAT))

_LOADERS: dict[Dialect, type[yaml.SafeLoader]] = {Dialect.PYYAML: _PyYaml, Dialect.OMEGACONF: _OmegaConf}


def read_text(path: Path, *, limit: int = MAX_BYTES) -> str:
    """A text file of at most ``limit`` bytes, as UTF-8 with or without a byte-order mark.

    Raises:
        InputError: no such file, a folder, not readable, too large, or not text.
    """
    where = str(path)
    try:
        if path.is_dir():
            raise InputError("this is a folder, not a file", where=where, fix="name the file inside it")
        if path.exists() and not path.is_file():
            raise InputError("this is not a regular file", where=where, fix="name a file")
        with path.open("rb") as handle:
            raw = handle.read(limit + 1)
    except FileNotFoundError:
        raise InputError("no such file", where=where, fix="check the path") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"the file cannot be read: {reason}", where=where, fix="check the path") from None
    if len(raw) > limit:
        raise InputError(
            f"the file is larger than {limit // 10**6} MB, which no configuration is",
            where=where,
            fix="name the training config",
        )
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise InputError("the file is not UTF-8 text", where=where, fix="save it as UTF-8, or name the right file")
    return text


def load_mapping(text: str, name: str, dialect: Dialect = Dialect.PYYAML) -> Document:
    """The top-level mapping of a YAML text. JSON is YAML here, as far as its numbers are.

    Args:
        text: the document.
        name: what to call it in errors, usually the path.
        dialect: whose float rule applies.

    Raises:
        InputError: not YAML, more than one document, not a mapping, too deep, or too many nodes or aliases.
    """
    if not text.strip():
        raise InputError("the file is empty", where=name, fix="name a training config")
    try:
        _check_limits(text, name, dialect)
        loader = _LOADERS[dialect](text)
        try:
            node = loader.get_single_node()
            return _mapping(loader, node, name)
        finally:
            loader.dispose()
    except yaml.composer.ComposerError as error:
        what = "the file holds more than one document" if "another document" in str(error) else _problem(error)
        raise InputError(what, where=_place(name, error.problem_mark), fix="keep one training config") from None
    except yaml.MarkedYAMLError as error:
        raise InputError(_problem(error), where=_place(name, error.problem_mark), fix="correct the YAML") from None
    except yaml.YAMLError as error:
        message = str(error).splitlines()[0]
        raise InputError(f"this is not YAML: {message}", where=name, fix="save it as plain UTF-8 text") from None
    except (ValueError, TypeError, OverflowError, AttributeError, KeyError, IndexError) as error:
        # constructors of PyYAML raise these on impossible dates, numbers and binary texts
        raise InputError(f"a value cannot be read: {error}", where=name, fix="correct the value") from None
    except RecursionError:
        raise InputError("the file refers to itself", where=name, fix="remove the recursive alias") from None


def load_tree(text: str, name: str, dialect: Dialect = Dialect.PYYAML) -> Document:
    """The same with the keys of nested mappings too, as dotted names: "train.micro_batch_size".

    Mappings stand beside their parts; lists are values as they are.

    Raises:
        InputError: as ``load_mapping``, or a mapping that grows without bound through its aliases.
    """
    document = load_mapping(text, name, dialect)
    loader = _LOADERS[dialect](text)
    try:
        node = loader.get_single_node()
        lines: dict[str, int] = {}
        _nested_lines(loader, node, "", lines, name, 0)
    except yaml.YAMLError as error:
        raise InputError(f"this is not YAML: {str(error).splitlines()[0]}", where=name, fix="correct it") from None
    except (ValueError, TypeError, OverflowError, AttributeError, KeyError, IndexError) as error:
        raise InputError(f"a value cannot be read: {error}", where=name, fix="correct the value") from None
    except RecursionError:
        raise InputError("the file refers to itself", where=name, fix="remove the recursive alias") from None
    finally:
        loader.dispose()
    values = dict(flat({key: value for key, value, _ in document.items}, name))
    lines = {**lines, **{key: line for key, _, line in document.items}}
    return Document(tuple((key, value, _line_of(key, lines)) for key, value in values.items()), document.duplicates)


def _line_of(key: str, lines: Mapping[str, int]) -> int:
    """The line of a dotted key, else of the nearest section around it that has one."""
    while key not in lines and "." in key:
        key = key.rpartition(".")[0]
    return lines.get(key, 1)


def flat(mapping: Mapping[str, object], name: str) -> Iterator[tuple[str, object]]:
    """Every key of a mapping and of the mappings in it, dotted; a key that holds a dot keeps it.

    Raises:
        InputError: nested too deep, or too many keys.
    """
    waiting = [("", mapping, 0)]
    count = 0
    while waiting:
        prefix, current, depth = waiting.pop()
        for key, value in current.items():
            count += 1
            if count > MAX_NODES or depth > MAX_DEPTH:
                raise InputError("the file has more values than any configuration", where=name, fix="name the config")
            if not isinstance(key, str):
                continue
            yield prefix + key, value
            if isinstance(value, Mapping):
                waiting.append((f"{prefix}{key}.", value, depth + 1))


def load_scalar(text: str, name: str, dialect: Dialect = Dialect.PYYAML) -> object:
    """The value of a text as it would be read after ``key:``, as in ``key=value`` on a command line.

    Raises:
        InputError: not YAML.
    """
    document = load_mapping(f"value: {text}", name, dialect)
    return document.items[0][1]


def _check_limits(text: str, name: str, dialect: Dialect) -> None:
    """Walk the event stream, which is flat, before anything recursive touches the document."""
    depth = aliases = 0
    for nodes, event in enumerate(yaml.parse(text, Loader=_LOADERS[dialect])):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        elif isinstance(event, yaml.AliasEvent):
            aliases += 1
        if depth > MAX_DEPTH or nodes > MAX_NODES or aliases > MAX_ALIASES:
            raise InputError(
                "the file is nested deeper, or has more values or aliases, than any configuration",
                where=_place(name, event.start_mark),
                fix="name the training config",
            )


def _mapping(loader: yaml.SafeLoader, node: yaml.Node | None, name: str) -> Document:
    if node is None:
        raise InputError("the file holds only comments", where=name, fix="name a training config")
    if not isinstance(node, yaml.MappingNode):
        kind = "a list" if isinstance(node, yaml.SequenceNode) else "a single value"
        raise InputError(
            f"the file is {kind}, not keys with values", where=_place(name, node.start_mark), fix="name a config"
        )
    loader.flatten_mapping(node)
    values: dict[str, tuple[object, int]] = {}
    duplicates: list[tuple[str, int]] = []
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        key: Any = loader.construct_object(key_node, deep=True)
        if not isinstance(key, str):
            raise InputError(
                f"the key {key!r} is not a word", where=f"{name}:{line}", fix="write each setting as key: value"
            )
        if key in values:
            duplicates.append((key, line))
        values[key] = (loader.construct_object(value_node, deep=True), line)
    items = tuple((key, value, line) for key, (value, line) in values.items())
    return Document(items, tuple(duplicates))


def _nested_lines(
    loader: yaml.SafeLoader, node: yaml.Node | None, prefix: str, lines: dict[str, int], name: str, depth: int
) -> None:
    if not isinstance(node, yaml.MappingNode):
        return
    if depth > MAX_DEPTH or len(lines) > MAX_NODES:
        raise InputError("the file has more values than any configuration", where=name, fix="name the config")
    loader.flatten_mapping(node)
    for key_node, value_node in node.value:
        if isinstance(key_node, yaml.ScalarNode):
            key = f"{prefix}{key_node.value}"
            lines[key] = key_node.start_mark.line + 1
            _nested_lines(loader, value_node, f"{key}.", lines, name, depth + 1)


def _problem(error: yaml.MarkedYAMLError) -> str:
    return f"this is not YAML: {error.problem or error.context or 'it cannot be parsed'}"


def _place(name: str, mark: Any) -> str:
    return f"{name}:{mark.line + 1}" if mark else name
