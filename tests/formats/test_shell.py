"""Launch scripts: the words their commands would run with. Expected words are those that bash prints."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from finefit.errors import FinefitError, InputError
from finefit.formats import shell
from finefit.formats.shell_expand import UNKNOWN


def words(text: str) -> list[list[str]]:
    return [[word.text for word in command.words] for command in shell.read(text, "run.sh").commands]


# Each prints its arguments one a line; what bash prints was recorded with GNU bash 5.2
CASES = {
    "N=16\necho $((N / 3 / 2)) $(expr $N / 4)\n": ["2", "4"],
    "A=${MISSING:-8}\necho $A \"${A}x\" '$A'\n": ["8", "8x", "$A"],
    'OUTER=${MISSING:-"${ALSO_MISSING:-a/b c}"}\necho "$OUTER"\n': ["a/b c"],
    'ARGS=(--a 1 "two words")\nARGS+=(--c)\necho "${ARGS[@]}"\n': ["--a", "1", "two words", "--c"],
    'E=()\necho x "${E[@]}" y\n': ["x", "y"],
    'LONG="a=1 \\\n  b=[2,3]"\necho ${LONG} end\n': ["a=1", "b=[2,3]", "end"],
    'P=1\nif [ "${P}" = "1" ]; then echo yes; else echo no; fi\n': ["yes"],
    "P=2\nif [ $P -gt 3 ]; then echo big\nelif [[ $P == 2 ]]; then echo two; fi\n": ["two"],
    "D=npu\ncase $D in gpu) echo g ;; npu|tpu) echo n ;; *) echo other ;; esac\n": ["n"],
    "echo -7 $((-7 / 2)) $((7 % 4))\n": ["-7", "-3", "3"],
    "cat <<EOF\nllamafactory-cli train\nEOF\necho after\n": ["after"],
}


def printed(text: str) -> list[str]:
    return [word for command in words(text) if command[0] == "echo" for word in command[1:]]


@pytest.mark.parametrize("text", list(CASES))
def test_words_are_those_of_bash(text):
    assert printed(text) == CASES[text]


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here to compare with")
@pytest.mark.parametrize("text", list(CASES))
def test_bash_agrees(text):
    script = text.replace("echo ", "printf '%s\\n' ").replace("cat <<", "true <<")
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == CASES[text]


def test_a_comment_cuts_a_continued_command():
    """A comment never continues: what follows is a command of its own, and the run never gets --deepspeed."""
    script = shell.read("swift sft \\\n  --model a/b \\\n  # --packing true \\\n  --deepspeed zero3\n", "run.sh")
    assert [word.text for word in script.commands[0].words] == ["swift", "sft", "--model", "a/b"]
    (warning,) = script.warnings
    assert warning.startswith("run.sh:4: --deepspeed") and "never gets it" in warning


def test_a_backslash_before_a_blank_does_not_continue():
    script = shell.read("swift sft --model a/b \\ \n  --packing true\n", "run.sh")
    assert any("backslash before a blank" in warning for warning in script.warnings)


def test_a_backslash_without_a_blank_joins():
    """``1\\`` at the end of a line, then indented flags: the value is 1."""
    assert words("x --n 1\\\n   --m 2\n") == [["x", "--n", "1", "--m", "2"]]


def test_what_only_a_run_can_tell_is_unknown():
    (command,) = shell.read("train --nproc=$1 --gpus=$(nvidia-smi -L | wc -l) --n=$NOWHERE\n", "r").commands
    assert all(UNKNOWN in word.text and not word.known for word in command.words[1:])
    assert words("D=${D:-$(python3 -c 'import x' && echo npu || echo gpu)}\necho $D\n") == [["echo", "gpu"]]


def test_environment_of_a_command():
    (command,) = shell.read("export A=1\nB=2\nC=3 run\n", "r").commands
    assert {key: word.text for key, word in command.environment.items()} == {"A": "1", "C": "3"}


@pytest.mark.parametrize("text", ["echo 'x", 'echo "x', "A=(1 2", "echo $(", "echo ${A"])
def test_what_never_closes_is_named(text):
    with pytest.raises(InputError) as caught:
        shell.read(text, "run.sh")
    assert caught.value.where == "run.sh:1" and "never closed" in caught.value.what


def test_growth_is_bounded():
    doubling = "A=xxxxxxxxxx\n" + "A=$A$A\n" * 200 + "echo $A\n"
    assert len(printed(doubling)[0]) <= 40_000


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet=st.sampled_from(list("ab1 $(){}[]'\"\\\n;&|<>#=-+@*!`/%~:,if then fi")), max_size=80))
def test_any_text_gives_commands_or_one_of_our_errors(text):
    try:
        script = shell.read(text, "run.sh")
    except FinefitError:
        return
    assert all(command.line >= 1 for command in script.commands)
