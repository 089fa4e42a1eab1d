"""Chats as the text that is tokenised: LLaMA-Factory's templates by name, or the model's own in a sandbox."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from finefit.errors import InputError
from finefit.formats.data_shapes import ASSISTANT, SYSTEM, USER, BadRow, Turn
from finefit.resolve.token_count import Counter

Template = Callable[[Sequence[Turn]], str]
_SLOT = "{{content}}"
_LONGEST_TEMPLATE = 1 << 20  # characters; the longest published ones have some 20,000


def bare(turns: Sequence[Turn]) -> str:
    """The texts alone, where no template is known."""
    return "\n".join(turn.text for turn in turns)


@cache
def _named() -> dict[str, dict[str, Any]]:
    table: dict[str, dict[str, Any]] = json.loads(
        Path(__file__).with_name("llamafactory_templates.json").read_text(encoding="utf-8")
    )
    return {name: template for name, template in table.items() if name}


def llamafactory(name: str, *, bos: str, eos: str, where: str) -> Template:
    """A template of LLaMA-Factory as ``Template._encode`` applies it (llamafactory 0.9.5 data/template.py).

    Its tools and pictures are not written. The turns are one text here, which LLaMA-Factory tokenises one by one:
    the tokens are the same where special tokens stand between them.

    Raises:
        InputError: no such template.
    """
    table = _named()
    if name not in table:
        near = get_close_matches(name, table, 3)
        fix = f"write one of LLaMA-Factory's names, such as {', '.join(near or ('llama3', 'qwen', 'mistral'))}"
        raise InputError(f"there is no template {name[:60]!r}", where=where, fix=fix)
    parts = table[name]
    parts = {
        key: value.replace("{bos}", bos).replace("{eos}", eos) if isinstance(value, str) else value
        for key, value in parts.items()
    }
    return lambda turns: _written(parts, turns, eos)


def _written(parts: dict[str, Any], turns: Sequence[Turn], eos: str) -> str:
    out = [parts.get("prefix", "")]
    system = parts.get("default_system", "")
    if turns and turns[0].role == SYSTEM:
        system, turns = turns[0].text or system, turns[1:]
    begun = parts["system"].replace(_SLOT, system) if system else ""
    fused = parts.get("system_in_first_user", False)
    if not fused:
        out.append(begun)
    for index, turn in enumerate(turns):
        if turn.role == SYSTEM:
            raise BadRow("a system message stands after the first")
        text = turn.text
        if turn.role == USER:
            slot = parts["user"].replace("{{idx}}", str(index // 2))
            text = begun + text if fused and index == 0 else text
        elif turn.role == ASSISTANT:
            slot = parts["assistant"]
            thought = parts.get("empty_thought", "")
            if thought and not any(word in text for word in thought.split()):
                out.append(thought)  # ReasoningTemplate.encode_multiturn: "add empty cot"
        else:
            slot = parts["observation"]
        out.append(slot.replace(_SLOT, text))
    if parts.get("efficient_eos"):  # processor/supervised.py appends it once
        out.append(eos)
    return "".join(out)


def of_model(text: str, *, bos: str, eos: str, where: str) -> Template:
    """The Jinja template that a model brings, in the environment transformers gives it, without any access to code.

    Environment: transformers 5.24.0 utils/chat_template_utils.py ``_compile_jinja_template``.

    Raises:
        InputError: jinja2 is not installed, or the template is malformed.
    """
    try:
        import jinja2
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError:
        raise InputError(
            "the model's chat template is read by jinja2, which is not installed",
            where=where,
            fix="pip install 'finefit[data]', or state --template",
        ) from None

    def refuse(message: str) -> str:
        raise jinja2.TemplateError(message)

    def tojson(value: object, ensure_ascii: bool = False, indent: int | None = None, **_: object) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = lambda form: "01 Dec 2026" if "%b" in form else "2026-12-01"
    try:
        if len(text) > _LONGEST_TEMPLATE:
            raise jinja2.TemplateError("too long")
        template = environment.from_string(text)
    except (jinja2.TemplateError, RecursionError) as error:
        raise InputError(
            f"the chat template cannot be read: {str(error)[:80]}", where=where, fix="state --template"
        ) from None

    def render(turns: Sequence[Turn]) -> str:
        messages = [{"role": turn.role, "content": turn.text} for turn in turns]
        try:
            return template.render(messages=messages, bos_token=bos, eos_token=eos, add_generation_prompt=False)
        except Exception as error:  # a template is a program of somebody else's: whatever it raises, the row is bad
            raise BadRow(f"the chat template refuses it: {str(error)[:60]}") from None

    return render


def template_of(name: str | None, counter: Counter) -> tuple[Template, str | None]:
    """What makes a text of a chat, and what is assumed about it.

    Args:
        name: a template of LLaMA-Factory; "none" for the texts alone; None for the model's own.
    """
    if name == "none":
        return bare, None
    if name is not None:
        return llamafactory(name, bos=counter.bos, eos=counter.eos, where="--template"), None
    if counter.chat_template is not None:
        return of_model(counter.chat_template, bos=counter.bos, eos=counter.eos, where=counter.source), None
    return bare, "no chat template is known here, so its tokens are not counted; --template NAME adds them"
