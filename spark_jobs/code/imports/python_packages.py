"""Directories of a repository that are imported under another name, by the manifests of setuptools.

    pyproject.toml    [tool.setuptools.package-dir]    acme = "sources"
    setup.cfg         [options] package_dir            acme = sources

Then sources/text.py is the module acme.text. Names that the directories have anyway, and those that set-up scripts
compute, are not read.
"""

from __future__ import annotations

import posixpath
import tomllib

from spark_jobs.code.imports.dependency import Repository


def renamed_directories(repository: Repository) -> dict[str, str]:
    """Directory -> the path, beside the manifest, that its modules are imported by."""
    found = {}
    for path, text in zip(repository.paths, repository.texts, strict=True):
        above, name = posixpath.split(path)
        if name in ("pyproject.toml", "setup.cfg"):
            declared = _of_pyproject(text) if name == "pyproject.toml" else _of_setup(text)
            for package, directory in declared.items():
                place = posixpath.normpath(posixpath.join(above, directory)).removeprefix(".")
                imported = posixpath.join(above, package.replace(".", "/"))
                if package and not place.startswith(".") and place != imported:
                    found[place] = imported
    return found


def _of_pyproject(text: str) -> dict[str, str]:
    """Package -> directory; nothing where the text is no TOML or says something else."""
    try:
        table: object = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        return {}
    for key in ("tool", "setuptools", "package-dir"):
        table = table.get(key) if isinstance(table, dict) else None
    return {key: value for key, value in table.items() if isinstance(value, str)} if isinstance(table, dict) else {}


def _of_setup(text: str) -> dict[str, str]:
    """The same out of a setup.cfg, whose values go on in lines that begin with a blank."""
    found = {}
    section = key = ""
    for line in text.splitlines():
        if line.startswith("["):
            section, key = line.strip(), ""
        elif section == "[options]":
            value = line
            if not line[:1].isspace():
                key, _, value = line.partition("=")
            package, equals, directory = value.partition("=")
            if key.strip() == "package_dir" and equals:
                found[package.strip()] = directory.strip()
    return found
