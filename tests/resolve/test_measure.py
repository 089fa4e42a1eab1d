"""Tokens of data files: templates as the tools write them, counts as the tokenizer gives them."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest

from finefit.errors import InputError
from finefit.formats.data_shapes import ASSISTANT, SYSTEM, USER, BadRow, Turn
from finefit.resolve import file_lengths
from finefit.resolve.chat_templates import bare, llamafactory, of_model
from finefit.resolve.measure import measure
from finefit.resolve.notes import Notes
from finefit.resolve.token_count import counter_of

_TURNS = (Turn(USER, "How are you"), Turn(ASSISTANT, "I am fine!"))


def _written(name, turns=_TURNS):
    return llamafactory(name, bos="<s>", eos="</s>", where="--template")(turns)


def test_templates_as_published():
    # github.com/meta-llama/llama-models models/llama3_1/prompt_format.md; Qwen2.5's tokenizer_config.json;
    # mistral.ai "Tokenization" (V1 and later differ in spaces); ai.google.dev/gemma/docs/core/prompt-structure
    assert _written("llama3") == (
        "<s><|start_header_id|>user<|end_header_id|>\n\nHow are you<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\nI am fine!<|eot_id|>"
    )
    assert _written("qwen") == (
        "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n"
        "<|im_start|>user\nHow are you<|im_end|>\n<|im_start|>assistant\nI am fine!<|im_end|>\n"
    )
    assert _written("mistral") == "<s>[INST] How are you[/INST] I am fine!</s>"
    assert _written("gemma", (Turn(SYSTEM, "s"), *_TURNS)) == (
        "<s><start_of_turn>user\ns\n\nHow are you<end_of_turn>\n<start_of_turn>model\nI am fine!<end_of_turn>\n"
    )
    assert _written("default") == "Human: How are you</s>\nAssistant:I am fine!</s>\n"


def test_a_reasoning_template_adds_an_empty_thought_where_there_is_none():
    assert "assistant\n<think>\n\n</think>\n\nI am fine!" in _written("qwen3")
    assert _written("qwen3", (_TURNS[0], Turn(ASSISTANT, "<think>\nx\n</think>\n\ny"))).count("<think>") == 1


def test_an_unknown_template_names_near_ones():
    with pytest.raises(InputError) as caught:
        _written("llama33")
    assert "llama3" in caught.value.fix


def test_the_models_own_template_runs_in_a_sandbox():
    pytest.importorskip("jinja2", reason="needs finefit[data]")
    chatml = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    render = of_model(chatml, bos="", eos="", where="x")
    assert render(_TURNS) == _written("chatml")
    for attack in ("{{ messages.__class__.__mro__ }}", "{{ ''.__class__ }}", "{{ raise_exception('no') }}"):
        with suppress(BadRow):
            assert of_model(attack, bos="", eos="", where="x")(_TURNS) == ""
    with pytest.raises(InputError):
        of_model("{% for %}", bos="", eos="", where="x")


@pytest.fixture
def model(tmp_path):
    """A folder with a tokenizer of words and ChatML."""
    tokenizers = pytest.importorskip("tokenizers", reason="needs finefit[data]")
    words = ["[UNK]", "user", "assistant", "a", "b", "c"]
    made = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]")
    )
    made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    made.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    folder = tmp_path / "model"
    folder.mkdir()
    made.save(str(folder / "tokenizer.json"))
    return folder


def test_tokens_are_the_tokenizers_own(model, tmp_path):
    rows = [
        {"messages": [{"role": "user", "content": "a " * n}, {"role": "assistant", "content": "b"}]} for n in (1, 5)
    ]
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)) + "\n3\n", "utf-8")
    counter = counter_of(str(model))
    assert counter.exact
    found = measure(path, counter, llamafactory("chatml", bos="", eos="", where=""), cutoff=10)
    # <|im_start|> user a... <|im_end|> <|im_start|> assistant b <|im_end|>: 7 tokens and the a's
    assert list(found.lengths) == [8, 12]
    assert (found.tokens, found.cut_tokens) == (20, 18)
    assert (found.bad, found.named) == (1, ((3, "not an object"),))
    assert list(found.places) == [1, 2]


def test_a_text_ends_with_a_token_of_its_own_and_a_pair_is_as_long_as_its_longer_answer(model, tmp_path):
    counter = counter_of(str(model))
    text, pairs = tmp_path / "text.jsonl", tmp_path / "pairs.jsonl"
    text.write_text('{"text": "a b c"}', "utf-8")
    pairs.write_text('{"prompt": "a", "chosen": "b", "rejected": "b c"}', "utf-8")
    assert list(measure(text, counter, bare).lengths) == [4]
    found = measure(pairs, counter, bare)
    assert (list(found.lengths), found.tokens, found.rows_per_sample) == ([3], 5, 2)


def test_a_plan_takes_exact_lengths_from_the_models_tokenizer(model, tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a b c"}\n{"text": "a b c a b c"}', "utf-8")
    found = file_lengths(path, Notes(), model=str(model), cutoff=5)
    assert (found.samples, found.tokens, found.mean, found.longest) == (2, 9, 4.5, 5)


def test_a_file_without_a_usable_row_is_one_error(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("3\n4\n", "utf-8")
    with pytest.raises(InputError, match=r"no usable samples.*line 1: not an object"):
        measure(path, counter_of(""), bare)


def test_a_stated_tokenizer_that_is_none(tmp_path):
    pytest.importorskip("tokenizers", reason="needs finefit[data]")
    (tmp_path / "tokenizer.json").write_text("{}", "utf-8")
    with pytest.raises(InputError):
        counter_of("", tmp_path)
    with pytest.raises(InputError):
        counter_of("", tmp_path / "none")
