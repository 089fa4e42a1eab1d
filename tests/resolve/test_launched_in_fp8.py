"""fp8 that only the launcher's file asks for."""

from __future__ import annotations

from pathlib import Path

from finefit.resolve.any_config import resolve_any


def test_fp8_of_the_launchers_file_is_that_of_the_run(tmp_path: Path) -> None:
    """accelerate 1.15.0 runs the layers' products in fp8 under ``mixed_precision: fp8``, whatever the script says."""
    (tmp_path / "two.yaml").write_text("distributed_type: MULTI_GPU\nmixed_precision: fp8\nnum_processes: 2\n")
    script = tmp_path / "run.sh"
    script.write_text(
        "accelerate launch --config_file two.yaml trl sft --model_name_or_path gpt2 --dataset_name d "
        "--max_length 512 --per_device_train_batch_size 1 --bf16 true\n"
    )
    found = resolve_any(script)
    assert found.recipe is not None and found.recipe.products == "fp8"
    assert any("fp8" in sentence for sentence in found.assumptions)
