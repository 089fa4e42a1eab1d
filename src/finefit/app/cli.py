"""The command ``finefit``.

Exit codes: 0 it fits or is tight, or no GPU was stated; 1 it does not fit the stated GPUs (with --strict:
or is tight); 2 wrong input; 3 a needed online source is not reachable; 4 GPUs were stated and the answer is
undecided; 70 a bug in finefit.

Built on argparse: command-line libraries that check types through pydantic cost more time than the
whole estimate.
"""

from __future__ import annotations

import errno
import os
import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, NoReturn

from finefit import __version__
from finefit.app import (
    apply_command,
    convert_command,
    cost_command,
    gpus_command,
    history_commands,
    lengths_command,
    models_command,
    offers_command,
    options,
    rates_command,
    reconcile_command,
    trace_command,
)
from finefit.errors import FinefitError, InputError

if TYPE_CHECKING:
    from finefit.planner.answer import MemoryAnswer
    from finefit.planner.plan import LargestModels, MethodTable, Plan

    Answer = MemoryAnswer | Plan | MethodTable | LargestModels

FITS, DOES_NOT_FIT, WRONG_INPUT, UNDECIDED, BUG, INTERRUPTED = 0, 1, 2, 4, 70, 130
_CODES = """exit codes: 0 fits, tight or no GPU stated; 1 does not fit the stated GPUs (--strict: or tight);
2 wrong input; 3 an online source is not reachable; 4 undecided; 70 a bug"""


class _Parser(ArgumentParser):
    """Refuses a wrong command line in one sentence."""

    def error(self, message: str) -> NoReturn:
        raise InputError(message, fix=f"see {self.prog} --help")


def parser() -> ArgumentParser:
    """The whole command line."""
    top = _Parser(
        prog="finefit",
        description="How big a GPU, for how long, and what will it cost to fine-tune a language model?",
        epilog=_CODES,
        formatter_class=RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"finefit {__version__}")
    commands = top.add_subparsers(metavar="COMMAND", required=True)

    def command(name: str, run: Callable[[Namespace], int], text: str) -> ArgumentParser:
        made = commands.add_parser(name, help=text, description=text, epilog=_CODES, allow_abbrev=False)
        made.set_defaults(run=run)
        return made

    plan = command("plan", _plan, "Does it fit, how long does it take, what does it cost, what should be changed?")
    plan.add_argument(
        "source",
        nargs="?",
        metavar="CONFIG|MODEL",
        help="a config or launch script, or a model; neither with --gpu alone",
    )
    options.add_common(plan)
    plan.add_argument(
        "--kinds", metavar="KINDS", default="on-demand", help="on-demand, spot, community, monthly, yearly; bill: first"
    )
    plan.add_argument(
        "--set", action="append", dest="changes", metavar="KEY=VALUE", help="a key of the config with another value"
    )
    plan.add_argument("--explain", action="store_true", help="where the time of a step goes, and what that rests on")
    history_commands.add_refreshed(plan)
    plan.add_argument("--format", dest="config_format", metavar="TOOL", help="whose config it is, if it is not told")
    options.add(plan, options.RUN, "the run")
    options.add(plan, options.RECIPE, "the recipe, for a model without a config")

    memory = command("memory", _memory, "The memory of a training step on one GPU, from flags alone.")
    memory.add_argument("model", metavar="MODEL", help="name, config.json or folder of a model")
    options.add_common(memory)
    memory.add_argument(
        "--exact", action="store_true", help="bytes of a stored trace of the real code, if there is one"
    )
    memory.add_argument("--explain", action="store_true", help="the formula of every part, with its numbers and source")
    options.add(memory, options.RECIPE, "the recipe")

    reconcile_command.add(command)
    apply_command.add(command)
    convert_command.add(command)
    trace_command.add(command)

    lengths_command.add(command)
    cost_command.add(command)
    offers_command.add(command)
    history_commands.add_watch(command)
    rates_command.add(command)
    gpus_command.add(command)
    models_command.add(command)
    return top


def main(arguments: list[str] | None = None) -> int:
    """Run a command line; the process's exit code. Every error is one line on stderr."""
    given = sys.argv[1:] if arguments is None else arguments
    try:
        stated = parser().parse_args(given or ["--help"])
        if getattr(stated, "lang", None):
            from finefit.report.i18n import pick_language

            pick_language(stated.lang)  # refused before the work, not after it
        code: int = stated.run(stated)
        sys.stdout.flush()
        return code
    except FinefitError as error:
        print(f"error: {' '.join(_in_language(error, given).split())}", file=sys.stderr)
        return error.exit_code
    except SystemExit as done:  # --help and --version
        return int(done.code or 0)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader (head, less) has seen enough
        _drop_output()
        return FITS
    except OSError as error:
        if error.filename is not None:  # a file that nobody guarded
            return _bug(error)
        _drop_output()
        why = errno.errorcode.get(error.errno or 0, "?")
        full = InputError(f"the answer cannot be written ({why})", where="stdout", fix="write it elsewhere")
        print(f"error: {' '.join(_in_language(full, given).split())}", file=sys.stderr)
        return full.exit_code
    except Exception as error:
        return _bug(error)


def _drop_output() -> None:
    """Nothing more is written to standard output, not at exit either."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _plan(stated: Namespace) -> int:
    from finefit import api

    kinds = tuple(kind.strip() for kind in stated.kinds.split(",") if kind.strip())
    recipe, run = ({name: getattr(stated, name) for name in table} for table in (options.RECIPE, options.RUN))
    answer = api.plan(
        stated.source,
        gpu=stated.gpu,
        kinds=kinds,
        overrides=options.overrides(stated.changes),
        config_format=stated.config_format,
        as_of=stated.as_of,
        explain=stated.explain,
        refreshed=history_commands.refreshed_if_asked(stated),
        **run,
        **recipe,
    )
    return _show(answer, stated)


def _memory(stated: Namespace) -> int:
    from finefit import api

    recipe = {name: getattr(stated, name) for name in options.RECIPE}
    modes = {"exact": stated.exact, "explain": stated.explain}
    return _show(api.memory(stated.model, gpu=stated.gpu, as_of=stated.as_of, **modes, **recipe), stated)


def exit_code(answer: Answer, strict: bool = False) -> int:
    """The exit code of an answer; tables decide nothing and end with 0."""
    fits = getattr(answer, "fits", None)
    if fits is None or answer.cluster is None:
        return FITS
    if fits.value == "no" or (strict and fits.value == "tight"):
        return DOES_NOT_FIT
    return UNDECIDED if fits.value == "unknown" else FITS


def _show(answer: Answer, stated: Namespace) -> int:
    """Print an answer; its exit code."""
    if stated.json:
        from finefit.report.json_output import dumps

        sys.stdout.write(dumps(answer))
    else:
        from finefit.report.i18n import pick_language
        from finefit.report.terminal import draw

        draw(answer, pick_language(stated.lang))
    return exit_code(answer, stated.strict)


def _in_language(error: FinefitError, given: list[str]) -> str:
    """The error in the language asked for, English where that cannot be told."""
    from finefit.report.i18n import Translator, pick_language

    stated = next((b for a, b in pairwise(given) if a == "--lang"), None)
    stated = next((a[7:] for a in given if a.startswith("--lang=")), stated)
    try:
        return Translator(pick_language(stated)).error(error)
    except InputError:
        return str(error)


def _bug(error: Exception) -> int:
    if os.environ.get("FINEFIT_DEBUG"):
        import traceback

        traceback.print_exc()
    print(
        f"error: this is a bug in finefit {__version__} ({type(error).__name__}) — please report the command line, "
        "the config and what FINEFIT_DEBUG=1 prints",
        file=sys.stderr,
    )
    return BUG


if __name__ == "__main__":
    sys.exit(main())
