"""Fresh environments of other transformers generations, in which ``benchmarks.trace`` runs itself again.

Each is made with the interpreter that asks for it, in a folder the caller names, and kept there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

from finefit.errors import InputError, SourceUnreachable

ROOT = Path(__file__).resolve().parent.parent
# Releases of about the same time. bitsandbytes and torch stay: fake tensors need the operators that
# bitsandbytes registers since 0.46, and the tracer patches one torch.
_SAME = ("torch==2.13.0", "bitsandbytes==0.50.2")
GENERATIONS: dict[str, tuple[str, ...]] = {
    "4.45": ("transformers==4.45.2", "peft==0.13.2", "accelerate==0.34.2", *_SAME),
    "4.48": ("transformers==4.48.1", "peft==0.13.2", "accelerate==0.34.2", *_SAME),
    "4.57": ("transformers==4.57.6", "peft==0.18.1", "accelerate==1.12.0", *_SAME),
    "5.24": ("transformers==5.24.0", "peft==0.21.2", "accelerate==1.15.0", "trl==1.16.0", *_SAME),
}
_BASE = ("numpy>=1.26", "pyyaml>=6", "rich>=13", "platformdirs>=4")


def python_of(generation: str, folder: Path) -> Path:
    """The interpreter of a generation's environment, made if it is not there.

    Raises:
        InputError: no such generation.
        SourceUnreachable: the packages could not be installed.
    """
    if generation not in GENERATIONS:
        raise InputError(f"no environment of transformers {generation}", fix=f"use one of {', '.join(GENERATIONS)}")
    home = folder / f"transformers-{generation}"
    python = home / ("Scripts" if os.name == "nt" else "bin") / "python"
    if (home / "complete").exists():
        return python
    venv.create(home, with_pip=True, clear=True)
    command = [str(python), "-m", "pip", "install", "--quiet", *GENERATIONS[generation], *_BASE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SourceUnreachable(
            f"the packages of transformers {generation} cannot be installed",
            fix=done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "see pip",
        )
    (home / "complete").touch()
    return python


def run_in(generation: str, folder: Path, arguments: list[str]) -> dict[str, Any]:
    """The object that ``benchmarks.trace ARGUMENTS --json`` prints under a generation.

    Raises:
        InputError, SourceUnreachable: as ``python_of``; the benchmark printed no object.
    """
    python = python_of(generation, folder)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "src")))}
    command = [str(python), "-m", "benchmarks.trace", *arguments, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=ROOT)
    try:
        found: dict[str, Any] = json.loads(done.stdout)
    except json.JSONDecodeError:
        last = done.stderr.strip().splitlines()[-1:] or ["no output"]
        raise InputError(f"the benchmark failed under transformers {generation}", fix=last[0]) from None
    return found


def default_folder() -> Path:
    """Where environments are kept unless the caller says otherwise: not in the checkout."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "finefit" / f"environments-py{sys.version_info.major}{sys.version_info.minor}"
