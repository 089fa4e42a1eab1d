"""A model as the config.json of a local folder describes it: transformers reads the file and picks the class.

So a model is traced that finefit does not model. Nothing is fetched, and code that lies in the folder is not run
unless the caller trusts it.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import transformers
from transformers import CONFIG_MAPPING, AutoConfig

from finefit.errors import FinefitError, InputError, NotModelled
from finefit.lab.versions import quiet
from finefit.workload.dtypes import DType
from finefit.workload.model import Model

# Heads that a Trainer trains, in the order they are taken where the file names no class (encoders have a causal head
# too, which is not what they are for), and what finefit calls them.
_HEADS = {
    "AutoModelForSeq2SeqLM": "seq2seq",
    "AutoModelForMaskedLM": "mlm",
    "AutoModelForCausalLM": "lm",
    "AutoModelForImageTextToText": "lm",
    "AutoModelForTokenClassification": "token",
    "AutoModelForSequenceClassification": "sequence",
}
_DTYPES = {"float32": DType.FP32, "bfloat16": DType.BF16, "float16": DType.FP16}


@dataclass(frozen=True, slots=True)
class Configured:
    """A configuration of transformers.

    Attributes:
        trusted: code that its ``auto_map`` names is run.
        name: the file it was read from, for errors.
        own_code: it names code of its own.
    """

    config: Any
    trusted: bool
    name: str
    own_code: bool = False

    def build(self, auto: Any, **settings: Any) -> Any:
        """The model, by one of transformers' automatic classes; in 16 bits where its checkpoint is quantised."""
        config = copy.deepcopy(self.config)
        if hasattr(config, "quantization_config"):
            del config.quantization_config
        return auto.from_config(config, trust_remote_code=self.trusted, **settings)

    def auto_class(self) -> str:
        """Name of the automatic class of the model that the file names, or of the first head that it can have.

        Raises:
            NotModelled: transformers has no head for it that is trained on text.
        """
        own = (getattr(self.config, "auto_map", None) or {}) if self.trusted else {}
        found = [name for name in _HEADS if name in own or type(self.config) in _mapping(name)]
        for name in found:
            if name not in own and _mapping(name)[type(self.config)].__name__ in (self.config.architectures or ()):
                return name
        if not found:
            raise NotModelled(
                f"transformers {transformers.__version__} has no language model of type {self.config.model_type!r}",
                where=self.name,
                fix="name the folder of a language model",
            )
        return found[0]


def _mapping(name: str) -> Any:
    """Classes of configurations and models of an automatic class."""
    return getattr(transformers, name)._model_mapping


def read(path: Path, *, trusted: bool) -> Configured:
    """The configuration in a file, or in a folder's config.json.

    Raises:
        InputError: not a configuration, or one that needs code of its own that the caller does not trust.
        NotModelled: of a type that this transformers does not have.
    """
    file = path / "config.json" if path.is_dir() else path
    try:
        keys = json.loads(file.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        raise InputError(f"cannot be read: {error}", where=str(file), fix="name a model's config.json") from error
    if not isinstance(keys, dict):
        raise InputError("is not a JSON object", where=str(file), fix="name a model's config.json")
    own, known = keys.get("auto_map"), str(keys.get("model_type")) in CONFIG_MAPPING
    if own and not trusted and not known:
        raise InputError(
            "this model needs the code in its folder (auto_map), which is run only if you trust it",
            where=str(file),
            fix="read that code, then add --trust-remote-code",
        )
    if own and trusted and any("--" in str(place) for place in own.values()):
        raise InputError(
            "auto_map names code in another repository, and nothing is fetched",
            where=str(file),
            fix="put the code into the folder",
        )
    if not own and not known:
        raise NotModelled(
            f"transformers {transformers.__version__} knows no model type {keys.get('model_type')!r}",
            where=str(file),
            fix="install a release that does, or name a folder with the model's code",
        )
    try:
        where = file.parent if file.name == "config.json" else file
        with quiet():
            config = AutoConfig.from_pretrained(where, trust_remote_code=trusted, local_files_only=True)
    except Exception as error:  # the code is anyone's
        raise InputError(f"transformers cannot read it: {_first(error)}", where=str(file), fix="check it") from error
    return Configured(config, trusted and bool(own), str(file), bool(own))


def outline(found: Configured) -> Model:
    """What a recipe asks of a model that is not modelled: name, type, dtype, stored quantisation.

    Its sizes are those that the configuration states by name, 1 where it states none; a trace reads none of them.
    """
    file = Path(found.name)
    text = found.config.get_text_config()

    def size(name: str) -> int:
        value = getattr(text, name, None)
        return value if isinstance(value, int) and value > 0 else 1

    heads = size("num_attention_heads")
    stated = getattr(found.config, "dtype", None) or getattr(found.config, "torch_dtype", None)
    quant = getattr(found.config, "quantization_config", None)
    if quant is not None and not isinstance(quant, dict):
        quant = quant.to_dict()
    return Model(
        name=file.resolve().parent.name if file.name == "config.json" else file.stem,
        family=found.config.model_type,
        hidden=size("hidden_size"),
        layers=size("num_hidden_layers"),
        heads=heads,
        kv_heads=heads,
        head_dim=max(1, size("hidden_size") // heads),
        ffn=size("intermediate_size"),
        vocab=size("vocab_size"),
        tied=bool(getattr(text, "tie_word_embeddings", False)),
        head=_HEADS[found.auto_class()],
        checkpoint_dtype=_DTYPES.get(str(stated).removeprefix("torch."), DType.FP32),
        dtype_stated=stated is not None,
        checkpoint_quant=str(quant.get("quant_method") or "unknown") if quant else "",
        origin=found.name,
    )


def _first(error: Exception) -> str:
    """An error of other code in one line."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__


@contextmanager
def foreign(found: object) -> Iterator[None]:
    """What the code of a model does that nobody has looked at is refused in one sentence, not a bug of finefit."""
    try:
        yield
    except FinefitError:
        raise
    except Exception as error:
        if not isinstance(found, Configured):
            raise
        raise NotModelled(
            f"the code of {found.config.model_type} does not run on fake tensors ({_first(error)})",
            where=found.name,
            fix="trace another recipe of it, or another model",
        ) from error
