"""The database of observed prices: SQLite by default, PostgreSQL by URL.

Every change is one transaction. SQLite takes its write lock at the beginning of it, PostgreSQL an advisory lock for
migrations, so that two processes at once wait for each other and neither loses or doubles a row.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from finefit.errors import InputError, SourceUnreachable
from finefit.market.prices import Observed

try:
    import platformdirs
    from alembic import command
    from alembic.config import Config
    from sqlalchemy import Connection, Engine, create_engine, event, func, insert, select
    from sqlalchemy.dialects import postgresql, sqlite
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError

    from finefit.market import schema
except ImportError as missing:
    raise InputError(
        f"the price history needs {missing.name}", where="--db", fix='pip install "finefit[history]"'
    ) from missing

_WAIT_SECONDS = 60  # for another process that writes
_LOCK = 0x66696E65  # "fine": the advisory lock of migrations
_BATCH = 500  # rows a statement; SQLite takes 32,766 values in one


class Store:
    """An open history. Use as ``with open_store(url) as store``."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """One transaction that writes: all of it is kept, or nothing."""
        with self._told(), self.engine.begin() as connection:
            yield connection

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except SQLAlchemyError as problem:
            raise SourceUnreachable(
                f"the price history does not answer: {str(problem).splitlines()[0]}"[:300],
                where=self.engine.url.render_as_string(hide_password=True),
                fix="check that the database runs and that the URL is right",
            ) from problem

    def add(self, connection: Connection, rows: Iterable[Observed]) -> int:
        """Keep prices; of the same offer and day the newer replaces the older. Rows written."""
        found = {self._key(row): row for row in rows}
        dialect: Any = postgresql if self.engine.dialect.name == "postgresql" else sqlite
        values = [{column: getattr(row, column) for column in Observed.__slots__} for row in found.values()]
        # In the order of the key: two processes that lock the same rows do so in the same order, without a deadlock.
        values.sort(key=lambda row: tuple(str(row[column]) for column in schema.KEY))
        for start in range(0, len(values), _BATCH):
            statement = dialect.insert(schema.prices).values(values[start : start + _BATCH])
            new = {column: statement.excluded[column] for column in ("micros", "source", "licence")}
            connection.execute(statement.on_conflict_do_update(index_elements=list(schema.KEY), set_=new))
        return len(values)

    def note(self, connection: Connection, provider: str, rows: int, skipped: int) -> None:
        """Record a finished look at a provider."""
        now = dt.datetime.now(dt.UTC)
        connection.execute(insert(schema.refreshes).values(provider=provider, at=now, rows=rows, skipped=skipped))

    def history(self, gpu_id: str, *, kinds: tuple[str, ...] = (), since: dt.date | None = None) -> list[Observed]:
        """Prices of a card, oldest first."""
        table = schema.prices
        query = select(table).where(table.c.gpu_id == gpu_id).order_by(table.c.day, table.c.provider, table.c.id)
        if kinds:
            query = query.where(table.c.kind.in_(kinds))
        if since is not None:
            query = query.where(table.c.day >= since)
        return self._observed(query)

    def newest(self, on: dt.date) -> list[Observed]:
        """The newest price of each offer that was known on a day."""
        table = schema.prices
        newest: dict[tuple[Any, ...], Observed] = {}
        for row in self._observed(select(table).where(table.c.day <= on).order_by(table.c.day, table.c.id)):
            newest[self._key(row)[:-1]] = row
        return list(newest.values())

    def _observed(self, query: Any) -> list[Observed]:
        with self._told(), self.engine.connect() as connection:
            rows = connection.execute(query).mappings().all()
        return [Observed(**{column: row[column] for column in Observed.__slots__}) for row in rows]

    @staticmethod
    def _key(row: Observed) -> tuple[Any, ...]:
        return tuple(getattr(row, column) for column in schema.KEY)


def default_url() -> str:
    """SQLite in the user's folder for data."""
    folder = Path(platformdirs.user_data_dir("finefit", appauthor=False))
    folder.mkdir(parents=True, exist_ok=True)
    return f"sqlite:///{folder / 'prices.db'}"


@contextmanager
def open_store(url: str | None = None) -> Iterator[Store]:
    """The history at a URL, with today's tables; the user's own where None.

    Raises:
        InputError: not the URL of a database that is supported.
        SourceUnreachable: the database does not answer.
    """
    engine = _engine(url or default_url())
    store = Store(engine)
    try:
        with store.writing() as connection:
            _migrate(connection)
        yield store
    finally:
        engine.dispose()


def _engine(stated: str) -> Engine:
    fix = "write sqlite:///prices.db or postgresql://user@host/base"
    try:
        url = make_url(stated)
        backend = url.get_backend_name()
        if backend not in ("sqlite", "postgresql"):
            raise InputError(f"{backend[:20]!r} is no database that is supported", where="--db", fix=fix)
        if backend == "postgresql":
            return create_engine(url.set(drivername="postgresql+psycopg"), pool_pre_ping=True)
        engine = create_engine(url, connect_args={"timeout": _WAIT_SECONDS})
    except (ArgumentError, NoSuchModuleError, ValueError) as problem:
        raise InputError(f"{stated[:60]!r} is not the URL of a database", where="--db", fix=fix) from problem
    except ImportError as missing:
        raise InputError(
            f"this database needs {missing.name}", where="--db", fix='pip install "finefit[history]"'
        ) from missing
    event.listen(engine, "connect", _own_transactions)
    event.listen(engine, "begin", _begin_immediate)
    return engine


def _own_transactions(connection: Any, _: Any) -> None:
    """sqlite3 begins none by itself: SQLAlchemy's documentation, "Serializable isolation / Savepoints"."""
    connection.isolation_level = None


def _begin_immediate(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _migrate(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(_LOCK)))
    config = Config()
    config.set_main_option("script_location", "finefit.market:migrations")
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
