"""The documentation is true: output is today's, options and JSON fields are explained, links lead somewhere."""

from __future__ import annotations

import argparse
import re
import shlex
from pathlib import Path

import pytest
from scripts import docs

from finefit import api, pricing
from finefit.app.cli import parser

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "src" / "finefit" / "examples" / "llama3_8b_qlora.yaml"
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
READMES = ("README.md", "README.zh-CN.md")
OPTION = re.compile(r"`(--[a-z][a-z-]*)")


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def options() -> set[str]:
    """Long options of all commands."""
    found: set[str] = set()
    waiting: list[argparse.ArgumentParser] = [parser()]
    while waiting:
        for action in waiting.pop()._actions:
            found.update(name for name in action.option_strings if name.startswith("--"))
            if isinstance(action, argparse._SubParsersAction):
                waiting.extend(action.choices.values())
    return found


@pytest.mark.parametrize("name", READMES)
def test_shown_output_is_what_the_command_prints(name: str) -> None:
    page = read(name)
    assert page.count("```console\n$ finefit plan") == 2
    assert docs.regenerated(page) == page, "run make docs"


@pytest.mark.parametrize("name", READMES)
def test_commands_of_the_readme_parse(name: str) -> None:
    lines = re.findall(r"^(?:\$ |\.venv/bin/)?finefit ((?:plan|memory) .+?)(?: {2,}#.*)?$", read(name), re.M)
    assert len(lines) >= 8
    for line in lines:
        assert callable(parser().parse_args(shlex.split(line)).run)


@pytest.mark.parametrize("name", ["docs/cli.md", "docs/cli.zh-CN.md"])
def test_every_option_is_documented_and_no_other(name: str) -> None:
    assert set(OPTION.findall(read(name))) | {"--help"} == options()


@pytest.mark.parametrize("name", READMES)
def test_every_exit_code_is_documented(name: str) -> None:
    assert re.findall(r"^\| (\d+) \|", read(name), re.M) == ["0", "1", "2", "3", "4", "70"]


def test_every_json_field_is_documented() -> None:
    page = read("docs/json.md")
    answers = (
        api.plan(EXAMPLE, gpu="RTX 3060", samples=1000, mean_length=200, budget="5USD", deadline="1h"),
        api.plan(EXAMPLE, gpu="2x RTX 4090"),
        api.memory("llama-3-8b", method="qlora", seq=2048, gpu="RTX 4090"),
        api.plan("llama-3-8b"),
        pricing.offers(gpu="RTX 4090", currency="CNY"),
        pricing.gpus("RTX 4090"),
        pricing.cost(EXAMPLE, gpu="RTX 4090", samples=1000, mean_length=200, settings={"card_price": "2000USD"}),
    )
    for answer in answers:
        fields = set(keys({name: value for name, value in answer.to_dict().items() if name != "inputs"}))
        assert [field for field in sorted(fields) if f"`{field}`" not in page] == []


# Their keys are names from elsewhere: kinds and currencies, parts of a step, dotted fields of a recipe.
_NAMED_BY_OTHERS = ("prices", "step_parts_seconds", "settings", "region_checks", "dense_flops")


def keys(found: object) -> list[str]:
    """Names of all fields, at any depth."""
    if isinstance(found, list):
        return [name for each in found for name in keys(each)]
    if not isinstance(found, dict):
        return []
    inner = [name for key, value in found.items() if key not in _NAMED_BY_OTHERS for name in keys(value)]
    return [*found, *inner]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files(page: Path) -> None:
    targets = re.findall(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_both_readmes_have_the_same_sections_tables_and_commands() -> None:
    english, chinese = (read(name) for name in READMES)
    for pattern in (r"^## ", r"^\|", r"^```"):
        assert len(re.findall(pattern, english, re.M)) == len(re.findall(pattern, chinese, re.M))


def test_packages_are_never_named_with_an_index() -> None:
    for name in ("Makefile", ".ci/run", "CONTRIBUTING.md", *READMES):
        assert not re.search(r"--?(extra-)?index(-url)?\b|\bpip\.conf\b", read(name))
