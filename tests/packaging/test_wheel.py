"""The wheel and the source archive, built as an index would get them, and the wheel run without its checkout."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from hatchling.build import build_sdist, build_wheel

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src"
MAX_BYTES = 5 * 10**6


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("dist")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        return {"wheel": folder / build_wheel(str(folder)), "sdist": folder / build_sdist(str(folder))}


def shipped() -> set[str]:
    """Files of the package as they lie in the checkout."""
    files = (path for path in (SOURCE / "finefit").rglob("*") if path.is_file())
    return {path.relative_to(SOURCE).as_posix() for path in files if "__pycache__" not in path.parts}


def test_both_archives_are_below_five_megabytes(built: dict[str, Path]) -> None:
    assert {name: path.stat().st_size < MAX_BYTES for name, path in built.items()} == {"wheel": True, "sdist": True}


def test_the_wheel_holds_every_file_of_the_package(built: dict[str, Path]) -> None:
    with zipfile.ZipFile(built["wheel"]) as wheel:
        names = set(wheel.namelist())
    assert shipped() - names == set()
    for needed in (
        "finefit/catalog/data/models.csv",
        "finefit/catalog/data/gpus.csv",
        "finefit/catalog/data/offers.csv",
        "finefit/catalog/data/tool_defaults.csv",
        "finefit/examples/llama3_8b_qlora.yaml",
        "finefit/report/locale/zh/LC_MESSAGES/finefit.mo",
        "finefit/speed/speed_constants.json",
        "finefit/py.typed",
    ):
        assert needed in names


def test_the_wheel_holds_nothing_but_the_package(built: dict[str, Path]) -> None:
    with zipfile.ZipFile(built["wheel"]) as wheel:
        folders = {name.partition("/")[0] for name in wheel.namelist()}
    assert {name for name in folders if not name.endswith(".dist-info")} == {"finefit"}


def test_the_wheel_names_its_licence_and_its_command(built: dict[str, Path]) -> None:
    with zipfile.ZipFile(built["wheel"]) as wheel:
        info = {name.partition("/")[2]: wheel.read(name).decode() for name in wheel.namelist() if "dist-info/" in name}
    assert "License-Expression: Apache-2.0" in info["METADATA"]
    assert "Apache License" in info["licenses/LICENSE"]
    assert "finefit = finefit.app.cli:main" in info["entry_points.txt"]


def test_torch_is_not_needed(built: dict[str, Path]) -> None:
    with zipfile.ZipFile(built["wheel"]) as wheel:
        metadata = next(wheel.read(name).decode() for name in wheel.namelist() if name.endswith("/METADATA"))
    needs = [line.partition(": ")[2] for line in metadata.splitlines() if line.startswith("Requires-Dist:")]
    base = [need for need in needs if "extra ==" not in need]
    assert base
    assert not [need for need in base if need.startswith(("torch", "transformers", "accelerate", "peft"))]


def test_the_source_archive_holds_what_the_checks_need(built: dict[str, Path]) -> None:
    with tarfile.open(built["sdist"]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"src/{name}" for name in shipped()} <= names
    assert {"pyproject.toml", "Makefile", "LICENSE", "README.md", "README.zh-CN.md", "CHANGELOG.md"} <= names


def test_the_unpacked_wheel_plans_its_own_example(built: dict[str, Path], tmp_path: Path) -> None:
    with zipfile.ZipFile(built["wheel"]) as wheel:
        wheel.extractall(tmp_path)
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import finefit; assert finefit.__file__.startswith(sys.argv[1]), finefit.__file__\n"
        "from finefit.app.cli import main; sys.argv[1:2] = []\n"
        "import atexit; atexit.register(lambda: print('torch loaded:', 'torch' in sys.modules))\n"
        "main()\n"
    )
    config = tmp_path / "finefit" / "examples" / "llama3_8b_qlora.yaml"
    command = [sys.executable, "-c", program, str(tmp_path), "plan", str(config), "--gpu", "RTX 4090"]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", cwd=tmp_path, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "RTX 4090" in done.stdout
    assert "torch loaded: False" in done.stdout
