"""Write src/finefit/catalog/data/tool_defaults.csv: every key of a tool's configuration, its type and default.

The tables are read from the tools' own source, without importing it:

    pip download --no-deps llamafactory==0.9.5 transformers==5.6.0 transformers==5.24.0 peft==0.21.2
    unzip -d llamafactory-0.9.5 llamafactory-0.9.5-*.whl    # and so on, one folder each
    python scripts/extract_tool_defaults.py FOLDER_WITH_THOSE_FOLDERS
"""

from __future__ import annotations

import ast
import csv
import json
import sys
from pathlib import Path

# (tool, version) -> (library, version, file, classes): the classes whose fields are the tool's keys.
SCHEMAS: dict[tuple[str, str], list[tuple[str, str, str, tuple[str, ...]]]] = {
    ("llamafactory", "0.9.5"): [
        (
            "llamafactory",
            "0.9.5",
            "llamafactory/hparams/model_args.py",
            (
                "BaseModelArguments",
                "QuantizationArguments",
                "ProcessorArguments",
                "ExportArguments",
                "VllmArguments",
                "SGLangArguments",
                "KTransformersArguments",
            ),
        ),
        ("llamafactory", "0.9.5", "llamafactory/hparams/data_args.py", ("DataArguments",)),
        (
            "llamafactory",
            "0.9.5",
            "llamafactory/hparams/finetuning_args.py",
            (
                "FreezeArguments",
                "LoraArguments",
                "OFTArguments",
                "RLHFArguments",
                "GaloreArguments",
                "ApolloArguments",
                "BAdamArgument",
                "SwanLabArguments",
                "FinetuningArguments",
            ),
        ),
        ("llamafactory", "0.9.5", "llamafactory/hparams/generating_args.py", ("GeneratingArguments",)),
        (
            "llamafactory",
            "0.9.5",
            "llamafactory/hparams/training_args.py",
            ("RayArguments", "ProfilerArguments", "Fp8Arguments", "TrainingArguments"),
        ),
        ("transformers", "5.6.0", "transformers/training_args.py", ("TrainingArguments",)),
        ("transformers", "5.6.0", "transformers/training_args_seq2seq.py", ("Seq2SeqTrainingArguments",)),
    ],
    ("transformers", "5.24.0"): [
        ("transformers", "5.24.0", "transformers/training_args.py", ("TrainingArguments",)),
        ("transformers", "5.24.0", "transformers/utils/quantization_config.py", ("BitsAndBytesConfig",)),
        ("peft", "0.21.2", "peft/tuners/lora/config.py", ("LoraConfig",)),
    ],
}
# Defaults that are names in the source, by their value in the installed version.
NAMES = {
    "AttentionFunction.AUTO": "auto",
    "EngineName.HF": "huggingface",
    "QuantizationMethod.BNB": "bnb",
    "default_optim": "adamw_torch_fused",  # training_args.py: torch >= 2.8, else adamw_torch
}
SCALARS = {"int", "float", "bool", "str"}


def kind_of(annotation: ast.expr) -> str:
    """int, float, bool, str or any, with ? where None is allowed; a Literal or an enum reads as str."""
    parts = [ast.unparse(part) for part in _union(annotation)]
    optional = "None" in parts
    names = {"str" if p.startswith("Literal") or (p[0].isupper() and "[" not in p) else p for p in parts if p != "None"}
    return (names.pop() if len(names) == 1 and names <= SCALARS else "any") + ("?" if optional else "")


def _union(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BinOp):
        return [*_union(node.left), *_union(node.right)]
    if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "Optional":
        return [*_union(node.slice), ast.Constant(None)]
    return [node]


def default_of(value: ast.expr | None) -> str | None:
    """The default as JSON; None where the source computes it."""
    if isinstance(value, ast.Call) and ast.unparse(value.func) == "field":
        words = {k.arg: k.value for k in value.keywords}
        if "init" in words and ast.unparse(words["init"]) == "False":
            raise LookupError("not a key")
        value = words.get("default")
    if value is None:
        return None
    try:
        return json.dumps(ast.literal_eval(value))
    except ValueError:
        pass
    text = ast.unparse(value)
    if text in NAMES:
        return json.dumps(NAMES[text])
    try:
        return json.dumps(eval(compile(ast.Expression(value), "default", "eval"), {"__builtins__": {}}))
    except Exception:
        return None


def fields(source: Path, classes: tuple[str, ...]) -> dict[str, tuple[str, str | None]]:
    """Key -> (kind, default) of the dataclass fields, or of __init__'s arguments where there are none."""
    out: dict[str, tuple[str, str | None]] = {}
    tree = ast.parse(source.read_text(encoding="utf-8"))
    for node in (n for n in tree.body if isinstance(n, ast.ClassDef) and n.name in classes):
        annotated = [n for n in node.body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)]
        for item in annotated:
            try:
                out[item.target.id] = (kind_of(item.annotation), default_of(item.value))  # type: ignore[union-attr]
            except LookupError:
                continue
        inits = [n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"]
        if not annotated and inits:
            args = inits[0].args
            pairs = zip(args.args[len(args.args) - len(args.defaults) :], args.defaults, strict=True)
            for arg, default in pairs:
                out[arg.arg] = ("any" if arg.annotation is None else kind_of(arg.annotation), default_of(default))
    return out


def main(folder: str) -> None:
    """Read the unpacked packages in ``folder`` and write the table."""
    target = Path(__file__).parents[1] / "src/finefit/catalog/data/tool_defaults.csv"
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("w", encoding="utf-8", newline="") as handle:
        writer = csv.writer(handle, lineterminator="\n")
        writer.writerow(["tool", "version", "key", "kind", "default", "library", "file"])
        for (tool, version), parts in SCHEMAS.items():
            rows: dict[str, list[str]] = {}
            for library, release, file, classes in parts:
                found = fields(Path(folder) / f"{library}-{release}" / file, classes)
                if not found:
                    raise SystemExit(f"no fields in {library} {release} {file}")
                for key, (kind, default) in found.items():
                    if not key.startswith("_"):
                        rows.setdefault(key, [kind, default or "", f"{library}@{release}", file])
            writer.writerows([tool, version, key, *row] for key, row in sorted(rows.items()))


if __name__ == "__main__":
    main(sys.argv[1])
