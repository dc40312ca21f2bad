"""Chat templates in the registry: from a file, or from an installed package."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from spark_jobs.exceptions import InputError, did_you_mean
from spark_jobs.lake.run.registry import Entry, find_entries, record

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

_MEND: Final = "headrace template add NAME --from FILE.jinja enters one"
_HASH_DIGITS: Final = 12


def add_template(catalogue: Catalog, name: str, source: str, version: str | None) -> Entry:
    """Enter a template; without a version by the first digits of its hash.

    Raises:
        InputError: it is no template, or name and version have another one.
    """
    import hashlib

    from headrace_features.conversations.templates import require_template

    require_template(source)
    content = source.encode()
    return record(catalogue, "template", name, version or hashlib.sha256(content).hexdigest()[:_HASH_DIGITS], content)


def packaged_template(reference: str) -> str:
    """The template NAME of a package, by `package:NAME`; the package is not imported.

    Raises:
        InputError: the package is not installed, or has no such file or several.
    """
    package, _, name = reference.partition(":")
    found = find_spec(package) if package.isidentifier() else None
    if found is None or not found.submodule_search_locations or not name:
        raise InputError(f"--package {reference}: no package {package!r} is installed; write PACKAGE:NAME")
    files = [file for folder in found.submodule_search_locations for file in sorted(Path(folder).rglob("*.jinja"))]
    texts = {file.read_text("utf-8") for file in files if file.stem == name}
    if len(texts) != 1:
        names = sorted({file.stem for file in files})
        what = "several files of that name" if texts else f"none{did_you_mean(name, names)}"
        raise InputError(f"--package {reference}: {package} has {what}; it has {', '.join(names) or 'no template'}")
    return texts.pop()


def template_in(catalogue: Catalog, reference: str) -> str:
    """The text of a template in the registry of a lake.

    Raises:
        InputError: there is none.
    """
    (entry,) = find_entries(catalogue, "template", (reference,), _MEND)
    return entry.content.decode()


def template_source(reference: str) -> str:
    """The text of a template in the registry of the lake that a step runs on; see `template_in`."""
    from headrace.tables.settings import load_settings
    from spark_jobs.lake.session.catalogue import open_catalogue

    return template_in(open_catalogue(load_settings()), reference)
