"""Databases for the price history: SQLite, and a PostgreSQL server of its own where its programs are installed."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("sqlalchemy", reason="the extra finefit[history] is not installed")


def _programs() -> Path | None:
    """Folder of initdb and pg_ctl: on the path, or where Debian's packages put them."""
    found = shutil.which("initdb")
    if found:
        return Path(found).resolve().parent
    return max(Path("/usr/lib/postgresql").glob("*/bin"), default=None)


@pytest.fixture(scope="session")
def postgresql_url() -> Iterator[str]:
    """URL of a server started for these tests, on a socket in a folder of its own."""
    programs = _programs()
    if programs is None or not (programs / "initdb").exists():
        pytest.skip("PostgreSQL is not installed (Debian: apt install postgresql)")
    folder = Path(tempfile.mkdtemp(prefix="ff-pg-"))  # sockets need a short path
    user: int | None = None
    if os.geteuid() == 0:  # the server refuses to run as root
        try:
            user = pwd.getpwnam("postgres").pw_uid
        except KeyError:
            pytest.skip("PostgreSQL does not run as root, and there is no user postgres")
        os.chown(folder, user, -1)
    base = folder / "base"
    options = f"-k {folder} -c listen_addresses='' -c fsync=off"

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        log = folder / "out"
        with log.open("w") as out:
            done = subprocess.run(command, stdout=out, stderr=out, text=True, check=False, user=user, cwd=folder)
        return subprocess.CompletedProcess(command, done.returncode, log.read_text())

    made = run(str(programs / "initdb"), "-D", str(base), "-U", "finefit", "-A", "trust", "-E", "UTF8")
    if made.returncode:
        pytest.skip(f"PostgreSQL cannot be set up here: {made.stdout[-200:]}")
    started = run(str(programs / "pg_ctl"), "-D", str(base), "-w", "-l", str(folder / "log"), "-o", options, "start")
    if started.returncode:
        pytest.skip(f"PostgreSQL cannot be started here: {started.stdout[-200:]}")
    try:
        yield f"postgresql://finefit@/postgres?host={folder}"
    finally:
        run(str(programs / "pg_ctl"), "-D", str(base), "-m", "immediate", "stop")
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A fresh, empty database of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'prices.db'}"
    server: str = request.getfixturevalue("postgresql_url")
    from sqlalchemy import create_engine, text

    engine = create_engine(server.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:
        connection.execute(text("DROP SCHEMA public CASCADE"))
        connection.execute(text("CREATE SCHEMA public"))
    engine.dispose()
    return server
