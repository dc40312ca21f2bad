"""Import the module of a document from the files of its repository."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import sys
from importlib.machinery import SourceFileLoader
from types import ModuleType
from typing import Any


class _Loader(SourceFileLoader):
    """Takes a file of any name for Python in UTF-8, whatever encoding it declares: documents are decoded already."""

    def source_to_code(self, data: Any, path: Any, *, _optimize: int = -1) -> Any:  # type: ignore[override]
        """The code of a file."""
        return compile(bytes(data).decode(), path, "exec", dont_inherit=True, optimize=_optimize)


def load_module(root: str, path: str) -> ModuleType:
    """Import a file of a repository under its name in its package.

    The folder above the outermost package goes first on the search path, so a repository's own modules are found before
    those of the standard library with the same names.

    Args:
        root: folder of the repository.
        path: of the file in it.
    """
    folder, name = os.path.split(os.path.join(root, path))
    parts = [] if name == "__init__.py" else [re.sub(r"\W", "_", name[:-3] if name.endswith(".py") else name)]
    while folder != root and os.path.exists(os.path.join(folder, "__init__.py")):
        folder, package = os.path.split(folder)
        parts.insert(0, package)
    sys.path.insert(0, folder)
    for loaded in list(sys.modules):
        top = loaded.split(".")[0]
        if top not in sys.builtin_module_names and top not in ("__main__", "inside") and _has(folder, top):
            del sys.modules[loaded]
    module_name = ".".join(parts) or "__init__"
    if len(parts) > 1:
        importlib.import_module(module_name.rpartition(".")[0])
    file = os.path.join(root, path)
    places = [os.path.dirname(file)] if name == "__init__.py" else None
    loader = _Loader(module_name, file)
    spec = importlib.util.spec_from_file_location(module_name, file, loader=loader, submodule_search_locations=places)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no module of Python")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    spec.loader.exec_module(module)
    return module


def _has(folder: str, name: str) -> bool:
    return os.path.exists(os.path.join(folder, f"{name}.py")) or os.path.isdir(os.path.join(folder, name))
