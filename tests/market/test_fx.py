"""Exchange rates from a server, a file, at once and with a kill in the middle."""

from __future__ import annotations

import datetime as dt
import http.server
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from finefit.app import cli
from finefit.catalog import currency, user_rates
from finefit.catalog.currency import Rate
from finefit.errors import FinefitError, InputError, SourceUnreachable
from finefit.market import fx
from finefit.units import Money

TODAY = dt.date(2026, 12, 1)
# The form of the ECB's eurofxref-hist-90d.xml, with made-up rates that divide evenly.
ECB = """<?xml version="1.0" encoding="UTF-8"?>
<gesmes:Envelope xmlns:gesmes="http://www.gesmes.org/xml/2002-08-01"
 xmlns="http://www.ecb.int/vocabulary/2002-08-01/eurofxref"><gesmes:subject>Reference rates</gesmes:subject><Cube>
<Cube time="2026-11-30"><Cube currency="USD" rate="1.1000"/><Cube currency="JPY" rate="170.2"/>
<Cube currency="CNY" rate="7.4250"/></Cube>
<Cube time="2026-11-27"><Cube currency="USD" rate="1.25"/><Cube currency="CNY" rate="8.75"/></Cube>
</Cube></gesmes:Envelope>"""


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    currency.rates.cache_clear()
    yield
    currency.rates.cache_clear()


@pytest.fixture
def served() -> Iterator[Callable[..., str]]:
    """Starts a server of one page; its first answers may be errors, or late."""
    servers: list[http.server.ThreadingHTTPServer] = []

    def start(page: str, *, errors: int = 0, late: float = 0) -> str:
        left = [errors]

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                time.sleep(late)
                left[0] -= 1
                self.send_response(503 if left[0] >= 0 else 200)
                self.end_headers()
                self.wfile.write(page.encode())

            def log_message(self, *_: object) -> None:
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}/rates"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_the_central_bank_gives_one_rate_a_day(served: Callable[..., str]) -> None:
    found = fx.rates_from(fx.RateFile(served(ECB)), today=TODAY)
    assert [(rate.date, rate.rate) for rate in found] == [
        (dt.date(2026, 11, 30), Decimal("6.75")),
        (dt.date(2026, 11, 27), 7),
    ]
    assert {(rate.base, rate.quote) for rate in found} == {("USD", "CNY")}


def test_a_server_that_fails_is_asked_again_and_one_that_hangs_is_left(served: Callable[..., str]) -> None:
    assert len(fx.rates_from(fx.RateFile(served(ECB, errors=2)), today=TODAY, pause=0.01)) == 2
    with pytest.raises(SourceUnreachable):
        fx.rates_from(fx.RateFile(served(ECB, errors=3)), today=TODAY, pause=0.01)
    with pytest.raises(SourceUnreachable):
        fx.rates_from(fx.RateFile(served(ECB, late=2)), today=TODAY, timeout=0.2, retries=0)


def test_refreshed_rates_convert_by_their_day(served: Callable[..., str], capsys: pytest.CaptureFixture[str]) -> None:
    before = currency.convert(Money(Decimal(1), "USD"), "CNY", on=TODAY).amount
    assert cli.main(["rates", "refresh", "--file", served(ECB), "--as-of", "2026-12-01", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(row["date"], row["rate"], row["age_days"]) for row in found["rates"]][:2] == [
        ("2026-11-30", "6.7500", 1),
        ("2026-11-27", "7.0000", 4),
    ]
    assert not found["stale"]
    converted = currency.convert(Money(Decimal(1), "USD"), "CNY", on=TODAY)
    assert (converted.amount, converted.as_of) == (Decimal("6.75"), dt.date(2026, 11, 30))
    assert currency.convert(Money(Decimal(1), "USD"), "CNY", on=dt.date(2026, 11, 28)).amount == 7
    assert currency.convert(Money(Decimal(1), "USD"), "CNY", on=dt.date(2026, 9, 1)).amount == before


def test_a_source_that_fails_leaves_the_old_rates(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    currency.keep_rates([Rate(dt.date(2026, 11, 1), "USD", "CNY", Decimal("6.8"), "a bank", "")])
    assert cli.main(["rates", "refresh", "--file", "http://127.0.0.1:9/x", "--timeout", "2"]) == 3
    wrong = tmp_path / "rates.csv"
    wrong.write_text("date,base,quote,rate\n2026-11-30,CNY,USD,6.75\n", encoding="utf-8")
    assert cli.main(["rates", "refresh", "--file", str(wrong)]) == 2
    assert "which currency is the base" in capsys.readouterr().err
    assert [rate.rate for rate in currency.rates() if rate.source == "a bank"] == [Decimal("6.8")]


@pytest.mark.parametrize(
    "text",
    [
        "date,base,quote,rate\n2026-11-30,USD,CNY,6.75\n2026-11-30,USD,JPY,150\n",
        '[{"date": "2026-11-30", "base": "USD", "quote": "CNY", "rate": 6.75}]',
        '{"amount": 1.0, "base": "USD", "date": "2026-11-30", "rates": {"CNY": 6.75, "EUR": 0.9}}',
    ],
)
def test_forms_of_a_file(text: str, tmp_path: Path) -> None:
    path = tmp_path / "rates"
    path.write_text(text, encoding="utf-8")
    (rate,) = fx.RateFile(str(path)).fetch(1, TODAY)
    assert (rate.date, rate.base, rate.quote, rate.rate) == (dt.date(2026, 11, 30), "USD", "CNY", Decimal("6.75"))


@given(st.one_of(st.text(max_size=200), st.text(max_size=60).map(lambda cell: f"date,base,quote,rate\n{cell},USD,CNY")))
def test_any_text_is_rates_or_our_error(text: str) -> None:
    source = fx.RateFile("x")
    parse = source._ecb if text.startswith("<") else source._csv
    try:
        parse(text)
        source._json(text, TODAY)
    except FinefitError:
        pass


def test_a_damaged_file_is_told_with_its_path() -> None:
    user_rates.keep([dict(zip(user_rates.FIELDS, ("x", "USD", "CNY", "6.75", "", ""), strict=True))])
    with pytest.raises(InputError, match="damaged"):
        currency.rates()
    user_rates.rates_path().write_text("date,base\n1,2,3\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"rates\.csv"):
        currency.rates()


_WRITER = """
    import datetime as dt, sys
    from decimal import Decimal
    from finefit.catalog.currency import Rate, keep_rates
    start = int(sys.argv[1])
    print("ready", flush=True)
    for number in range(start, start + int(sys.argv[2])):
        day = dt.date(2020, 1, 1) + dt.timedelta(number)
        keep_rates([Rate(day, "USD", "CNY", Decimal("6.9"), f"writer {start}", "")])
"""


def writer(start: int, count: int) -> subprocess.Popen[bytes]:
    code = textwrap.dedent(_WRITER)
    return subprocess.Popen([sys.executable, "-c", code, str(start), str(count)], stdout=subprocess.PIPE)


@pytest.mark.skipif(sys.platform == "win32", reason="files are not locked there")
def test_two_writers_at_once_lose_and_double_nothing() -> None:
    both = [writer(0, 40), writer(1000, 40)]
    assert [process.wait(60) for process in both] == [0, 0]
    days = [row["date"] for row in user_rates.user_rows()]
    assert len(days) == len(set(days)) == 80


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
def test_a_kill_in_the_middle_leaves_whole_rows() -> None:
    process = writer(0, 2000)
    assert process.stdout is not None
    process.stdout.readline()
    while not user_rates.rates_path().exists() and process.poll() is None:
        time.sleep(0.01)
    time.sleep(0.1)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    days = [row["date"] for row in user_rates.user_rows()]
    first = dt.date(2020, 1, 1)
    assert days == [(first + dt.timedelta(number)).isoformat() for number in range(len(days))]
    assert len(currency.rates()) > len(days) > 0
    currency.keep_rates([Rate(TODAY, "USD", "CNY", Decimal("6.7"), "after it", "")])  # the dead one's lock is gone
    assert len(user_rates.user_rows()) == len(days) + 1
