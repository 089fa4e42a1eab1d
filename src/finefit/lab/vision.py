"""Vision-language models for the tracer: their configuration, what a processor hands over, and grids of patches.

transformers 5.24.0. Code that reads the values of ``image_grid_thw`` cannot run on fake tensors; the helpers of
``transformers.vision_utils`` run on real ones instead, and their results become fake CUDA tensors of that shape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from importlib import import_module
from typing import Any
from unittest.mock import patch

import torch
from torch._subclasses import fake_tensor
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_map
from transformers import CONFIG_MAPPING

from finefit.errors import NotModelled
from finefit.workload.model import Model
from finefit.workload.pixels import grid
from finefit.workload.recipe import Recipe
from finefit.workload.tower import Tower
from finefit.workload.vision import CHANNELS, LLAVA, QWEN

_ROPE_THETA = 10_000.0
_IMAGE_TOKEN = 5  # any id that the vocabulary has
_SMALL = 1 << 16  # elements of a tensor whose values the fake mode keeps, enough for grids and window offsets


def whole_config(model: Model, text: dict[str, Any]) -> Any:
    """The configuration of tower, projector and language model.

    Args:
        text: fields of the language model's own configuration.
    """
    tower = model.tower
    assert tower is not None
    text = dict(text)
    if tower.kind in QWEN:
        half = model.head_dim // 2
        sections = [half - 2 * (half // 3), half // 3, half // 3]
        text["rope_parameters"] = {"rope_type": "default", "rope_theta": _ROPE_THETA, "mrope_section": sections}
    outer: dict[str, Any] = {"image_token_id": _IMAGE_TOKEN, "tie_word_embeddings": model.tied}
    if tower.kind in LLAVA or tower.kind in ("paligemma", "mistral3"):
        outer["image_token_index"] = _IMAGE_TOKEN
        text["model_type"] = model.family
    if tower.kind == "mistral3":
        outer |= {"spatial_merge_size": tower.merge, "multimodal_projector_bias": tower.projector_bias}
    if tower.kind == "gemma3":
        outer["mm_tokens_per_image"] = tower.tokens
    return CONFIG_MAPPING[tower.kind](text_config=text, vision_config=_vision(tower), **outer)


def _vision(tower: Tower) -> dict[str, Any]:
    body, kind = tower.body, tower.kind
    fields: dict[str, Any] = {"patch_size": tower.patch, "hidden_act": body.activation}
    if kind in QWEN:
        fields |= {
            "depth": body.layers,
            "num_heads": body.heads,
            "temporal_patch_size": tower.temporal,
            "spatial_merge_size": tower.merge,
        }
        if kind == "qwen2_vl":
            return {**fields, "embed_dim": body.hidden, "hidden_size": tower.out, "mlp_ratio": body.ffn // body.hidden}
        fields |= {"hidden_size": body.hidden, "intermediate_size": body.ffn, "out_hidden_size": tower.out}
        if tower.window:
            return {**fields, "window_size": tower.window, "fullatt_block_indexes": list(tower.full)}
        fields["num_position_embeddings"] = tower.positions
        return {**fields, "deepstack_visual_indexes": list(tower.taps)} if tower.taps else fields
    names = {"mistral3": "pixtral", "llava": "clip_vision_model", "llava_next": "clip_vision_model"}
    return {
        **fields,
        "model_type": names.get(kind, "siglip_vision_model"),
        "hidden_size": body.hidden,
        "intermediate_size": body.ffn,
        "num_hidden_layers": body.layers,
        "num_attention_heads": body.heads,
        "image_size": tower.image,
        **({} if kind in names else {"vision_use_head": False}),
    }


def pictures(model: Model, recipe: Recipe, device: str) -> dict[str, Any]:
    """What a processor hands over beside the text: pixels in fp32, shapes of the grids, positions.

    Raises:
        NotModelled: the pictures of this family cannot be made up yet.
    """
    tower, images = model.tower, recipe.images
    if tower is None or images is None:
        return {}
    found, rows = grid(tower, images), recipe.micro_batch
    count = rows * found.sequences
    if tower.kind in QWEN:
        each = CHANNELS * tower.temporal * tower.patch**2
        high, wide = _sides(found.patches, tower.merge)
        return {
            "pixel_values": torch.zeros(count * found.patches, each, device=device),
            "image_grid_thw": torch.tensor([[1, high, wide]] * count),
            "position_ids": torch.zeros(3, rows, recipe.seq_len, dtype=torch.long, device=device),
        }
    if tower.kind == "mistral3":
        high, wide = (side * tower.patch for side in _sides(found.patches, tower.merge))
        sizes = torch.tensor([[high, wide]] * count)
        return {"pixel_values": torch.zeros(count, CHANNELS, high, wide, device=device), "image_sizes": sizes}
    if tower.kind in ("llava", "gemma3", "paligemma"):
        batch = {"pixel_values": torch.zeros(count, CHANNELS, tower.image, tower.image, device=device)}
        if tower.kind != "llava":
            batch["token_type_ids"] = torch.zeros(rows, recipe.seq_len, dtype=torch.long, device=device)
        return batch
    raise NotModelled(f"pictures of {tower.kind} cannot be traced yet", fix="trace the model on text alone")


def _sides(patches: int, merge: int) -> tuple[int, int]:
    """Two whole sides in merged patches, as nearly square as they can be."""
    merged = patches // merge**2
    high = next(side for side in range(int(merged**0.5), 0, -1) if merged % side == 0)
    return high * merge, merged // high * merge


def freeze(module: Any, recipe: Recipe) -> None:
    """Parts that the recipe leaves alone."""
    for name, parameter in module.named_parameters():
        tower = any(part in name for part in ("visual.", "vision_tower."))
        projector = any(part in name for part in ("merger", "multi_modal_projector", "image_newline"))
        part = "projector" if projector else "tower" if tower else "language"
        if part in recipe.frozen:
            parameter.requires_grad_(False)


def _on_values(function: Callable[..., Any], keep: bool) -> Callable[..., Any]:
    """``function`` run on the values of its arguments, its tensors then fake ones.

    Args:
        keep: results stay on the CPU with their values, as lengths that are read again.
    """

    def known(x: Any) -> Any:
        return x.constant if isinstance(x, fake_tensor.FakeTensor) else x

    def on_values(*args: Any, **kwargs: Any) -> Any:
        with _disable_current_modes():
            out = function(
                *tree_map(known, args), **{k: None if k == "kwargs" else known(v) for k, v in kwargs.items()}
            )

        def fake(x: Any) -> Any:
            if not isinstance(x, torch.Tensor):
                return x
            if keep or x is last:
                return torch.tensor(x.tolist(), dtype=x.dtype)
            return torch.empty(x.shape, dtype=x.dtype, device="cuda")

        windows = function.__name__ == "get_vision_window_index"
        last = out[1] if windows else None  # offsets of the windows
        return tree_map(fake, out)

    return on_values


def _deepstack(count: int) -> Callable[..., torch.Tensor]:
    """``_deepstack_process`` for so many image tokens, which a mask of fake tensors cannot count."""

    def process(self: Any, hidden: torch.Tensor, mask: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
        hidden = hidden.clone()
        places = torch.empty(count, 2, dtype=torch.long, device=hidden.device)  # as ``nonzero`` gives them
        row, column = places.unbind(1)
        hidden[row, column] = hidden[row, column] + features
        return hidden

    return process


def _no_initial_values() -> AbstractContextManager[Any]:
    """Some initial values (SigLIP's, ModernBERT's) are made from numbers that fake tensors do not have."""
    from transformers import PreTrainedModel

    return patch.object(PreTrainedModel, "initialize_weights", lambda self: None)


@contextmanager
def known_grids(model: Model, recipe: Recipe) -> Iterator[None]:
    """Let the code of the model's tower read its grids for the duration of the block, and build it without values."""
    tower = model.tower
    if tower is None:
        with _no_initial_values() if model.head != "lm" else nullcontext():
            yield
        return
    import transformers.vision_utils as helpers

    module = import_module(f"transformers.models.{tower.kind}.modeling_{tower.kind}")
    with ExitStack() as stack:
        stack.enter_context(_no_initial_values())
        # asks whether there are as many image tokens as features, which the tracker answers as it does for padding
        stack.enter_context(patch.object(module, "torch_compilable_check", lambda *args: None))
        if tower.taps and recipe.images is not None:
            language = next(c for n, c in vars(module).items() if n.endswith("TextModel"))
            count = recipe.micro_batch * grid(tower, recipe.images).tokens
            stack.enter_context(patch.object(language, "_deepstack_process", _deepstack(count)))
        stack.enter_context(patch.object(fake_tensor, "CONSTANT_NUMEL_LIMIT", _SMALL))
        for name in dir(helpers):
            if name.startswith("get_vision") and hasattr(module, name):
                keep = name in ("get_vision_attention_seqlens", "get_vision_cu_seqlens")
                stack.enter_context(patch.object(module, name, _on_values(getattr(helpers, name), keep)))
        if tower.kind == "mistral3":  # it moves the sizes of images to the device to multiply them
            stack.enter_context(patch.object(torch, "as_tensor", lambda x, device=None: x))
        yield


def untouched(recipe: Recipe) -> str | None:
    """PEFT's ``exclude_modules``: the parts that get no adapters; None: all may."""
    names = {"tower": r"visual\.blocks|vision_tower", "projector": r"merger|multi_modal_projector"}
    parts = [names[part] for part in names if part in recipe.frozen]
    return rf".*({'|'.join(parts)}).*" if parts else None
