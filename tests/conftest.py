"""No test reads or writes what the user has refreshed or cached, and none asks the Hub."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def own_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Also for the processes that tests start."""
    own = {
        "XDG_DATA_HOME": str(tmp_path_factory.mktemp("data")),
        "XDG_CACHE_HOME": str(tmp_path_factory.mktemp("cache")),
        "HF_HUB_OFFLINE": "1",
    }
    before = {name: os.environ.get(name) for name in own}
    os.environ.update(own)
    yield
    for name, value in before.items():
        if value is None:
            del os.environ[name]
        else:
            os.environ[name] = value
