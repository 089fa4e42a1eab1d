"""A Hub on this machine: config and safetensors headers by ranges, and one sentence for each way not to get them."""

from __future__ import annotations

import json
import struct
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from finefit.app.cli import main
from finefit.errors import HubUnreachable, UnknownModel
from finefit.resolve import http
from finefit.resolve.hub import remote_tensors
from finefit.resolve.models import resolve_model

CONFIG = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "vocab_size": 100,
    "torch_dtype": "bfloat16",
}


def safetensors(tensors: dict[str, tuple[str, list[int], int]], pad: int = 0) -> bytes:
    """A file of zeros in the published layout: length, JSON, data."""
    header, at = {}, 0
    for name, (dtype, shape, nbytes) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + nbytes]}
        at += nbytes
    text = json.dumps(header).encode() + b" " * pad
    return struct.pack("<Q", len(text)) + text + bytes(at)


class Hub:
    """Files by path, and what was asked for."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.answers: dict[str, tuple[int, dict[str, str]]] = {}
        self.asked: list[tuple[str, str | None, str | None]] = []
        self.slow = 0.0
        self.ranges = True
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                part = self.headers.get("Range")
                hub.asked.append((self.path, part, self.headers.get("Authorization")))
                time.sleep(hub.slow)
                status, headers = hub.answers.get(self.path, (200, {}))
                body = hub.files.get(self.path, b"")
                if self.path not in hub.files and status == 200:
                    status, headers = 404, {"X-Error-Code": "EntryNotFound"}
                if status == 200 and part and hub.ranges:
                    first, last = part.removeprefix("bytes=").split("-")
                    body, status = body[int(first) : int(last) + 1], 206
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def hub(tmp_path, monkeypatch) -> Iterator[Hub]:
    made = Hub()
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_TOKEN", "USE_MODELSCOPE_HUB"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_ENDPOINT", made.url)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hf"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    yield made
    made.server.shutdown()
    made.server.server_close()


def put(hub: Hub, name: str, content: object, repo: str = "me/mine") -> None:
    hub.files[f"/{repo}/resolve/main/{name}"] = content if isinstance(content, bytes) else json.dumps(content).encode()


def test_a_config_is_fetched_once_and_its_origin_said(hub: Hub) -> None:
    put(hub, "config.json", {**CONFIG, "quantization_config": {"quant_method": "gptq", "bits": 4}})
    model = resolve_model("me/mine")
    assert (model.hidden, model.checkpoint_quant, model.name) == (64, "gptq", "me/mine")
    assert model.origin == f"me/mine ({hub.url.removeprefix('http://')})"
    assert [path for path, _, _ in hub.asked] == ["/me/mine/resolve/main/config.json"]
    assert resolve_model("me/mine") == model
    assert len(hub.asked) == 1


def test_a_catalogue_name_asks_nobody(hub: Hub) -> None:
    assert resolve_model("Qwen/Qwen2.5-7B").origin == "catalogue"
    for name in ("no such model", "nowhere", "a/b/c/d", "../x/y", "me/..x"):
        with pytest.raises(UnknownModel if "/" not in name else Exception):
            resolve_model(name)
    assert hub.asked == []


@pytest.mark.parametrize("ranges", [True, False])
def test_headers_come_by_ranges_and_no_weight_does(hub: Hub, ranges: bool) -> None:
    hub.ranges = ranges
    many = {f"t{number}": ("BF16", [64], 128) for number in range(2_500)}  # a header of more than 100,000 bytes
    put(hub, "model.safetensors.index.json", {"weight_map": {"a": "a.safetensors", "t1": "b.safetensors"}})
    put(hub, "a.safetensors", safetensors({"a": ("F32", [4, 4], 64)}))
    put(hub, "b.safetensors", safetensors(many))
    found = remote_tensors("me/mine")
    assert len(found) == 2_501
    assert (found["a"].dtype, found["a"].elements, found["t7"].bytes) == ("F32", 16, 128)
    asked = [part for path, part, _ in hub.asked if path.endswith("b.safetensors")]
    size = struct.unpack("<Q", hub.files["/me/mine/resolve/main/b.safetensors"][:8])[0]
    assert asked == ["bytes=0-99999", f"bytes=8-{size + 7}"]


def test_what_the_config_leaves_out_comes_from_sidecar_and_headers(hub: Hub) -> None:
    put(hub, "config.json", {key: value for key, value in CONFIG.items() if key != "torch_dtype"})
    put(hub, "quantize_config.json", {"bits": 4, "group_size": 128})
    put(hub, "model.safetensors", safetensors({"w": ("F16", [8, 8], 128), "n": ("F32", [2], 8)}))
    model = resolve_model("me/mine")
    assert (model.checkpoint_quant, model.checkpoint_dtype.value, model.dtype_stated) == ("gptq", "fp16", True)


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        ((401, {"X-Error-Code": "GatedRepo"}), "is gated"),
        ((403, {}), "is gated"),
        ((401, {"X-Error-Code": "RepoNotFound"}), "neither in the catalogue nor on"),
        ((404, {"X-Error-Code": "RepoNotFound"}), "neither in the catalogue nor on"),
        ((404, {}), "neither in the catalogue nor on"),
    ],
)
def test_a_refusal_is_one_sentence(hub: Hub, answer: tuple[int, dict[str, str]], what: str, capsys: Any) -> None:
    hub.answers["/me/mine/resolve/main/config.json"] = answer
    with pytest.raises(UnknownModel, match=what) as caught:
        resolve_model("me/mine", where="--model")
    assert (caught.value.where, caught.value.exit_code) == ("--model", 2)
    assert main(["memory", "me/mine"]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_hub_in_trouble_is_told_from_a_model_that_is_not_there(hub: Hub, status: int) -> None:
    hub.answers["/me/mine/resolve/main/config.json"] = (status, {})
    with pytest.raises(HubUnreachable, match=f"HTTP {status}") as caught:
        resolve_model("me/mine")
    assert caught.value.exit_code == 3


def test_a_slow_hub_is_given_up(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_TIMEOUT", 0.1)
    hub.slow = 0.5
    with pytest.raises(HubUnreachable, match="time-out"):
        resolve_model("me/mine")


def test_no_hub_at_all(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    with pytest.raises(HubUnreachable, match="no connection"):
        resolve_model("me/mine")
    monkeypatch.setenv("HF_ENDPOINT", "file:///etc")
    with pytest.raises(HubUnreachable, match="no connection"):
        resolve_model("me/mine")


@pytest.mark.parametrize("variable", ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
def test_offline_asks_nobody(hub: Hub, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "1")
    with pytest.raises(UnknownModel, match="not downloaded here"):
        resolve_model("me/mine")
    assert hub.asked == []


def test_a_token_goes_to_the_hub_and_not_where_it_redirects(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret")
    hub.answers["/me/mine/resolve/main/config.json"] = (302, {"Location": f"{hub.url}/cdn/config.json"})
    hub.files["/cdn/config.json"] = json.dumps({**CONFIG, "quantization_config": {"quant_method": "fp8"}}).encode()
    assert resolve_model("me/mine").hidden == 64
    assert [token for _, _, token in hub.asked] == ["Bearer secret", None]


def test_a_redirect_off_the_web_is_not_followed(hub: Hub) -> None:
    hub.answers["/me/mine/resolve/main/config.json"] = (302, {"Location": "ftp://127.0.0.1/x"})
    with pytest.raises(HubUnreachable):
        resolve_model("me/mine")


@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff", b"[" * 100_000])
def test_a_damaged_config_is_one_sentence(hub: Hub, content: bytes) -> None:
    put(hub, "config.json", content)
    with pytest.raises(UnknownModel, match=r"no config\.json that can be read"):
        resolve_model("me/mine")


def test_an_endless_config_is_cut(hub: Hub) -> None:
    put(hub, "config.json", b" " * 6_000_000)
    with pytest.raises(HubUnreachable, match="more data"):
        resolve_model("me/mine")


def test_modelscope_is_asked_where_it_is_chosen(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USE_MODELSCOPE_HUB", "1")
    monkeypatch.setenv("MODELSCOPE_DOMAIN", hub.url)
    path = "/api/v1/models/me/mine/repo?Revision=master&FilePath=config.json"
    hub.files[path] = json.dumps({**CONFIG, "quantization_config": {"quant_method": "awq"}}).encode()
    assert resolve_model("me/mine").checkpoint_quant == "awq"
    assert [asked for asked, _, _ in hub.asked] == [path]


@pytest.mark.parametrize("folder", ["models/me/mi.ne", "models/me/mi___ne", "me/mi___ne"])
def test_the_cache_of_modelscope_is_read(tmp_path: Any, monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    monkeypatch.setenv("MODELSCOPE_CACHE", str(tmp_path))
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / "config.json").write_text(json.dumps(CONFIG))
    assert resolve_model("me/mi.ne").hidden == 64
