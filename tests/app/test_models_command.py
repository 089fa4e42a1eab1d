"""finefit models: one model's facts, or names that look like what was typed."""

from __future__ import annotations

import json
import struct

from finefit.app.cli import main

CONFIG = {
    "model_type": "llama", "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16,
    "vocab_size": 10, "tie_word_embeddings": True,
}  # fmt: skip


def checkpoint(folder, names):
    """Weights of a tied Llama of one layer: 10 x 8 + 4 x 8 x 8 + 3 x 8 x 16 + 3 x 8 = 744 parameters."""
    prefix = "model.layers.0"
    sides = {
        "model.embed_tokens": [10, 8], "lm_head": [10, 8], "model.norm": [8], f"{prefix}.input_layernorm": [8],
        f"{prefix}.post_attention_layernorm": [8], **{f"{prefix}.self_attn.{n}_proj": [8, 8] for n in "qkvo"},
        f"{prefix}.mlp.gate_proj": [16, 8], f"{prefix}.mlp.up_proj": [16, 8], f"{prefix}.mlp.down_proj": [8, 16],
    }  # fmt: skip
    header = {
        f"{name}.weight": {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]}
        for name, shape in sides.items()
        if name in names or name != "lm_head"
    }
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text)
    (folder / "config.json").write_text(json.dumps(CONFIG))


def test_a_folder_with_weights_is_counted(tmp_path, capsys):
    checkpoint(tmp_path, ())
    assert main(["models", str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["parameters"] == found["checkpoint"]["parameters"] == 744
    assert found["checkpoint"]["bytes_by_dtype"] == {"F32": 4 * 744}
    assert found["checkpoint_dtype"] == "fp32"
    assert main(["models", str(tmp_path), "--lang", "en"]) == 0
    assert "exactly these parameters" in capsys.readouterr().out


def test_a_tied_head_stored_twice_is_said(tmp_path, capsys):
    checkpoint(tmp_path, ("lm_head",))
    assert main(["models", str(tmp_path / "model.safetensors"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["parameters"], found["checkpoint"]["parameters"]) == (744, 824)
    assert found["checkpoint"]["head_stored_twice"] is True


def test_words_find_names(capsys):
    assert main(["models", "coder", "7b"]) == 0
    shown = capsys.readouterr().out.split()
    assert "Qwen/Qwen2.5-Coder-7B" in shown
    assert all("coder" in name.lower() for name in shown)
    assert main(["models", "qwen2.5-cooder"]) == 0
    assert "Coder" in capsys.readouterr().out


def test_online_needs_a_hub_id(tmp_path, capsys):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    assert main(["models", str(tmp_path), "--online"]) == 2
    assert "no Hub id" in capsys.readouterr().err
