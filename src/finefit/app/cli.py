"""The command ``finefit``.

Exit codes: 0 it fits or is tight, or no GPU was stated; 1 it does not fit the stated GPUs (with --strict:
or is tight); 2 wrong input; 3 a needed online source is not reachable; 4 GPUs were stated and the answer is
undecided; 70 a bug in finefit.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from finefit import __version__
from finefit.app import options as o
from finefit.errors import FinefitError

if TYPE_CHECKING:
    from finefit.planner.answer import MemoryAnswer
    from finefit.planner.plan import LargestModels, MethodTable, Plan

    Answer = MemoryAnswer | Plan | MethodTable | LargestModels

FITS, DOES_NOT_FIT, WRONG_INPUT, UNDECIDED, BUG, INTERRUPTED = 0, 1, 2, 4, 70, 130
_ISSUES = "the project's issue tracker"

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="How big a GPU, for how long, and what will it cost to fine-tune a language model?",
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"finefit {__version__}")
        raise typer.Exit()


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="print the version and exit")
    ] = False,
) -> None:
    pass


@app.command()
def plan(
    source: Annotated[
        str | None, typer.Argument(metavar="[CONFIG|MODEL]", help="a LLaMA-Factory YAML, or a model")
    ] = None,
    gpu: o.Gpu = None,
    data: Annotated[str | None, typer.Option("--data", metavar="FILE", help="training data to count")] = None,
    samples: Annotated[int | None, typer.Option("--samples", help="samples of the data")] = None,
    mean_length: Annotated[float | None, typer.Option("--mean-length", help="mean tokens a sample")] = None,
    tokens: Annotated[int | None, typer.Option("--tokens", help="tokens of the data")] = None,
    longest: Annotated[int | None, typer.Option("--longest", help="tokens of the longest sample")] = None,
    epochs: Annotated[float | None, typer.Option("--epochs", help="passes over the data")] = None,
    budget: Annotated[str | None, typer.Option("--budget", help="200USD or 1500CNY")] = None,
    deadline: Annotated[str | None, typer.Option("--deadline", help="24h, 90min, 3d")] = None,
    kinds: Annotated[
        str, typer.Option("--kinds", help="on-demand, spot, community, monthly, yearly; the bill takes the first")
    ] = "on-demand",
    currency: Annotated[str | None, typer.Option("--currency", help="USD or CNY")] = None,
    change: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="a key of the config with another value")
    ] = None,
    method: o.Method = None,
    rank: o.Rank = None,
    targets: o.Targets = None,
    batch: o.Batch = None,
    seq: o.Seq = None,
    accum: o.Accum = None,
    precision: o.Precision = None,
    optimizer: o.Optimizer = None,
    checkpointing: o.Checkpointing = None,
    attention: o.Attention = None,
    quant_bits: o.QuantBits = None,
    kbit_prepare: o.KbitPrepare = None,
    loss: o.Loss = None,
    sharding: o.Sharding = None,
    padded: o.Padded = None,
    json: o.Json = False,
    strict: o.Strict = False,
    lang: o.Lang = None,
    as_of: o.AsOf = None,
) -> None:
    """Does it fit, how long does it take, what does it cost, what should be changed?"""
    from finefit import api

    answer = api.plan(
        source,
        gpu=gpu,
        budget=budget,
        deadline=deadline,
        kinds=tuple(kind.strip() for kind in kinds.split(",") if kind.strip()),
        currency=currency,
        overrides=_overrides(change),
        as_of=as_of,
        data=data,
        samples=samples,
        mean_length=mean_length,
        tokens=tokens,
        longest=longest,
        epochs=epochs,
        method=method,
        rank=rank,
        targets=targets,
        batch=batch,
        seq=seq,
        accum=accum,
        precision=precision,
        optimizer=optimizer,
        checkpointing=checkpointing,
        attention=attention,
        quant_bits=quant_bits,
        kbit_prepare=kbit_prepare,
        loss=loss,
        sharding=sharding,
        padded=padded,
    )
    _show(answer, json, lang)
    raise typer.Exit(exit_code(answer, strict))


@app.command()
def memory(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="name, config.json or folder of a model")],
    gpu: o.Gpu = None,
    method: o.Method = None,
    rank: o.Rank = None,
    targets: o.Targets = None,
    batch: o.Batch = None,
    seq: o.Seq = None,
    accum: o.Accum = None,
    precision: o.Precision = None,
    optimizer: o.Optimizer = None,
    checkpointing: o.Checkpointing = None,
    attention: o.Attention = None,
    quant_bits: o.QuantBits = None,
    kbit_prepare: o.KbitPrepare = None,
    loss: o.Loss = None,
    sharding: o.Sharding = None,
    padded: o.Padded = None,
    json: o.Json = False,
    strict: o.Strict = False,
    lang: o.Lang = None,
    as_of: o.AsOf = None,
) -> None:
    """The memory of a training step on one GPU, from flags alone."""
    from finefit import api

    answer = api.memory(
        model,
        gpu=gpu,
        as_of=as_of,
        method=method,
        rank=rank,
        targets=targets,
        batch=batch,
        seq=seq,
        accum=accum,
        precision=precision,
        optimizer=optimizer,
        checkpointing=checkpointing,
        attention=attention,
        quant_bits=quant_bits,
        kbit_prepare=kbit_prepare,
        loss=loss,
        sharding=sharding,
        padded=padded,
    )
    _show(answer, json, lang)
    raise typer.Exit(exit_code(answer, strict))


@app.command()
def gpus() -> None:
    """The GPUs finefit knows, with the memory torch reports."""
    from finefit.catalog.gpu_table import cards
    from finefit.units import gib

    for card in cards():
        typer.echo(f"{card.gpu.id:<22} {gib(card.gpu.memory):7.2f} GiB  {card.label}")


@app.command()
def models() -> None:
    """The models finefit knows by name, and whether it models their training."""
    from finefit.catalog.models import entries, find
    from finefit.errors import NotModelled

    for entry in entries():
        try:
            find(entry.name)
            known = ""
        except NotModelled:
            known = "  (not modelled yet)"
        size = f"{entry.parameters / 1e9:8.2f} B" if entry.parameters else "         ?"
        typer.echo(f"{size}  {entry.name}{known}")


def exit_code(answer: Answer, strict: bool = False) -> int:
    """The exit code of an answer; tables decide nothing and end with 0."""
    fits = getattr(answer, "fits", None)
    if fits is None or answer.cluster is None:
        return FITS
    if fits.value == "no" or (strict and fits.value == "tight"):
        return DOES_NOT_FIT
    return UNDECIDED if fits.value == "unknown" else FITS


def _show(answer: Answer, as_json: bool, lang: str | None) -> None:
    if as_json:
        from finefit.report.json_output import dumps

        sys.stdout.write(dumps(answer))
        return
    from finefit.report.i18n import pick_language
    from finefit.report.terminal import draw

    draw(answer, pick_language(lang))


def _overrides(changes: list[str] | None) -> dict[str, object] | None:
    """``--set KEY=VALUE`` as the config's own keys; values are read as the tool reads them."""
    from finefit.errors import InputError

    if not changes:
        return None
    out: dict[str, object] = {}
    for change in changes:
        key, equals, value = change.partition("=")
        if not equals or not key.strip():
            raise InputError(f"{change[:60]!r} is not KEY=VALUE", where="--set", fix="write --set cutoff_len=4096")
        out[key.strip()] = value
    return out


def main(arguments: list[str] | None = None) -> int:
    """Run a command line; the process's exit code. Every error is one line on stderr."""
    import click

    try:
        code = app(args=arguments, prog_name="finefit", standalone_mode=False)
        return int(code or 0)
    except FinefitError as error:
        return _refuse(str(error), error.exit_code)
    except click.UsageError as error:
        return _refuse(f"{error.format_message()} — see finefit --help", WRONG_INPUT)
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except BrokenPipeError:  # the reader (head, less) has seen enough
        sys.stderr.close()
        return FITS
    except Exception as error:
        return _bug(error)


def _refuse(sentence: str, code: int) -> int:
    print(f"error: {' '.join(sentence.split())}", file=sys.stderr)
    return code


def _bug(error: Exception) -> int:
    import os

    if os.environ.get("FINEFIT_DEBUG"):
        import traceback

        traceback.print_exc()
    kind = type(error).__name__
    print(
        f"error: this is a bug in finefit {__version__} ({kind}): please report the command line to {_ISSUES}, "
        "with the output of FINEFIT_DEBUG=1",
        file=sys.stderr,
    )
    return BUG


if __name__ == "__main__":
    sys.exit(main())
