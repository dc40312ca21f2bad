"""Real packages at pinned versions, and what foreign tools say their files need: grimp, madge, gcc.

Everything is fetched once into a folder outside of the repository. A tool or package that cannot be had makes a
`MissingError` with the reason; nothing is guessed in its place.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from command import MissingError

from spark_jobs.code.imports.dependency import RepositoryTexts
from spark_jobs.sources.languages import language_of

PYTHON = {
    "django": "django==5.1",
    "sqlalchemy": "sqlalchemy==2.0.36",
    "celery": "celery==5.4.0",
    "networkx": "networkx==3.3",
    "sympy": "sympy==1.13.3",
    "sklearn": "scikit-learn==1.5.2",
    "pydantic": "pydantic==2.10.0",
    "trl": "trl==0.12.0",
}
JAVASCRIPT = {"webpack": ("5.90.0", "lib"), "eslint": ("9.20.0", "lib"), "three": ("0.160.0", "src")}
TYPESCRIPT = {"rxjs": ("7.8.1", "src")}
MADGE = "8.0.0"
C = {
    "libuv": ("uvloop==0.21.0", "vendor/libuv", ("src", "include"), ("-D_GNU_SOURCE",)),
    "brotli": ("Brotli==1.1.0", "c", ("include",), ()),
    "hiredis": ("hiredis==3.1.0", "vendor/hiredis", (".",), ()),
}

Pairs = frozenset[tuple[int, int]]


@dataclass(frozen=True)
class Truth:
    """A package, and which of its files need which.

    Attributes:
        repository: its files.
        known: (N,) whether the tool knows the file.
        pairs: (needs, needed) by index into the files.
        transitive: whether `pairs` holds what is needed through others too.
    """

    repository: RepositoryTexts
    known: tuple[bool, ...]
    pairs: Pairs
    transitive: bool = False


def read_repository(root: Path, endings: tuple[str, ...], below: str = "") -> RepositoryTexts:
    """Texts of the files below a folder with one of some extensions, by path; files that are not UTF-8 are left out."""
    texts: dict[str, str] = {}
    for path in (root / below).rglob("*"):
        inner = path.relative_to(root)
        if path.name.endswith(endings) and path.is_file() and "node_modules" not in inner.parts:
            with contextlib.suppress(UnicodeDecodeError):
                texts[inner.as_posix()] = path.read_text(encoding="utf-8")
    paths = tuple(sorted(texts, key=str.encode))
    languages = [language_of(path) for path in paths]
    return RepositoryTexts(paths, tuple(texts[path] for path in paths), tuple(x.name if x else None for x in languages))


def python_truth(package: str, folder: Path) -> Truth:
    """Imports between the modules of a distribution, by grimp (BSD licence), type-checking imports included."""
    try:
        import grimp
    except ImportError as error:
        raise MissingError("grimp is not installed (it comes with import-linter)") from error
    is_pinned = package in PYTHON  # else it is one that is installed
    root = _unpacked(PYTHON[package], folder, wheel=True) if is_pinned else Path(sysconfig.get_path("purelib"))
    repository = read_repository(root, (".py",), "" if is_pinned else package)
    with _on_path(root):
        graph = grimp.build_graph(package, cache_dir=None)
    module_of = [path.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for path in repository.paths]
    number = {module: index for index, module in enumerate(module_of)}
    pairs = {
        (number[importer], number[imported])
        for importer in graph.modules
        for imported in graph.find_modules_directly_imported_by(importer)
        if importer in number and imported in number
    }
    return _truth(repository, tuple(module in graph.modules for module in module_of), pairs)


def javascript_truth(package: str, folder: Path) -> Truth:
    """Imports between the files of an npm package, by madge (MIT licence)."""
    version, below = {**JAVASCRIPT, **TYPESCRIPT}[package]
    extensions = ("ts", "tsx") if package in TYPESCRIPT else ("js", "mjs", "cjs")
    root = folder / f"{package}-{version}"
    if not root.is_dir():  # madge leaves out what lies below node_modules
        shutil.copytree(_installed(folder, f"{package}@{version}") / "node_modules" / package / below, root)
    madge = _installed(folder, f"madge@{MADGE}") / "node_modules" / ".bin" / "madge"
    command = [str(madge), "--json", "--extensions", ",".join(extensions), str(root)]
    with tempfile.TemporaryFile() as answer:  # to a pipe it may end with its answer half written
        subprocess.run(command, stdout=answer, stderr=subprocess.DEVNULL, check=True)
        answer.seek(0)
        said = json.load(answer)
    repository = read_repository(root, tuple(f".{extension}" for extension in (*extensions, "json")))
    number = {path: index for index, path in enumerate(repository.paths)}
    pairs = {
        (number[needs], number[needed])
        for needs, all_needed in said.items()
        for needed in all_needed
        if needs in number and needed in number
    }
    return _truth(repository, tuple(path in said for path in repository.paths), pairs)


def c_truth(package: str, folder: Path) -> Truth:
    """What each unit includes, directly and through others, by `gcc -MM`; units of other systems are left out."""
    need("gcc")
    requirement, below, include, defines = C[package]
    root = _unpacked(requirement, folder, wheel=False) / below
    repository = read_repository(root, (".c", ".h"))
    number = {path: index for index, path in enumerate(repository.paths)}
    flags = [f"-I{directory}" for directory in include]
    pairs, known = set(), set()
    for path, unit in number.items():
        if not path.endswith(".c"):
            continue
        command = ["gcc", "-MM", "-MT", "unit", *defines, *flags, path]
        said = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
        if said.returncode == 0:
            names = said.stdout.replace("\\\n", " ").partition(":")[2].split()
            found = {os.path.relpath(root / name, root) for name in names}
            pairs |= {(unit, number[name]) for name in found if name in number}
            known |= {unit, *(number[name] for name in found if name in number)}
    return _truth(repository, tuple(index in known for index in range(len(number))), pairs, transitive=True)


def _truth(
    repository: RepositoryTexts, known: tuple[bool, ...], pairs: set[tuple[int, int]], transitive: bool = False
) -> Truth:
    return Truth(repository, known, frozenset((a, b) for a, b in pairs if a != b), transitive)


@contextlib.contextmanager
def _on_path(root: Path) -> Iterator[None]:
    """A folder in front of those that modules are imported from."""
    before = {name: module for name, module in sys.modules.items() if name.split(".")[0] in PYTHON}
    for name in before:
        del sys.modules[name]
    sys.path.insert(0, str(root))
    try:
        yield
    finally:
        sys.path.remove(str(root))
        sys.modules.update(before)


def _unpacked(requirement: str, folder: Path, wheel: bool) -> Path:
    """The files of a distribution at a pinned version, fetched by pip where they are not there yet."""
    target = folder / requirement.replace("==", "-").lower()
    if not target.is_dir():
        archive = _downloaded(requirement, folder / "archives" / target.name, wheel)
        partial = target.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        if wheel:
            with zipfile.ZipFile(archive) as opened:
                opened.extractall(partial)
        else:
            with tarfile.open(archive) as opened_tar:
                opened_tar.extractall(partial, filter="data")
        partial.rename(target)
    inside = list(target.iterdir())
    return inside[0] if not wheel and len(inside) == 1 else target


def _downloaded(requirement: str, folder: Path, wheel: bool) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    if not list(folder.iterdir()):
        form = "--only-binary=:all:" if wheel else "--no-binary=:all:"
        run([*_pip(folder.parent), "download", "--quiet", "--no-deps", form, "--dest", str(folder), requirement])
    return next(iter(folder.iterdir()))


def _pip(folder: Path) -> list[str]:
    """A pip of its own, since the environment of the project may have none."""
    python = folder.parent / "pip" / "bin" / "python"
    if not python.exists():
        run([sys.executable, "-m", "venv", str(python.parents[1])])
    return [str(python), "-m", "pip"]


def _installed(folder: Path, package: str) -> Path:
    """A folder with an npm package and what it needs."""
    need("npm")
    target = folder / "npm" / package
    if not (target / "node_modules").is_dir():
        target.mkdir(parents=True, exist_ok=True)
        (target / "package.json").write_text("{}")
        run(["npm", "install", "--prefix", str(target), "--ignore-scripts", "--no-audit", "--no-fund", package])
    return target


def run(command: list[str], cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    """What a command prints; where it fails the last line it said is the reason to skip."""
    need(command[0])
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
        raise MissingError(f"`{' '.join(command[:4])}` failed: {said[-1][:160]}")
    return done.stdout


def need(tool: str) -> None:
    """Raise MissingError where a program is not installed."""
    if shutil.which(tool) is None:
        raise MissingError(f"{tool} is not installed")
