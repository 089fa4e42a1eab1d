"""The vision tower of a vision-language model, its projector, and the pictures of a sample.

Letters: P patches the tower reads, M tokens the language model gets for them.
"""

from __future__ import annotations

from dataclasses import dataclass

from finefit.workload.model import Model


@dataclass(frozen=True, slots=True)
class Tower:
    """What turns pixels into tokens.

    Attributes:
        kind: ``model_type`` of the whole model, whose code has the projector and the rule for pixels.
        body: the tower's transformer layers as a ``Model`` of their own; its vocabulary is not used.
        patch: pixels a side of a patch; temporal: frames a patch spans (a single image is repeated).
        out: width of a token, the language model's hidden size.
        merge: patches a side that become one token.
        image: side in pixels that every image or tile is scaled to; 0 where the processor keeps its shape.
        tokens: tokens of one such image or tile; 0 where they follow from ``merge``.
        positions: rows of the learned position table, 0 for none.
        min_pixels, max_pixels: bounds of the processor on the area of an image that keeps its shape.
        max_tiles: tiles an image is cut into at most (those of ``image``), 1 where it is not cut.
        window: side in pixels of the windows that layers attend in; full: layers that attend to the whole image.
        taps: layers whose output is projected too and added inside the language model (DeepStack).
        width: inner width of the projector where nothing else gives it.
        projector_bias: its linear modules have a bias.
        opaque: parameters of a tower and projector of which only their number is known; 0 where they are modelled.
    """

    kind: str
    body: Model
    patch: int
    out: int
    temporal: int = 1
    merge: int = 1
    image: int = 0
    tokens: int = 0
    positions: int = 0
    min_pixels: int = 0
    max_pixels: int = 0
    max_tiles: int = 1
    window: int = 0
    full: tuple[int, ...] = ()
    taps: tuple[int, ...] = ()
    width: int = 0
    projector_bias: bool = True
    opaque: int = 0


@dataclass(frozen=True, slots=True)
class Images:
    """Pictures of one sample, all of one size."""

    count: int = 1
    height: int = 768
    width: int = 768
    max_pixels: int = 0  # the tool's own bound on the area, 0 for none; it scales before the processor does


@dataclass(frozen=True, slots=True)
class Grid:
    """What one sample's pictures become.

    Attributes:
        sequences: rows of the tower, each attending to itself alone; patches: patches of one.
        tokens: tokens they take in the sample.
    """

    sequences: int
    patches: int
    tokens: int
