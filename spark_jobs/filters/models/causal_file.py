"""The file of a causal language model, as the registry and tables keep it.

    headrace causal model | header {"kind": "folder", "files": {name: bytes}} | those files, one behind another
                          | header {"kind": "bytes", "shape": {..}}           | parameters by name, float32

A folder in the layout of Hugging Face becomes one file, so that it has one SHA-256 and is copied as one. Weights are
taken as safetensors alone: other formats are pickles, and reading a pickle may run what somebody put into it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from spark_jobs.exceptions import InputError
from spark_jobs.filters.models.model_file import write_model_file

MAGIC: Final = b"headrace causal model\n"
_WANTED: Final = re.compile(r"config\.json|tokenizer\.json|[\w.-]+\.safetensors(\.index\.json)?")
_WEIGHTS: Final = ".safetensors"


def pack_folder(folder: Path, name: str) -> bytes:
    """A folder of config.json, tokenizer.json and weights as one file; equal folders give equal bytes.

    Args:
        folder: in the layout of Hugging Face; other files in it are left out.
        name: how errors call it.

    Raises:
        InputError: one of them is not there.
    """
    files = {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if _WANTED.fullmatch(path.name)}
    for wanted in ("config.json", "tokenizer.json", _WEIGHTS):
        if not any(found.endswith(wanted) for found in files):
            how = "save it with save_pretrained, whose weights are safetensors; pickles (.bin) are not read"
            raise InputError(f"{name}: {folder} has no {wanted}, it is no causal model in Hugging Face's layout; {how}")
    sizes = {found: len(data) for found, data in files.items()}
    return write_model_file(MAGIC, {"kind": "folder", "files": list(sizes.items())}, b"".join(files.values()))


def unpack_folder(files: list[tuple[str, int]], body: memoryview, folder: Path, name: str) -> None:
    """Write the files of a packed folder.

    Raises:
        InputError: a file has a name that no packed folder has.
    """
    start = 0
    for found, size in files:
        if not _WANTED.fullmatch(found):
            raise InputError(f"{name}: holds a file {found!r}, which no folder of a model has; add the folder again")
        (folder / found).write_bytes(body[start : start + size])
        start += size


def byte_model_file(shape: Mapping[str, int], parameters: bytes) -> bytes:
    """The file of a model over bytes; equal models have equal bytes."""
    return write_model_file(MAGIC, {"kind": "bytes", "shape": dict(shape)}, parameters)
