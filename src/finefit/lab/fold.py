"""Finds where the layers of a traced Timeline repeat, so that four layers stand for any number."""

from __future__ import annotations

from dataclasses import replace

from finefit.memory.program import TEMPLATE, Code, Loop, Program, Role, codes, roles, shifted
from finefit.memory.timeline import Timeline
from finefit.step.size import Size


class NotAlikeError(Exception):
    """The layers in the middle do not repeat event by event."""


def fold(four: Timeline, three: Timeline) -> Program:
    """The program of which ``four`` and ``three`` are the unfoldings with four and three layers.

    Both carry symbolic sizes, or both sizes at the same dimensions; ``three`` is not used to find the loops, so that
    it equals ``unfold(3)`` is a check. Only lists over all parameters may differ, by elements a layer.

    Raises:
        NotAlikeError: a pass over the layers does not repeat, or three layers are not what four say.
    """
    known = roles(four)
    all_codes = codes(four, known)
    starts = [mark.start for mark in four.marks]
    loops: list[Loop] = []
    for start, end in zip(starts, [*starts[1:], len(all_codes)], strict=True):
        loops.extend(_loops(all_codes, start, end))
    program = Program(four, tuple(loops))
    try:
        short = program.unfold(TEMPLATE - 1)
        program.unfold(TEMPLATE + 1)
    except (ValueError, KeyError) as error:
        raise NotAlikeError(str(error)) from error
    _require_twins(four, known)
    growth = _growth(four, short, three)
    return replace(program, growth=growth) if growth else program


def _loops(found: list[Code], start: int, end: int) -> list[Loop]:
    """Loops of one segment, first to last."""
    place = {code: index for index, code in enumerate(found[start:end], start)}
    loops: list[Loop] = []
    covered = at = start
    while at < end:
        layer = found[at][1][1]
        if layer not in (1, 2):
            at += 1
            continue
        step = 1 if layer == 1 else -1
        twin = place.get(shifted(found[at], step))
        if twin is None or twin < at:
            at += 1
            continue
        length = twin - at

        def alike(index: int, length: int = length, step: int = step) -> bool:
            return index + length < end and found[index + length] == shifted(found[index], step)

        low = high = at
        while low > covered and alike(low - 1):
            low -= 1
        while alike(high):
            high += 1
        if high - low < length:
            raise NotAlikeError(f"events {low} to {low + 2 * length} are not two copies of a layer")
        loops.append(Loop(low, length, step))
        covered = at = low + 2 * length
    return loops


def _require_twins(four: Timeline, known: list[Role]) -> None:
    """The two layers in the middle make the same tensors.

    Raises:
        NotAlikeError: one of them makes one that the other does not.
    """
    sizes: tuple[dict[Role, Size], dict[Role, Size]] = ({}, {})
    for (segment, layer, maker, number), tensor in zip(known, four.tensors, strict=True):
        if layer in (1, 2):
            sizes[layer - 1][segment, None, maker, number] = tensor.size
    if sizes[0] != sizes[1]:
        raise NotAlikeError("the second and the third of four layers make other tensors")


def _growth(four: Timeline, short: Timeline, three: Timeline) -> dict[int, int]:
    """Elements a layer of tensors whose size depends on the depth.

    Raises:
        NotAlikeError: something else differs between what was unfolded and what was traced.
    """
    if short.events != three.events or short.marks != three.marks:
        raise NotAlikeError("three layers have other events than four say")
    numbers = {role: number for number, role in enumerate(roles(four))}
    growth: dict[int, int] = {}
    for role, mine, theirs in zip(roles(three), short.tensors, three.tensors, strict=True):
        if mine == theirs:
            continue
        if replace(mine, size=theirs.size) != theirs or mine.size.symbols != theirs.size.symbols:
            raise NotAlikeError(f"{mine.op} of {mine.module} is another tensor with three layers")
        segment, layer, maker, ordinal = role
        where = layer if layer is None or layer < 2 else TEMPLATE - 1
        if layer == 1:
            raise NotAlikeError(f"{mine.op} of {mine.module} depends on the depth in every layer")
        growth[numbers[segment, where, maker, ordinal]] = mine.size.numel - theirs.size.numel
    return growth
