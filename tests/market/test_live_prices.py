"""Live prices over HTTP: gpuhunt's published catalogues and a list of the user's, from a server that may fail."""

from __future__ import annotations

import http.server
import io
import json
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from finefit.app import cli
from finefit.market.store import open_store

# The columns of gpuhunt 0.1.34 (``_internal/storage.py``); prices are of the whole machine.
_COLUMNS = (
    "instance_name,location,price,cpu,memory,gpu_count,gpu_name,gpu_memory,spot,disk_size,gpu_vendor,flags,cpu_arch,"
    "provider_data\n"
)
_AWS = (
    _COLUMNS
    + "p5.48xlarge,us-east-1,55.04,192,2048,8,H100,80,False,,nvidia,,x86,{}\n"
    + "p5.48xlarge,us-east-1,20.00,192,2048,8,H100,80,True,,nvidia,,x86,{}\n"
    + "inf2.xlarge,us-east-1,0.76,4,16,1,Inferentia2,32,False,,,,x86,{}\n"
)
_LAMBDA = _COLUMNS + "gpu_1x_a10,us-west-1,0.75,30,200,1,A10,24,False,1400,nvidia,,x86,{}\n"


class Server:
    """Pages by path; each path may answer 503 a few times first; everything else is 404, as from S3."""

    def __init__(self, pages: dict[str, bytes], failures: int = 0) -> None:
        self.pages, self.left = pages, dict.fromkeys(pages, failures)
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                page = outer.pages.get(self.path)
                failing = outer.left.get(self.path, 0) > 0
                if failing:
                    outer.left[self.path] -= 1
                self.send_response(404 if page is None else 503 if failing else 200)
                self.end_headers()
                if page is not None and not failing:
                    self.wfile.write(page)

            def log_message(self, *_: object) -> None: ...

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http.server_port}"


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server({})
    yield made
    made.http.shutdown()
    made.http.server_close()


def _zip(name: str, text: str) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr(name, text)
    return packed.getvalue()


def _kept(db: str) -> list[tuple[str, str, str, str]]:
    import datetime as dt

    with open_store(db) as store:
        return sorted(
            (row.provider, row.gpu_id, row.kind, f"{row.price.amount:f}") for row in store.newest(dt.date.max)
        )


def test_gpuhunts_published_catalogues(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each cloud has its own version and archive; those that do not answer hold nothing back."""
    pytest.importorskip("gpuhunt", reason="the extra finefit[live] is not installed")
    for cloud, text in (("aws", _AWS), ("lambdalabs", _LAMBDA)):
        server.pages[f"/v3/{cloud}/version"] = b"20261130-1\n"
        server.pages[f"/v3/{cloud}/20261130-1/catalog.zip"] = _zip(f"{cloud}.csv", text)
    monkeypatch.delenv("GPUHUNT_CATALOG_DIR", raising=False)
    monkeypatch.setenv("GPUHUNT_CATALOG_URL", f"{server.url}/v3")
    db = f"sqlite:///{tmp_path / 'p.db'}"
    assert cli.main(["offers", "refresh", "--provider", "gpuhunt", "--db", db, "--as-of", "2026-11-30", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["providers"]
    assert [(each["rows"], each["skipped"], each["problem"]) for each in told] == [(3, 1, None)]
    assert _kept(db) == [
        ("aws", "h100-sxm-80", "on-demand", "6.88"),
        ("aws", "h100-sxm-80", "spot", "2.5"),
        ("lambda", "a10", "on-demand", "0.75"),
    ]


def test_a_list_at_a_url_is_asked_for_again(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("finefit.market.attempts.time.sleep", lambda _: None)
    server.pages["/mine.csv"] = b"provider,gpu,price_per_gpu_hour,currency\nmine,RTX 4090,1.5,CNY\n"
    server.left["/mine.csv"] = 2
    db = f"sqlite:///{tmp_path / 'p.db'}"
    asked = ["offers", "refresh", "--file", f"{server.url}/mine.csv", "--db", db, "--as-of", "2026-11-30"]
    assert cli.main(asked) == 0
    assert _kept(db) == [("mine", "rtx-4090", "on-demand", "1.5")]
    server.left["/mine.csv"] = 3  # one more than there are attempts
    assert cli.main(asked) == 3
    assert _kept(db) == [("mine", "rtx-4090", "on-demand", "1.5")]
    assert capsys.readouterr().err.startswith("error: ")
