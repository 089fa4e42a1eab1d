"""Every sentence is translated, placeholders match, the compiled catalogue is today's."""

from __future__ import annotations

import gettext

import pytest
from babel.messages.catalog import Message
from scripts import messages
from scripts._sentences import msgids as written

from finefit.errors import InputError, NotModelled
from finefit.planner.message import message
from finefit.report.i18n import DOMAIN, LANGUAGES, LOCALE, Translator, msgids, pick_language
from finefit.report.templates import holes

# Entries that wait for a translation are the matter of one test alone.
OTHERS = [language for language in LANGUAGES if language != "en"]


def translated(language: str) -> list[Message]:
    """Entries with a translation, the header left out."""
    return [entry for entry in messages.read(language) if entry.id and entry.string]


@pytest.mark.parametrize("language", OTHERS)
def test_every_sentence_is_in_the_catalogue(language: str) -> None:
    known = {entry.id for entry in messages.read(language) if entry.id}
    assert len(written()) > 500
    assert sorted(set(written()) - known) == [], "run make messages, translate the new ones, run it again"


@pytest.mark.parametrize("language", OTHERS)
def test_every_sentence_is_translated(language: str) -> None:
    known = {entry.id for entry in translated(language)}
    assert sorted(set(written()) - known) == []


@pytest.mark.parametrize("language", OTHERS)
def test_placeholders_match(language: str) -> None:
    entries = translated(language)
    assert len(entries) > 500
    assert [entry.id for entry in entries if set(holes(entry.id)) != set(holes(str(entry.string)))] == []


@pytest.mark.parametrize("language", OTHERS)
def test_the_compiled_catalogue_is_that_of_the_po_file(language: str) -> None:
    compiled = gettext.translation(DOMAIN, LOCALE, [language])
    entries = translated(language)
    assert [entry.id for entry in entries if compiled.gettext(entry.id) != entry.string] == [], "run make messages"


def test_msgids_of_a_compiled_catalogue() -> None:
    found = msgids(LOCALE / "zh" / "LC_MESSAGES" / f"{DOMAIN}.mo")
    assert set(found) == {entry.id for entry in translated("zh")}


def test_english_says_what_was_written() -> None:
    t = Translator("en")
    assert t("{n} h", n=3) == "3 h"
    assert t.sentence("hours of the run unknown") == "hours of the run unknown"
    assert t.message(message("{name} on {count} GPUs", name="ZeRO-3", count=2)) == "ZeRO-3 on 2 GPUs"


def test_chinese_sentences_with_values() -> None:
    t = Translator("zh")
    assert t("One card is enough.") == "单卡够用。"
    assert t.sentence("at most 11.7 h") == "至多 11.7 小时"
    assert t.message(message("{name} on {count} GPUs", name="ZeRO-3", count=2)) == "ZeRO-3，2 张 GPU"


def test_a_sentence_in_a_sentence_is_translated_too() -> None:
    said = "LoRA sits on every linear module: PEFT has no default for mpt"
    assert Translator("zh").sentence(said) == "LoRA 加在所有线性层上：PEFT 对 mpt 没有默认值"


def test_unknown_sentences_stay_english() -> None:
    assert Translator("zh").sentence("a sentence nobody wrote") == "a sentence nobody wrote"


def test_a_sentence_with_a_tail() -> None:
    said = "GLM-4V is a vision-language model, which is not modelled yet (9,400,000,000 parameters)"
    assert Translator("zh").sentence(said) == "GLM-4V 是视觉语言模型，尚未建模（9,400,000,000 参数）"


def test_a_general_template_does_not_swallow_an_unknown_sentence() -> None:
    said = "this sentence of many words is not a thing that anyone has ever written"
    assert Translator("zh").sentence(said) == said


def test_an_empty_value_stays_empty() -> None:
    assert Translator("zh").sentence("") == ""
    assert Translator("zh").sentence("give the path of its config.json") == "给出它的 config.json 路径"


def test_errors_in_chinese_keep_place_and_order() -> None:
    error = NotModelled("ReLoRA is not modelled yet", where="a.yaml:3", fix="remove relora to plan plain LoRA")
    assert Translator("zh").error(error) == "a.yaml:3: ReLoRA尚未建模 — 请去掉 relora，按普通 LoRA 估算"
    assert Translator("en").error(error) == str(error)


@pytest.mark.parametrize(
    ("stated", "environ", "language"),
    [
        ("zh", {}, "zh"),
        ("zh-CN", {"LANG": "en_US.UTF-8"}, "zh"),
        ("en", {"LANG": "zh_CN.UTF-8"}, "en"),
        (None, {"LANG": "zh_CN.UTF-8"}, "zh"),
        (None, {"LC_ALL": "C", "LANG": "zh_CN.UTF-8"}, "en"),
        (None, {"LANG": "de_DE"}, "en"),
        (None, {}, "en"),
    ],
)
def test_language(stated: str | None, environ: dict[str, str], language: str) -> None:
    assert pick_language(stated, environ) == language


def test_a_language_that_is_not_spoken() -> None:
    with pytest.raises(InputError, match="write en or zh"):
        pick_language("fr")
