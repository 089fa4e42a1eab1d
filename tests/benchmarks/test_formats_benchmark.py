"""The comparison with a manifest: what counts, what agrees, and the real collection where it is here."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest

from benchmarks import formats, manifest

SHARED = Path(__file__).parents[2].parent / "shared" / "configs"
COLUMNS = ("file", "tool", "repo", "path", "kind", "companion", "nodes", *manifest.COLUMNS.values())


def folder(tmp_path, rows):
    (tmp_path / "axolotl").mkdir()
    for number, row in enumerate(rows):
        (tmp_path / "axolotl" / f"{number}.yaml").write_text(row.pop("text"), "utf-8")
    with (tmp_path / manifest.NAME).open("w", encoding="utf-8", newline="") as handle:
        writer = csv.DictWriter(handle, COLUMNS, restval="")
        writer.writeheader()
        for number, row in enumerate(rows):
            place = {"file": f"axolotl/{number}.yaml", "tool": "axolotl", "repo": "o/r", "path": f"x/{number}.yaml"}
            writer.writerow(place | {"kind": "train"} | row)
    return tmp_path


def test_agreement_is_counted_over_what_either_side_says(tmp_path, capsys):
    text = "base_model: a/b\nadapter: lora\nlora_r: 16\nsequence_len: 2048\n"
    said = {
        "model": "a/b", "task": "sft", "method": "lora", "micro_batch": "1", "grad_accum": "1", "packing": "no",
        "optimizer": "adamw_torch_fused", "grad_ckpt": "off", "strategy": "single/ddp", "offload": "none",
    }  # fmt: skip
    where = folder(tmp_path, [{"text": text, **said, "rank": "8", "seq_len": ""}])
    assert formats.main([str(where), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["scored"], found["agreement"]) == (12, 10 / 12)  # gpus and bits: neither side says a thing
    wrong = {item["field"]: (item["read"], item["manifest"], item["line"]) for item in found["worst"]}
    assert wrong == {"rank": (16, 8, "lora_r: 16"), "seq_len": (2048, None, "sequence_len: 2048")}
    assert formats.main([str(where)]) == 0
    assert "axolotl/0.yaml: rank: read 16, manifest 8" in capsys.readouterr().out


def test_a_folder_without_a_manifest_is_one_sentence(tmp_path, capsys):
    assert formats.main([str(tmp_path)]) == 2
    assert "MANIFEST.csv" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("field", "cell", "meaning"),
    [
        ("strategy", "single/ddp", "none"),
        ("strategy", "fsdp2(dtensor)", "fsdp2"),
        ("strategy", "fsdp(1)", "fsdp1"),
        ("strategy", "from accelerate config", None),
        ("strategy", "ddp+device_map(naive pp)", "ddp+device_map"),
        ("offload", "actor param+optimizer; ref param", ("optimizer", "params", "ref_params")),
        ("offload", "optimizer+param; optimizer/model during rollout", ("optimizer", "params")),
        ("offload", "param+grad (fsdp); activations(True)", ("activations", "gradients", "params")),
        ("checkpointing", "on (multi-GPU always)", "full"),
        ("optimizer", "bnb.PagedAdamW8bit in_bwd", "pagedadamw8bit"),
        ("gpus", "H100:4", 8),
    ],
)  # fmt: skip
def test_words_of_a_manifest(field, cell, meaning):
    assert manifest.meaning(field, cell, {"nodes": "2"}) == meaning


needs_collection = pytest.mark.skipif(not SHARED.is_dir(), reason="the collection of real configs is not here")


@needs_collection
def test_the_real_collection():
    """At least 97 % of the fields agree, at most 1 % are errors of the manifest, and every file is read."""
    found = formats.result(SHARED)
    assert found["scored"] > 1500 and not found["refused"]
    assert found["agreement"] >= 0.97 and found["manifest_error_share"] <= 0.01
    assert len(found["worst"]) <= 1
    for page in ("formats.md", "formats.zh-CN.md"):  # the figures the documentation states
        text = (Path(__file__).parents[2] / "docs" / page).read_text("utf-8")
        assert f"{found['scored']:,}" in text and f"{100 * found['agreement']:.1f} %" in text


@needs_collection
def test_known_errors_of_the_manifest_quote_lines_that_stand_there():
    """Each quoted line is in the file itself or in the companion it names."""
    texts = "\n".join(path.read_text("utf-8") for path in SHARED.rglob("*") if path.suffix in (".yaml", ".json"))
    for error in manifest.known_errors():
        assert error.line in (SHARED / error.file).read_text("utf-8") or error.line in texts


@needs_collection
def test_readings_do_not_depend_on_the_values_of_the_manifest(tmp_path):
    """With the value columns blanked, every field is read as before."""
    rows = manifest.rows(SHARED)
    for row in rows:
        (tmp_path / row["file"]).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(SHARED / row["file"], tmp_path / row["file"])
    values = set(manifest.COLUMNS.values())
    with (tmp_path / manifest.NAME).open("w", encoding="utf-8", newline="") as handle:
        writer = csv.DictWriter(handle, list(rows[0]))
        writer.writeheader()
        writer.writerows({k: "" if k in values else v for k, v in row.items()} for row in rows)
    blank = {(c.file, c.field): c.ours for c in formats.compare(tmp_path)[0]}
    full = {(c.file, c.field): c.ours for c in formats.compare(SHARED)[0] if (c.file, c.field) in blank}
    assert len(blank) > 1000 and blank == full
