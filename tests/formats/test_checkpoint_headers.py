"""Headers of safetensors and GGUF files. Layouts and counts are those that the libraries publish."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from finefit.errors import InputError, NotModelled
from finefit.formats import gguf, packing, safetensors
from finefit.formats.packing import contents
from finefit.formats.safetensors import Tensor
from finefit.resolve.flags import resolve_flags
from finefit.resolve.models import resolve_model
from finefit.workload.parameters import parameter_count

LLAMA = {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4,
    "intermediate_size": 128, "vocab_size": 100,
}  # fmt: skip


def write(path: Any, tensors: dict[str, Tensor]) -> None:
    """A sparse file: the header, and a hole where the data would be."""
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, tensor in tensors.items():
        header[name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [at, at + tensor.bytes]}
        at += tensor.bytes
    text = json.dumps(header).encode()
    with path.open("wb") as handle:
        handle.write(struct.pack("<Q", len(text)) + text)
        handle.truncate(8 + len(text) + at)


def dense(vocab: int = 100, hidden: int = 64, ffn: int = 128) -> dict[str, Tensor]:
    """A Llama of one layer, untied, as transformers saves it."""
    prefix = "model.layers.0"
    sides = {
        "model.embed_tokens": (vocab, hidden), "lm_head": (vocab, hidden), "model.norm": (hidden,),
        f"{prefix}.input_layernorm": (hidden,), f"{prefix}.post_attention_layernorm": (hidden,),
        **{f"{prefix}.self_attn.{name}_proj": (hidden, hidden) for name in "qkvo"},
        f"{prefix}.mlp.gate_proj": (ffn, hidden), f"{prefix}.mlp.up_proj": (ffn, hidden),
        f"{prefix}.mlp.down_proj": (hidden, ffn),
    }  # fmt: skip
    return {f"{name}.weight": Tensor("BF16", shape) for name, shape in sides.items()}


def test_the_header_of_a_large_checkpoint_counts_as_its_config_does(tmp_path):
    tensors = dense(vocab=128_256, hidden=4096, ffn=14336)
    write(tmp_path / "model.safetensors", tensors)
    found = contents(safetensors.read(tmp_path / "model.safetensors"))
    config = {
        **LLAMA,
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "intermediate_size": 14336,
        "vocab_size": 128_256,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    model = resolve_model(str(tmp_path / "model.safetensors"))
    assert found.parameters == parameter_count(model)
    assert found.bytes == 2 * found.parameters
    assert (model.checkpoint_dtype.value, model.dtype_stated) == ("bf16", True)


def test_parts_are_read_through_their_index_and_lead_nowhere_else(tmp_path):
    tensors = dense()
    names = list(tensors)
    for part, chosen in (("a.safetensors", names[:4]), ("b.safetensors", names[4:])):
        write(tmp_path / part, {name: tensors[name] for name in chosen})
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": dict.fromkeys(names, "b.safetensors") | {names[0]: "a.safetensors"}}))
    assert safetensors.folder(tmp_path) == tensors
    for name in ("../a.safetensors", "/etc/passwd", "x\\y", "..\\z", "a\0"):
        index.write_text(json.dumps({"weight_map": {"w": name}}))
        with pytest.raises(InputError, match="no parts"):
            safetensors.folder(tmp_path)


# A linear layer of 256 inputs and 512 outputs in each packed form; the sources are those of formats/packing.py
_PACKED = {
    "gptq 4": ({"qweight": ("I32", (32, 512)), "qzeros": ("I32", (2, 64)), "scales": ("F16", (2, 512)),
                "g_idx": ("I32", (256,))}, "gptq", 4, 128),
    "gptq 3": ({"qweight": ("I32", (24, 512)), "qzeros": ("I32", (1, 48)), "scales": ("F16", (1, 512)),
                "g_idx": ("I32", (256,))}, "gptq", 3, 256),
    "gptq 8": ({"qweight": ("I32", (64, 512)), "qzeros": ("I32", (2, 128)), "scales": ("F16", (2, 512)),
                "g_idx": ("I32", (256,))}, "gptq", 8, 128),
    "awq": ({"qweight": ("I32", (256, 64)), "qzeros": ("I32", (2, 64)), "scales": ("F16", (2, 512))}, "awq", 4, 128),
    "bnb 4": ({"weight": ("U8", (65_536, 1)), "weight.absmax": ("U8", (2048,)), "weight.quant_map": ("F32", (16,)),
               "weight.nested_absmax": ("F32", (8,)), "weight.nested_quant_map": ("F32", (256,)),
               "weight.quant_state.bitsandbytes__nf4": ("U8", (90,))}, "bitsandbytes", 4, None),
    "bnb 8": ({"weight": ("I8", (512, 256)), "SCB": ("F32", (512,)), "weight_format": ("U8", ())},
              "bitsandbytes", 8, None),
    "fp8": ({"weight": ("F8_E4M3", (512, 256)), "weight_scale_inv": ("F32", (4, 2))}, "fp8", 8, None),
    "nvfp4": ({"weight": ("U8", (512, 128)), "weight_scale": ("F8_E4M3", (512, 16)), "weight_scale_2": ("F32", ()),
               "input_scale": ("F32", ())}, "nvfp4", 4, 16),
    "compressed": ({"weight_packed": ("I32", (512, 32)), "weight_scale": ("BF16", (512, 8)),
                    "weight_shape": ("I32", (2,))}, "compressed-tensors", 4, 32),
}  # fmt: skip


@pytest.mark.parametrize("form", _PACKED)
def test_a_packed_layer_has_the_parameters_of_the_plain_one(form):
    parts, quant, bits, group = _PACKED[form]
    tensors = {f"model.layers.0.mlp.up_proj.{name}": Tensor(dtype, shape) for name, (dtype, shape) in parts.items()}
    found = contents({**tensors, "model.norm.weight": Tensor("F16", (256,))})
    assert (found.parameters, found.quant, found.bits, found.group) == (256 * 512 + 256, quant, bits, group)


def test_mxfp4_experts():
    """gpt-oss-20b: [32 experts, 5760, 90 groups of 16 bytes] stands for 2,880 x 5,760 weights an expert."""
    tensors = {
        "experts.gate_up_proj_blocks": Tensor("U8", (32, 5760, 90, 16)),
        "experts.gate_up_proj_scales": Tensor("U8", (32, 5760, 90)),
        "experts.gate_up_proj_bias": Tensor("BF16", (32, 5760)),
    }
    found = contents(tensors)
    assert found.parameters == 32 * 5760 * 2880 + 32 * 5760
    assert (found.quant, found.bits, found.group) == ("mxfp4", 4, 32)


def test_a_sidecar_says_what_the_config_does_not(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({**LLAMA, "torch_dtype": "float16"}))
    assert resolve_model(str(tmp_path)).checkpoint_quant == ""
    for name, content, method in (
        ("hf_quant_config.json", {"quantization": {"quant_algo": "FP8"}}, "modelopt"),
        ("quant_config.json", {"w_bit": 4, "q_group_size": 128, "version": "GEMM"}, "awq"),
        ("quantize_config.json", {"bits": 4, "group_size": 128, "desc_act": False}, "gptq"),
    ):
        (tmp_path / name).write_text(json.dumps(content))
        assert resolve_model(str(tmp_path)).checkpoint_quant == method


@pytest.mark.parametrize(("bits", "group", "expected"), [(3, 64, (3, 64)), (8, -1, (8, 64)), (None, None, (4, 128))])
def test_bits_and_groups_of_a_stored_quantisation_are_planned(tmp_path, bits, group, expected):
    folder = tmp_path / "mine-gptq"
    folder.mkdir()
    block = {"quant_method": "gptq", "bits": bits, "group_size": group}
    (folder / "config.json").write_text(json.dumps({**LLAMA, "torch_dtype": "float16", "quantization_config": block}))
    quant = resolve_flags(str(folder), method="lora", seq=64).recipe.quant
    assert (quant.kind, quant.bits, quant.group) == ("gptq", *expected)


def test_a_config_of_no_config_size_is_refused(tmp_path):
    (tmp_path / "config.json").write_bytes(b" " * 5_000_001)
    with pytest.raises(InputError, match="larger than any"):
        resolve_model(str(tmp_path))


def gguf_file(keys: dict[str, Any], tensors: dict[str, tuple[int, tuple[int, ...]]]) -> bytes:
    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    out = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys))
    for name, value in keys.items():
        if isinstance(value, list):
            out += text(name) + struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(text, value))
        elif isinstance(value, str):
            out += text(name) + struct.pack("<I", 8) + text(value)
        else:
            out += text(name) + struct.pack("<II", 4, value)
    for name, (kind, shape) in tensors.items():
        out += text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape)
        out += struct.pack("<IQ", kind, 0)
    return out


GGUF = {
    "general.architecture": "llama", "llama.embedding_length": 64, "llama.block_count": 1,
    "llama.attention.head_count": 4, "llama.attention.head_count_kv": 2, "llama.feed_forward_length": 128,
    "llama.context_length": 512, "tokenizer.ggml.tokens": ["a", "b"],
}  # fmt: skip


def test_a_gguf_header_is_a_model(tmp_path):
    path = tmp_path / "tiny.gguf"
    path.write_bytes(gguf_file(GGUF, {"token_embd.weight": (12, (64, 100)), "output.weight": (14, (64, 100))}))
    model = resolve_model(str(path))
    assert (model.name, model.hidden, model.kv_heads, model.vocab, model.tied) == ("tiny", 64, 2, 100, False)
    assert gguf.read(path).parameters == 2 * 6400
    path.write_bytes(gguf_file(GGUF, {"token_embd.weight": (1, (64, 100))}))
    assert resolve_model(str(path)).tied
    path.write_bytes(gguf_file({**GGUF, "general.architecture": "rwkv7"}, {}))
    with pytest.raises(NotModelled, match="rwkv7"):
        resolve_model(str(path))


@settings(max_examples=300)
@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_are_read_or_refused(tmp_path_factory, data, magic):
    folder = tmp_path_factory.getbasetemp()
    path = folder / "any.bin"
    path.write_bytes(b"GGUF\x03\0\0\0" + data if magic else data)
    for reader in (gguf.read, safetensors.read):
        with pytest.raises(InputError) as caught:
            reader(path)
        assert caught.value.fix


_SHAPES = st.lists(st.integers(0, 9), max_size=3).map(tuple)
_NAMES = st.sampled_from(
    ["a.qweight", "a.qzeros", "a.scales", "a.g_idx", "a.weight", "a.weight.absmax", "a.SCB", "a.weight_packed",
     "a.weight_scale", "a.weight_scale_2", "a_blocks", "a_scales"]
)  # fmt: skip


@given(st.dictionaries(_NAMES, st.builds(Tensor, st.sampled_from(["I32", "U8", "I8", "F16", "F8_E4M3", "?"]), _SHAPES)))
def test_any_tensors_are_counted(tensors):
    found = packing.contents(tensors)
    assert found.parameters >= 0
    assert found.bytes == sum(tensor.bytes for tensor in tensors.values())
