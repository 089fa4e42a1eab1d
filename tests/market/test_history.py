"""The price history on real databases: migrations, refreshes at once, a kill in the middle, watches, the curve."""

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
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import func, select

from finefit.app import cli
from finefit.errors import FinefitError, InputError, SourceUnreachable
from finefit.market import schema, watch
from finefit.market.bundled import bundled_history
from finefit.market.file_provider import PriceFile
from finefit.market.prices import Observed, observed
from finefit.market.providers import GROUP, chosen, installed
from finefit.market.refresh import refresh
from finefit.market.series import series
from finefit.market.store import Store, open_store
from finefit.report.history_text import chart

TODAY = dt.date(2026, 11, 30)


def price(
    amount: str, provider: str = "somecloud", day: dt.date = TODAY, gpu: str = "H100", kind: str = "on-demand"
) -> Observed:
    found = observed(provider=provider, gpu=gpu, price=Decimal(amount), kind=kind, day=day, source="test")
    assert found is not None
    return found


def put(store: Store, *rows: Observed) -> None:
    with store.writing() as connection:
        store.add(connection, rows)


def count(store: Store, table: str = "prices") -> int:
    with store.engine.connect() as connection:
        return int(connection.scalar(select(func.count()).select_from(schema.metadata.tables[table])) or 0)


class Cloud:
    """A provider that gives, fails or hangs as told; ``tries`` counts."""

    tries = 0

    def __init__(
        self, rows: Iterable[Observed | None] = (), *, problem: Exception | None = None, sleep: float = 0
    ) -> None:
        self.name, self.rows, self.problem, self.sleep = "cloud", list(rows), problem, sleep

    def fetch(self, timeout: float, today: dt.date) -> Iterable[Observed | None]:
        self.tries += 1
        time.sleep(self.sleep)
        if self.problem:
            raise self.problem
        return self.rows


def test_migrations_make_the_tables_that_queries_are_written_on(url: str) -> None:
    with open_store(url) as store, store.engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), schema.metadata) == []
    with open_store(url):
        pass  # a second time there is nothing to do


def test_rows_of_an_older_version_survive_the_migration(url: str) -> None:
    from alembic import command
    from alembic.config import Config

    with open_store(url) as store:
        put(store, price("2.5"))
        with store.writing() as connection:
            config = Config()
            config.set_main_option("script_location", "finefit.market:migrations")
            config.attributes["connection"] = connection
            command.downgrade(config, "0001")
    with open_store(url) as store:
        assert [row.price.amount for row in store.history("h100-sxm-80")] == [Decimal("2.5")]
        assert watch.all_watches(store) == []


def test_of_one_offer_and_day_the_newer_price_counts(url: str) -> None:
    with open_store(url) as store:
        put(store, price("2.5"), price("3", "other"), price("2.4", day=TODAY - dt.timedelta(1)))
        put(store, price("2.6"))
        told = [(row.provider, row.day.day, row.price.amount) for row in store.history("h100-sxm-80")]
        assert told == [("somecloud", 29, Decimal("2.4")), ("other", 30, 3), ("somecloud", 30, Decimal("2.6"))]
        assert sorted(row.price.amount for row in store.newest(dt.date.max)) == [Decimal("2.6"), 3]


def test_a_failing_provider_leaves_the_others_and_the_old_rows(url: str) -> None:
    flaky, slow, odd = Cloud(problem=SourceUnreachable("down")), Cloud(sleep=5), Cloud(problem=KeyError("x"))
    with open_store(url) as store:
        put(store, price("9", "old"))
        looked = refresh(
            store,
            {
                "flaky": lambda: flaky,
                "slow": lambda: slow,
                "odd": lambda: odd,
                "good": lambda: Cloud([price("2"), None, price("3", "other")]),
            },
            today=TODAY,
            timeout=0.2,
            retries=1,
            pause=0,
        )
        assert [(each.provider, each.rows, each.skipped, bool(each.problem)) for each in looked] == [
            ("flaky", 0, 0, True), ("slow", 0, 0, True), ("odd", 0, 0, True), ("good", 2, 1, False),
        ]  # fmt: skip
        assert flaky.tries == 2 and all(isinstance(each.problem, FinefitError) for each in looked[:3])
        assert sorted(row.provider for row in store.newest(dt.date.max)) == ["old", "other", "somecloud"]
        assert count(store, "refreshes") == 1


def _csv(path: Path, rows: int) -> Path:
    lines = [f"cloud{number},RTX 4090,0.{number + 1000}" for number in range(rows)]
    path.write_text("provider,gpu,price_per_gpu_hour\n" + "\n".join(lines) + "\n")
    return path


def _start(url: str, file: Path, before: str = "") -> subprocess.Popen[str]:
    code = textwrap.dedent(before) + (
        "\nimport sys\nfrom finefit.app.cli import main\n"
        f"sys.exit(main(['offers', 'refresh', '--file', {str(file)!r}, '--db', {url!r}, '--as-of', '2026-11-30']))\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "LANG": "C"},
    )


def test_two_refreshes_at_once_lose_and_double_nothing(url: str, tmp_path: Path) -> None:
    file = _csv(tmp_path / "many.csv", 1500)
    running = [_start(url, file), _start(url, file)]
    ends = [each.communicate(timeout=120) for each in running]
    assert [each.returncode for each in running] == [0, 0], ends
    with open_store(url) as store:
        assert (count(store), count(store, "refreshes")) == (1500, 2)


_STOPS = """
    import time
    from finefit.market.store import Store
    written = Store.add
    def add(self, connection, rows):
        written(self, connection, rows)
        print("written", flush=True)
        time.sleep(600)
    Store.add = add
"""


def test_a_kill_in_the_middle_loses_and_doubles_nothing(url: str, tmp_path: Path) -> None:
    file = _csv(tmp_path / "many.csv", 1500)
    with open_store(url) as store:
        put(store, price("9", "old"))
    killed = _start(url, file, _STOPS)
    assert killed.stdout is not None and killed.stdout.readline() == "written\n"
    killed.send_signal(signal.SIGKILL)
    killed.communicate(timeout=60)
    with open_store(url) as store:
        assert [row.provider for row in store.newest(dt.date.max)] == ["old"]
    again = _start(url, file)
    again.communicate(timeout=120)
    with open_store(url) as store:
        assert (again.returncode, count(store), count(store, "refreshes")) == (0, 1501, 1)


def test_watches_are_told_once_and_again_when_the_price_moves(url: str) -> None:
    with open_store(url) as store:
        kept = watch.add(store, "H100 < 2.5 USD")
        assert watch.add(store, "h100 < $2.50").id == kept.id
        watch.add(store, "RTX 4090 spot < 0.30 USD")
        put(
            store,
            price("2.49"),
            price("0.29", gpu="RTX 4090"),
            price("1", day=TODAY - dt.timedelta(60), provider="stale"),
        )
        met = watch.check(store, on=TODAY)
        assert [(each.watch.id, each.price.micros, each.new) for each in met] == [(kept.id, 2_490_000, True)]
        watch.told(store, met)
        assert [each.new for each in watch.check(store, on=TODAY)] == [False]
        put(store, price("2.3", "cheaper"))
        assert [(each.price.provider, each.new) for each in watch.check(store, on=TODAY)] == [("cheaper", True)]
        watch.remove(store, kept.id)
        assert watch.check(store, on=TODAY) == []
        with pytest.raises(InputError, match="no watch"):
            watch.remove(store, kept.id)


@pytest.mark.parametrize("condition", ["H100", "H100 < much", "H100 < 2", "< 2 USD", "H100 < 0USD", "RTX 6000 < 1 USD"])
def test_what_is_no_condition(condition: str, tmp_path: Path) -> None:
    with open_store(f"sqlite:///{tmp_path / 'p.db'}") as store, pytest.raises(InputError):
        watch.add(store, condition)


def test_the_command_tells_and_notifies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    db = ["--db", f"sqlite:///{tmp_path / 'p.db'}", "--lang", "en", "--as-of", "2026-11-30"]
    heard: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            heard.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    file = tmp_path / "mine.json"
    file.write_text(
        json.dumps([{"gpu": "H100", "price_per_gpu_hour": 2.4}, {"gpu": "no such card", "price_per_gpu_hour": 1}])
    )
    try:
        assert cli.main(["watch", "add", "H100 < 2.5 USD", *db]) == 0
        assert cli.main(["offers", "refresh", "--file", str(file), *db]) == 0
        assert "1 prices, 1 of unknown cards" in capsys.readouterr().out
        notify = ["--notify", f"json://127.0.0.1:{server.server_address[1]}/"]
        assert cli.main(["watch", "check", *notify, *db]) == 0
        assert "H100 < 2.5 USD: 2.40 USD at mine" in capsys.readouterr().out
        assert cli.main(["watch", "check", *notify, *db]) == 0 and capsys.readouterr().out == ""
    finally:
        server.shutdown()
    assert len(heard) == 1 and "2.40 USD" in heard[0]
    assert cli.main(["offers", "--gpu", "H100", "--refreshed", db[1], "--limit", "500", *db[2:]]) == 0
    assert " mine " in capsys.readouterr().out
    model = ["llama-3-8b", "--method", "lora", "--seq", "512", "--samples", "9", "--mean-length", "99", "--epochs", "1"]
    for command in ("plan", "cost"):  # the median of what is bundled, and of that with a much cheaper newer offer
        dearer, cheaper = (
            Decimal(json.loads(shown)["price"]["amount"])
            for shown in (
                _printed(capsys, [command, *model, "--gpu", "2x H100", "--json", *more])
                for more in ([], ["--refreshed", *db[:2]])
            )
        )
        assert cheaper < dearer
    assert cli.main(["plan", *model, "--gpu", "H100", "--db", db[1]]) == 2
    assert "--refreshed" in capsys.readouterr().err
    assert cli.main(["offers", "history", "H100", *db]) == 0
    shown = capsys.readouterr().out
    assert "2026-07-05 to 2026-11-30" in shown and "┤" in shown


def test_a_url_that_does_not_answer_is_3_and_a_wrong_file_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    db = ["--db", f"sqlite:///{tmp_path / 'p.db'}", "--lang", "en"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("finefit.market.attempts.time.sleep", lambda _: None)
        assert cli.main(["offers", "refresh", "--file", "http://127.0.0.1:9/p.csv", "--timeout", "5", *db]) == 3
    assert capsys.readouterr().err.count("\n") == 1
    assert cli.main(["offers", "refresh", "--file", str(tmp_path / "none.csv"), *db]) == 2
    assert cli.main(["offers", "refresh", "--provider", "nobody", *db]) == 2
    assert cli.main(["watch", "list", "--db", "mysql://x/y"]) == 2
    assert cli.main(["watch", "list", "--db", "postgresql://x@127.0.0.1:9/y"]) == 3


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("gpu,price_per_gpu_hour\nH100,free\n", "row 1"),
        ("gpu,price_per_gpu_hour\nH100,-1\n", "not the price"),
        ("gpu\nH100\n", "missing"),
        ("[1]", "list of prices"),
        ("[{", "not JSON"),
        ("gpu,price_per_gpu_hour,kind\nH100,1,free\n", "kind of offer"),
        ("gpu,price_per_gpu_hour,currency\nH100,1,EUR\n", "currency"),
    ],
)
def test_rows_that_are_no_prices(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "p.csv"
    file.write_text(text)
    with pytest.raises(InputError, match=words):
        list(PriceFile(str(file)).fetch(1, TODAY))


@given(text=st.text(max_size=60))
def test_any_text_is_prices_or_our_error(text: str) -> None:
    class Text(PriceFile):
        def _file(self) -> str:
            return text

    try:
        assert all(row is None or row.micros >= 0 for row in Text("p.csv").fetch(1, TODAY))
    except InputError as error:
        assert error.where and error.fix


def test_gpuhunt_is_a_plug_in_and_reads_a_catalogue_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("gpuhunt", reason="the extra finefit[live] is not installed")
    assert "gpuhunt" in installed() and GROUP == "finefit.providers"
    (tmp_path / "aws.csv").write_text(
        "instance_name,location,price,cpu,memory,gpu_count,gpu_name,gpu_memory,spot,disk_size,gpu_vendor,flags,cpu_arch,"
        "provider_data\n"
        "p5.48xlarge,us-east-1,55.04,192,2048,8,H100,80,False,,nvidia,,x86,{}\n"
        "p5.48xlarge,us-east-1,20.00,192,2048,8,H100,80,True,,nvidia,,x86,{}\n"
        "m5.large,us-east-1,0.096,2,8,0,,,False,,,,x86,{}\n"
    )
    monkeypatch.setenv("GPUHUNT_CATALOG_DIR", str(tmp_path))
    rows = list(chosen(["gpuhunt"])["gpuhunt"]().fetch(5, TODAY))
    told = sorted((row.kind, row.price.amount, row.min_gpus, row.region) for row in rows if row)
    assert told == [("on-demand", Decimal("6.88"), 8, "us-east-1"), ("spot", Decimal("2.5"), 8, "us-east-1")]


def test_gpuhunt_without_its_catalogue_is_an_error_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("gpuhunt", reason="the extra finefit[live] is not installed")
    monkeypatch.setenv("GPUHUNT_CATALOG_DIR", str(tmp_path / "nowhere"))
    with pytest.raises(SourceUnreachable, match="gpuhunt gave no prices"):
        list(chosen(["gpuhunt"])["gpuhunt"]().fetch(5, TODAY))


def test_gpuhunt_logs_no_tracebacks(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """It logs one for each cloud that does not answer; its error is enough."""
    pytest.importorskip("gpuhunt", reason="the extra finefit[live] is not installed")

    def refused(*_: object, **__: object) -> None:
        raise OSError("no network")

    monkeypatch.delenv("GPUHUNT_CATALOG_DIR", raising=False)
    monkeypatch.setattr("urllib.request.urlopen", refused)
    with pytest.raises(SourceUnreachable, match="gpuhunt gave no prices"):
        list(chosen(["gpuhunt"])["gpuhunt"]().fetch(5, TODAY))
    assert caplog.records == [] and capsys.readouterr().err == ""


def test_the_bundled_history_follows_the_published_medians() -> None:
    """gpurentalprices.com: on-demand median of the H100 SXM 3.27 USD in August 2026, of the A100 80 GB 2.05."""
    for gpu, expected in (("h100-sxm-80", 3.27), ("a100-sxm-80", 2.05)):
        found = series(gpu, gpu, bundled_history(gpu), kind="on-demand", currency="USD", on=TODAY)
        august = [float(point.median) for point in found.points if point.day.month == 8]
        assert sum(august) / len(august) == pytest.approx(expected, rel=0.12)
        assert found.points[0].day == dt.date(2026, 7, 5) and found.points[-1].day == dt.date(2026, 8, 22)


@given(values=st.lists(st.decimals("0.01", "100", places=2), min_size=1, max_size=200), cells=st.integers(20, 120))
def test_the_curve_is_as_wide_as_told_and_reaches_its_top(values: list[Decimal], cells: int) -> None:
    lines = chart(values, cells, rows=10)
    assert len(lines) == 10 and all(len(line) <= cells for line in lines)
    if len(values) <= 10:
        highest = max(range(len(values)), key=lambda index: values[index])
        assert lines[0].split("┤")[1][highest] == "█"


def _printed(capsys: pytest.CaptureFixture[str], command: list[str]) -> str:
    assert cli.main(command) in (0, 1)
    return capsys.readouterr().out


def test_an_empty_history_prices_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = ["gpt2", "--method", "full", "--seq", "128", "--gpu", "RTX 4090"]
    assert cli.main(["cost", *run, "--refreshed", "--db", f"sqlite:///{tmp_path / 'none.db'}"]) == 2
    assert "finefit offers refresh" in capsys.readouterr().err
