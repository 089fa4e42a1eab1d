"""From the size of a picture to patches and tokens, by the rule of each family's processor.

Rules are those of transformers 5.24.0 ``models/<kind>/image_processing_<kind>.py``.
"""

from __future__ import annotations

import math

from finefit.errors import InputError, NotModelled
from finefit.workload.tower import Grid, Images, Tower

_RATIO = 200  # qwen2_vl smart_resize refuses longer sides

# model types whose processor scales to whole merged patches inside bounds of area (``smart_resize``)
SMART = frozenset(
    {
        "qwen2_vl",
        "qwen2_5_vl",
        "qwen3_vl",
        "qwen3_vl_moe",
        "qwen3_5",
        "qwen3_5_moe",
        "glm4v",
        "glm4v_moe",
        "exaone4_5",
        "ernie4_5_vl_moe",
        "minimax_m3_vl",
        "muse_glimmer",
        "glm5_next",
    }
)


def smart_resize(height: int, width: int, factor: int, min_pixels: int, max_pixels: int) -> tuple[int, int]:
    """(height, width) as multiples of ``factor`` inside the bounds (qwen2_vl/image_processing_qwen2_vl.py).

    Raises:
        InputError: one side is more than 200 times the other.
    """
    if max(height, width) / min(height, width) > _RATIO:
        raise InputError(
            f"an image of {width} x {height} pixels is longer than {_RATIO} times its other side",
            fix="cut it, the processor refuses it",
        )
    high, wide = max(factor, round(height / factor) * factor), max(factor, round(width / factor) * factor)
    if high * wide > max_pixels:
        beta = math.sqrt(height * width / max_pixels)
        high = max(factor, math.floor(height / beta / factor) * factor)
        wide = max(factor, math.floor(width / beta / factor) * factor)
    elif high * wide < min_pixels:
        beta = math.sqrt(min_pixels / (height * width))
        high, wide = math.ceil(height * beta / factor) * factor, math.ceil(width * beta / factor) * factor
    return high, wide


def bounded(images: Images) -> tuple[int, int]:
    """(height, width) after a tool's own bound on the area.

    llamafactory 0.9.5 ``data/mm_plugin.py`` ``_preprocess_image``: both sides by sqrt(bound / area), cut to integers.
    """
    high, wide, bound = images.height, images.width, images.max_pixels
    if bound and high * wide > bound:
        scale = math.sqrt(bound / (high * wide))
        high, wide = max(1, int(high * scale)), max(1, int(wide * scale))
    return high, wide


def grid(tower: Tower, images: Images) -> Grid:
    """Patches and tokens of a sample's pictures.

    Raises:
        InputError: a picture that the processor refuses.
        NotModelled: the rule of this family is not written down.
    """
    high, wide = bounded(images)
    if tower.kind in SMART:
        factor = tower.patch * tower.merge
        high, wide = smart_resize(high, wide, factor, tower.min_pixels, tower.max_pixels)
        patches = (high // tower.patch) * (wide // tower.patch)
        return Grid(images.count, patches, images.count * patches // tower.merge**2)
    if tower.kind == "mistral3":
        return _pixtral(tower, images.count, high, wide)
    if tower.kind == "llava_next":
        return _anyres(tower, images.count, high, wide)
    if tower.image:
        tiles = _tiles(tower, high, wide)
        patches = (tower.image // tower.patch) ** 2
        return Grid(images.count * tiles, patches, images.count * tiles * (tower.tokens or patches))
    raise NotModelled(
        f"how {tower.kind} turns pixels into patches is not modelled yet", fix="leave the images out for a lower bound"
    )


def _tiles(tower: Tower, high: int, wide: int) -> int:
    """Tiles of a picture: the grid nearest to its shape, and the whole picture scaled down beside more than one."""
    if tower.max_tiles == 1:
        return 1
    side = tower.image
    grids = [(r, c) for r in range(1, tower.max_tiles + 1) for c in range(1, tower.max_tiles // r + 1)]
    # models/got_ocr2 get_optimal_tiled_canvas: the nearest ratio, and of equals the larger one if the picture
    # covers more than half of it
    best, gap = (1, 1), math.inf
    for rows, columns in sorted(grids, key=lambda g: g[0] * g[1]):
        difference = abs(wide / high - columns / rows)
        larger = difference == gap and high * wide > 0.5 * side * side * rows * columns
        if difference < gap or larger:
            best, gap = (rows, columns), difference
    count = best[0] * best[1]
    return count + 1 if count > 1 else 1


def _pixtral(tower: Tower, count: int, high: int, wide: int) -> Grid:
    """Scaled down to the longest edge, up to whole merged patches; a token ends each row.

    models/pixtral/image_processing_pixtral.py ``get_resize_output_image_size``, processing_mistral3.py.
    """
    ratio = max(high / tower.image, wide / tower.image)
    if ratio > 1:
        high, wide = math.floor(high / ratio), math.floor(wide / ratio)
    factor = tower.patch * tower.merge
    rows, columns = (high - 1) // factor + 1, (wide - 1) // factor + 1
    return Grid(count, rows * columns * tower.merge**2, count * rows * (columns + 1))


_PINPOINTS = ((336, 672), (672, 336), (672, 672), (1008, 336), (336, 1008))  # configuration_llava_next.py


def _anyres(tower: Tower, count: int, high: int, wide: int) -> Grid:
    """The whole picture and the tiles of the best of five canvases (models/llava_next/image_processing_llava_next.py).

    ``select_best_resolution``: most pixels used, then fewest wasted. Of the tiles' features the padding is cut
    away and a token ends each row (modeling_llava_next.py ``unpad_image``).
    """
    best, used, wasted = _PINPOINTS[0], 0, math.inf
    for canvas_high, canvas_wide in _PINPOINTS:
        scale = min(canvas_wide / wide, canvas_high / high)
        effective = min(int(wide * scale) * int(high * scale), wide * high)
        waste = canvas_high * canvas_wide - effective
        if effective > used or (effective == used and waste < wasted):
            best, used, wasted = (canvas_high, canvas_wide), effective, waste
    side = tower.image // tower.patch
    tall, broad = best[0] // tower.image * side, best[1] // tower.image * side
    if wide / high > broad / tall:
        tall -= 2 * ((tall - int(high * broad / wide)) // 2)
    else:
        broad -= 2 * ((broad - int(wide * tall / high)) // 2)
    tiles = 1 + (best[0] // tower.image) * (best[1] // tower.image)
    return Grid(count * tiles, side * side, count * (side * side + tall * broad + tall))
