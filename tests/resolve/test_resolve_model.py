"""From text to a model: path, catalogue name, downloaded Hub id."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from finefit.errors import FinefitError, InputError, NotModelled, UnknownModel
from finefit.resolve.models import resolve_model

CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "intermediate_size": 11008,
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
    "torch_dtype": "float16",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    home = tmp_path / "my-llama"
    home.mkdir()
    (home / "config.json").write_text(json.dumps(CONFIG))
    return home


def test_folder_file_and_name_give_the_same_model(folder: Path) -> None:
    by_folder, by_file = resolve_model(str(folder)), resolve_model(str(folder / "config.json"))
    assert by_folder == by_file
    assert (by_file.name, by_file.origin) == ("my-llama", str(folder / "config.json"))
    by_name = resolve_model("NousResearch/Llama-2-7b-hf")
    assert replace(by_file, name=by_name.name, origin="catalogue") == by_name


def test_a_relative_folder_is_found(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    assert resolve_model("my-llama").hidden == 4096


def test_a_folder_without_config_does_not_hide_a_catalogue_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gpt2").mkdir()
    monkeypatch.chdir(tmp_path)
    assert resolve_model("gpt2").family == "gpt2"
    with pytest.raises(InputError, match=r"holds no config\.json"):
        resolve_model("./gpt2")


def test_a_byte_order_mark_is_no_obstacle(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_bytes(b"\xef\xbb\xbf" + json.dumps(CONFIG).encode())
    assert resolve_model(str(file)).layers == 32


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"{", "not JSON"),
        (b"[1]", "not a JSON object"),
        (b"\xff\xfe\x00", "cannot be read"),
        (b"[" * 100_000, "not JSON"),
    ],
)
def test_damaged_files_are_named(tmp_path: Path, content: bytes, what: str) -> None:
    file = tmp_path / "config.json"
    file.write_bytes(content)
    with pytest.raises(InputError, match=what) as caught:
        resolve_model(str(file))
    assert caught.value.where == str(file)


@pytest.mark.parametrize("variable", ["HF_HOME", "HF_HUB_CACHE", "XDG_CACHE_HOME"])
def test_a_downloaded_repository_is_read_at_its_main_revision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    for name in ("HF_HOME", "HF_HUB_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, str(tmp_path))
    hub = {"HF_HOME": tmp_path / "hub", "HF_HUB_CACHE": tmp_path, "XDG_CACHE_HOME": tmp_path / "huggingface" / "hub"}
    repo = hub[variable] / "models--me--mine"
    for commit, hidden in (("a" * 40, 1024), ("b" * 40, 2048)):
        (repo / "snapshots" / commit).mkdir(parents=True)
        (repo / "snapshots" / commit / "config.json").write_text(json.dumps({**CONFIG, "hidden_size": hidden}))
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text("a" * 40)
    model = resolve_model("me/mine")
    assert (model.hidden, model.name, model.origin) == (1024, "me/mine", "me/mine@aaaaaaa (Hub cache)")


def test_a_hub_id_that_is_nowhere_here_gets_one_sentence_and_the_nearest_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(UnknownModel, match="not in the catalogue and not downloaded") as caught:
        resolve_model("me/Llama-3.1-8B-Instruct", where="--model")
    assert caught.value.where == "--model"
    assert "meta-llama/Llama-3.1-8B-Instruct" in str(caught.value.fix)


def test_a_known_model_that_is_not_modelled_keeps_its_place() -> None:
    with pytest.raises(NotModelled) as caught:
        resolve_model("databricks/dbrx-instruct", where="train.yaml:2")
    assert caught.value.where == "train.yaml:2"


@pytest.mark.parametrize(
    "text", ["", "  ", "/nowhere/config.json", "./nothing", "~nobody-here/x", "a" * 5000 + ".json", "x\0y.json"]
)
def test_paths_that_are_not_there(text: str) -> None:
    with pytest.raises(InputError):
        resolve_model(text)


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=20))
def test_any_text_gives_one_of_our_errors(text: str) -> None:
    with pytest.raises(FinefitError):
        resolve_model("no such model " + text)
