"""Every reader of people's files under fuzzing by coverage: ``python -m benchmarks.fuzz [--seconds N] [READER ...]``.

atheris 3 (``pip install atheris``, Linux) mutates inputs towards new branches of finefit's own code. A reader may
return or raise an error of ``finefit.errors``; anything else is a finding, which is printed and ends that
reader's run. Without names every reader gets an equal share of the time, each in a process of its own.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

SEEDS: dict[str, tuple[bytes, ...]] = {
    "yaml": (b"model_name_or_path: a/b\nstage: sft\ncutoff_len: &a 2e3\nx: *a\n", b"base_model: a\nplugins:\n  - b\n"),
    "json": (b'{"zero_optimization": {"stage": 3}, "train_micro_batch_size_per_gpu": "auto"}',),
    "toml": (b"[job]\n[training]\nseq_len = 2_048 # x\nlocal_batch_size = 1\n",),
    "sh": (b"N=${A:-8}\nARGS=(--a 1)\nswift sft --model a/b --max_length $((N / 2)) ${ARGS[@]}\n",),
    "py": (b"from unsloth import FastModel\nm = FastModel.from_pretrained(model_name='a', max_seq_length=1 + 2)\n",),
    "apply": (b"base_model: a\nmicro_batch_size: 4 # x\n", b"swift sft --model a \\\n --max_length 4\n"),
    "model_config": (b'{"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 9}',),
    "safetensors": (
        b'\x40\0\0\0\0\0\0\0{"a.weight":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]}}' + bytes(12),
    ),
    "gguf": (b"GGUF\x03\0\0\0" + bytes(8) + b"\x01" + bytes(7) + b"\x01" + bytes(7) + b"a\x04\0\0\0\x07\0\0\0",),
    "data": (b'{"instruction": "a", "output": "b"}\n{"messages": [{"role": "user", "content": "c"}]}\n',),
}


def _readers(folder: Path) -> dict[str, Callable[[bytes], object]]:
    """Each reader as a function of a file's bytes."""
    from finefit.formats import gguf, safetensors
    from finefit.formats.config import read
    from finefit.formats.edits import Edit
    from finefit.formats.rewrite import original, rewritten
    from finefit.resolve.data import file_lengths
    from finefit.resolve.models import resolve_model
    from finefit.resolve.notes import Notes
    from finefit.resolve.readings import reading_of

    def file(ending: str, data: bytes) -> Path:
        path = folder / f"input.{ending}"
        path.write_bytes(data)
        return path

    def config(ending: str) -> Callable[[bytes], object]:
        return lambda data: reading_of(read(file(ending, data)))

    def apply(data: bytes) -> object:
        path = file("sh" if data[:5].isalpha() else "yaml", data)
        edits = [Edit("max_length", 7), Edit("micro_batch_size", 1), Edit("train.x", "a b")]
        return rewritten(read(path), original(path), edits)

    return {
        **{ending: config(ending) for ending in ("yaml", "json", "toml", "sh", "py")},
        "apply": apply,
        "model_config": lambda data: resolve_model(str(file("config.json", data))),
        "safetensors": lambda data: safetensors.read(file("safetensors", data)),
        "gguf": lambda data: gguf.read(file("gguf", data)),
        "data": lambda data: file_lengths(str(file("jsonl", data)), Notes()),
    }


def _fuzz(name: str, seconds: int, corpus: Path) -> None:
    import atheris  # type: ignore[import-not-found]

    with atheris.instrument_imports(include=["finefit"]):
        run = _readers(corpus.parent)[name]
    from finefit.errors import FinefitError

    def once(data: bytes) -> None:
        with suppress(FinefitError):
            run(data)

    flags = [f"-max_total_time={seconds}", "-max_len=4096", "-timeout=20", "-rss_limit_mb=4096", "-print_final_stats=1"]
    atheris.Setup([sys.argv[0], *flags, str(corpus)], once)
    atheris.Fuzz()


def main() -> int:
    """Fuzz the readers; 1 where one of them raised anything else than its own errors."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("readers", nargs="*", choices=[[], *SEEDS], default=[])
    parser.add_argument("--seconds", type=int, default=3600, help="all readers together")
    parser.add_argument("--corpus", type=Path, help=argparse.SUPPRESS)
    stated = parser.parse_args()
    if stated.corpus is not None:
        _fuzz(stated.readers[0], stated.seconds, stated.corpus)
        return 0
    names = stated.readers or list(SEEDS)
    failed = []
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            corpus = Path(folder) / "corpus"
            corpus.mkdir()
            for number, seed in enumerate(SEEDS[name]):
                (corpus / str(number)).write_bytes(seed)
            share = max(1, stated.seconds // len(names))
            command = [sys.executable, "-m", "benchmarks.fuzz", name, "--seconds", str(share), "--corpus", str(corpus)]
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
            rows = [row for row in done.stderr.splitlines() if "number_of_executed_units" in row]
            print(f"{name}: {share} s, {rows[-1].split()[-1] if rows else '?'} inputs", flush=True)
            if done.returncode:
                failed.append(name)
                print(done.stderr[-3000:], flush=True)
    print(f"findings: {', '.join(failed) or 'none'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
