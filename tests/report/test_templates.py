"""A sentence is led back to the template that made it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from finefit.report.templates import HEAD, Templates, fill, holes


def match(known: Templates, sentence: str) -> tuple[str, dict[str, str]] | None:
    """The best template."""
    return next(known.matches(sentence), None)


def test_the_template_of_a_sentence_and_its_values() -> None:
    known = Templates(["{path} has no data set {name}", "{path} is a folder"])
    assert match(known, "a.json has no data set b") == (
        "{path} has no data set {name}",
        {"path": "a.json", "name": "b"},
    )


def test_the_template_with_the_most_fixed_text_wins() -> None:
    known = Templates(["{what} is not modelled yet", "the optimizer {name} is not modelled yet"])
    found = match(known, "the optimizer lion is not modelled yet")
    assert found == ("the optimizer {name} is not modelled yet", {"name": "lion"})


def test_unknown_sentences_have_none() -> None:
    assert match(Templates(["{a} and {b} differ"]), "nothing of the kind") is None


def test_templates_of_little_text_match_nothing() -> None:
    assert match(Templates(["{low} to {high}", "{name} ({detail})"]), "RTX 4090 (24 GB)") is None


def test_a_hole_used_twice_must_hold_the_same() -> None:
    known = Templates(["set {key}: true, or {key}.enabled"])
    assert match(known, "set bf16: true, or bf16.enabled") is not None
    assert match(known, "set bf16: true, or fp16.enabled") is None


def test_braces_of_the_text_itself() -> None:
    known = Templates(['write {{"stage": {stage}}}'])
    assert match(known, 'write {"stage": 2}') == ('write {{"stage": {stage}}}', {"stage": "2"})


def test_a_tail_leaves_its_head() -> None:
    known = Templates([" ({count} parameters)"])
    assert match(known, "an encoder (7 parameters)") == (" ({count} parameters)", {HEAD: "an encoder", "count": "7"})


def test_formats_of_holes_are_ignored() -> None:
    assert holes("{memory:.1f} GiB in {name}") == ("memory", "name")
    assert fill("{memory:.1f} GiB", {"memory": "47.5"}) == "47.5 GiB"


@given(st.text("abc .:", max_size=20), st.text("abc .:", max_size=20))
def test_filling_undoes_matching(first: str, second: str) -> None:
    template = "between {first} and {second} lies nothing"
    sentence = fill(template, {"first": first, "second": second})
    found = match(Templates([template]), sentence)
    assert found is not None
    assert fill(found[0], found[1]) == sentence
