"""LLaMA-Factory's dataset_info.json: which file a data set's name stands for (llamafactory 0.9.5 data/parser.py)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from finefit.errors import InputError
from finefit.formats import json_file, yaml11

FILE_NAME = "dataset_info.json"  # llamafactory 0.9.5 extras/constants.py DATA_CONFIG


@dataclass(frozen=True, slots=True)
class DataSet:
    """One entry.

    Attributes:
        name: the name the config uses.
        file: the file or folder, relative to the folder of dataset_info.json; None for one on a hub or in a script.
        num_samples: samples drawn from it (with repetition where it holds fewer); None for all.
    """

    name: str
    file: str | None
    num_samples: int | None


def read(path: str | Path) -> Mapping[str, tuple[object, str]]:
    """All entries by name, each with its place, for ``entry``: one that is malformed leaves the others usable.

    Raises:
        InputError: the file cannot be read.
    """
    document = json_file.load_mapping(yaml11.read_text(Path(path)), str(path))
    return {key: (value, f"{path}:{line}") for key, value, line in document.items}


def entry(name: str, value: object, where: str) -> DataSet:
    """One entry.

    Raises:
        InputError: it is malformed.
    """
    if not isinstance(value, Mapping):
        raise InputError(f"the entry of {name} is not an object", where=where, fix='write {"file_name": "..."}')
    # data/parser.py get_dataset_list: a hub, a script or a cloud file comes before file_name
    remote = any(f"{source}_url" in value for source in ("hf_hub", "ms_hub", "om_hub", "script"))
    file = None if remote or "cloud_file_name" in value else value.get("file_name")
    if file is not None and not isinstance(file, str):
        raise InputError(f"file_name of {name} is not text", where=where, fix="write the file's name")
    count = value.get("num_samples")
    if count is not None and (not isinstance(count, int) or isinstance(count, bool) or count < 1):
        raise InputError(f"num_samples of {name} is not a whole number of 1 or more", where=where, fix="correct it")
    return DataSet(name, file, count)
