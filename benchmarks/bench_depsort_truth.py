"""Dependencies against the tools of each language: recall, precision, satisfied edges, speed.

    python benchmarks/bench_depsort_truth.py [--part go,java,rust,symbols] [--cache DIRECTORY]

Packages at pinned versions come out of the registries with the ordinary clients (go, mvn, cargo, pip); a part whose
tool or package is absent prints why and is skipped. Edges are compared on files that both sides know. "Acyclic" is the
share of true edges between different components of the truth whose needed end is placed first; "core" the same inside
components. MB/s are of text per processor second, second run of two. For Go, Java and Rust a second table says how the
other ways of ordering do on the same edges, symbols alone among them.

Truth: `go list` (imports between packages), `jdeps` (between classes), for Python `grimp`. Cargo tells which files
belong to a crate, not which needs which: the module tree is compared with its dep-info, `use` edges with themselves.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from depsort_orders import Nodes, arrays_of, order_shares

from spark_jobs.code.imports.dependency import Dependency, Repository, Resolver
from spark_jobs.code.imports.go_imports import go_imports
from spark_jobs.code.imports.java_names import java_names
from spark_jobs.code.imports.rust_uses import rust_uses
from spark_jobs.code.order.dependency_order import order_files
from spark_jobs.code.order.file_graph import strong_components
from spark_jobs.code.order.policy import Policy
from spark_jobs.code.syntax.symbols import symbol_edges
from spark_jobs.code.syntax.syntax_child import SyntaxLimits, shared_child
from spark_jobs.sources.languages import language_of

Pairs = set[tuple[int, int]]
_GO = ("github.com/prometheus/prometheus@v0.48.0", "k8s.io/client-go@v0.29.0")
_JAVA = (
    ("org.apache.commons", "commons-lang3", "3.14.0"),
    ("com.google.guava", "guava", "33.0.0-jre"),
    ("com.fasterxml.jackson.core", "jackson-databind", "2.17.0"),
)
_RUST = (  # all features of tokio together build only with flags of rustc that its users do not have
    ("syn", "2.0.48", ("--all-features",)),
    ("regex-automata", "0.4.3", ("--all-features",)),
    ("tokio", "1.35.1", ("--features", "full,test-util")),
)
_ORDERS = "| language | package | edges | path | random | symbols | depth first | imports | both | circles |"
_PYTHON = {
    "django": "django==5.1",
    "sqlalchemy": "sqlalchemy==2.0.36",
    "celery": "celery==5.4.0",
    "networkx": "networkx==3.3",
    "sklearn": "scikit-learn==1.5.2",
    "pydantic": "pydantic==2.10.0",
    "trl": "trl==0.12.0",
}
_GRIMP = "grimp==3.19"
_FIND_IMPORTS = """
import json, sys
sys.path[:0] = sys.argv[2:]
import grimp
graph = grimp.build_graph(sys.argv[1], cache_dir=None)
print(json.dumps([[m, n] for m in graph.modules for n in graph.find_modules_directly_imported_by(m)]))
"""


class MissingError(Exception):
    """A tool or a package is not to be had; the message says which."""


def main() -> None:
    """Measure what the machine has the tools for."""
    parts: dict[str, Callable[[Path], list[str]]] = {
        "go": measure_go,
        "java": measure_java,
        "rust": measure_rust,
        "symbols": measure_symbols,
    }
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--part", default=",".join(parts), help="which, parted by commas")
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "headrace" / "depsort")
    given = parser.parse_args()
    given.cache.mkdir(parents=True, exist_ok=True)
    heads = f"{'package':<28}{'files':>7}{'edges':>8}{'recall':>9}{'precision':>11}"
    print(f"{heads}{'acyclic':>17}{'core':>16}{'path':>7}{'MB/s':>7}")
    orders: list[str] = []
    for part in given.part.split(","):
        try:
            orders += parts[part](given.cache)
        except MissingError as reason:
            print(f"{part}: skipped, {reason}")
    if orders:
        print("", _ORDERS, f"|{'---|' * _ORDERS.count(' | ')}---|", *orders, sep="\n")


def measure_go(cache: Path) -> list[str]:
    """Packages of Go modules against `go list`, ordered by `two_level`; a package stands where its first file stands.

    Its files follow each other, but for those that only tests need: these come with the tests.
    """
    _need("go")
    orders = []
    environment = {**os.environ, "GOMODCACHE": str(cache / "go"), "GOFLAGS": "-mod=mod -modcacherw"}
    for module in _GO:
        found = _run(["go", "mod", "download", "-json", module], cwd=cache, env=environment)
        root = Path(json.loads(found)["Dir"]).resolve()
        fields = "-json=ImportPath,Dir,Imports"
        listed = _run(["go", "list", "-e", fields, "./..."], cwd=root, env={**environment, "GOPROXY": "off"})
        packages = [{**package, "Dir": os.path.relpath(package["Dir"], root)} for package in _json_values(listed)]
        directory_of = {package["ImportPath"]: "" if package["Dir"] == "." else package["Dir"] for package in packages}
        repository = read_repository(root, (".go", "go.mod"))
        directories = sorted(set(directory_of.values()))
        at = {directory: index for index, directory in enumerate(directories)}
        truth = {
            (at[directory_of[package["ImportPath"]]], at[directory_of[imported]])
            for package in packages
            for imported in package.get("Imports", ())
            if imported in directory_of
        }
        files, speed = timed(go_imports, repository, "Go")
        homes = [path.rpartition("/")[0] for path in repository.paths]
        ours = {
            (at[homes[found.needs]], at[homes[found.needed]])
            for found in files
            if found.kind == "import"
            and not repository.paths[found.needs].endswith("_test.go")
            and homes[found.needs] in at
            and homes[found.needed] in at
        }
        placing = [-1 if path.endswith("_test.go") else at.get(homes[n], -1) for n, path in enumerate(repository.paths)]
        nodes = Nodes(np.array(placing, dtype=np.int64), len(directories))
        first = nodes.places(order_files(repository.paths, arrays_of(files), "two_level")).tolist()
        name = module.rpartition("/")[2]
        print_row(name, len(repository.paths), ours, truth, first, list(range(len(directories))), speed)
        orders.append(_orders("Go", name, repository, files, truth, nodes, "two_level"))
    return orders


def measure_java(cache: Path) -> list[str]:
    """Files of Java libraries against `jdeps` on their classes."""
    _need("jdeps")
    orders = []
    for group, name, version in _JAVA:
        classes, sources = (cache / f"{name}-{version}{kind}.jar" for kind in ("", "-sources"))
        for jar, kind in ((classes, ""), (sources, ":jar:sources")):
            if not jar.exists():
                _need("mvn")
                artifact = f"-Dartifact={group}:{name}:{version}{kind}"
                _run(["mvn", "-q", "dependency:copy", artifact, f"-DoutputDirectory={cache}"], cwd=cache)
        root = cache / f"{name}-{version}"
        if not root.is_dir():
            zipfile.ZipFile(sources).extractall(root)
        repository = read_repository(root, (".java",))
        by_class = {path.removesuffix(".java").replace("/", "."): index for index, path in enumerate(repository.paths)}
        command = ["jdeps", "-v", "-filter:none", "--multi-release", "base", "--ignore-missing-deps", str(classes)]
        truth = set()
        for one, other in re.findall(r"^\s+(\S+)\s+->\s+(\S+)", _run(command, cwd=cache), re.MULTILINE):
            ends = (by_class.get(one.partition("$")[0]), by_class.get(other.partition("$")[0]))
            if ends[0] is not None and ends[1] is not None and ends[0] != ends[1]:
                truth.add((ends[0], ends[1]))
        found, speed = timed(java_names, repository, "Java")
        _print_files(f"{name} {version}", repository, found, truth, speed)
        orders.append(_orders("Java", f"{name} {version}", repository, found, truth))
    return orders


def measure_rust(cache: Path) -> list[str]:
    """Files of crates against Cargo's dep-info, and the order against the own `use` edges."""
    _need("cargo")
    orders = []
    crates = cache / "rust"
    if not (crates / "vendor").is_dir():
        (crates / "src").mkdir(parents=True, exist_ok=True)
        (crates / "src" / "lib.rs").touch()
        needed = "\n".join(f'{name} = "={version}"' for name, version, _ in _RUST)
        manifest = f'[package]\nname = "all"\nversion = "0.1.0"\nedition = "2021"\n[dependencies]\n{needed}\n'
        (crates / "Cargo.toml").write_text(manifest)
        _run(["cargo", "vendor", "--quiet", "--versioned-dirs"], cwd=crates)
    for name, version, features in _RUST:
        root = crates / "vendor" / f"{name}-{version}"
        repository = read_repository(root, (".rs", "Cargo.toml"))
        found, speed = timed(rust_uses, repository, "Rust")
        uses = {(edge.needs, edge.needed) for edge in found if edge.kind in ("import", "import_inner")}
        _print_files(f"{name} {version} (use)", repository, found, uses, speed)
        orders.append(_orders("Rust", f"{name} {version}", repository, found, uses))
        parts = {repository.paths[edge.needed] for edge in found if edge.kind == "module"} | {"src/lib.rs"}
        try:
            built = _dep_info(root, cache / "rust" / "target" / root.name, features)
        except MissingError as reason:
            print(f"{'':<28}module tree not compared: {reason}")
            continue
        print(f"{'':<28}module tree finds {len(built & parts)} of the {len(built)} files that Cargo built")
    return orders


def _dep_info(root: Path, target: Path, features: Sequence[str]) -> set[str]:
    """Sources of the library that Cargo reads with some features."""
    own = cargo_copy(root, target)
    _run(["cargo", "check", "--quiet", "--lib", *features, "--target-dir", str(target)], cwd=own)
    found = set()
    for listing in target.glob("debug/deps/*.d"):
        for line in listing.read_text().splitlines():
            path = Path(line.removesuffix(":"))
            if line.endswith(":") and path.suffix == ".rs" and (own / path).is_file() and not path.is_absolute():
                found.add(os.path.normpath(path))
    return found


def cargo_copy(root: Path, target: Path) -> Path:
    """A copy of a crate that is its own workspace, so that Cargo may build it where it lies."""
    own = target.with_name(f"{target.name}-copy")
    if not own.is_dir():
        shutil.copytree(root, own)
        manifest = own / "Cargo.toml"
        manifest.write_text(manifest.read_text() + "\n[workspace]\n")
    return own


def measure_symbols(cache: Path) -> list[str]:
    """Python packages ordered by symbols alone, against the imports that grimp finds."""
    tools = cache / "grimp"
    if not tools.is_dir():
        _pip(["install", "--target", str(tools), _GRIMP])
    for package, requirement in _PYTHON.items():
        root = cache / f"python-{package}"
        if not root.is_dir():
            _pip(["install", "--no-deps", "--target", str(root), requirement])
        repository = read_repository(root, (".py",))
        imports = json.loads(_run([sys.executable, "-c", _FIND_IMPORTS, package, str(tools), str(root)], cwd=cache))
        modules = {_module_of(path): index for index, path in enumerate(repository.paths)}
        truth = {(modules[a], modules[b]) for a, b in imports if a in modules and b in modules and a != b}
        parse = shared_child(SyntaxLimits()).definitions
        started = time.perf_counter()
        found = symbol_edges(repository, (), parse, alone=True)
        speed = sum(len(text.encode()) for text in repository.texts) / 1e6 / (time.perf_counter() - started)
        _print_files(f"{requirement} (symbols)", repository, found.dependencies, truth, speed)
    return []


def _module_of(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _orders(
    language: str,
    package: str,
    repository: Repository,
    found: Sequence[Dependency],
    truth: Pairs,
    nodes: Nodes | None = None,
    policy: Policy = "dependencies_first",
) -> str:
    """A row of the table of orders."""
    shares = order_shares(repository, found, truth, nodes, policy)
    return f"| {language} | {package} | {shares.acyclic_count + shares.circle_count:,} | {shares.cells()} |"


def _print_files(name: str, repository: Repository, found: Sequence[Dependency], truth: Pairs, speed: float) -> None:
    """A row whose nodes are files, in the order of the default policy."""
    places = order_files(repository.paths, arrays_of(found))
    ours = {(edge.needs, edge.needed) for edge in found if edge.kind != "module"}
    count = len(repository.paths)
    print_row(name, count, ours, truth, [int(place) for place in places], list(range(count)), speed)


def print_row(
    name: str, files: int, ours: Pairs, truth: Pairs, places: Sequence[int], by_path: Sequence[int], speed: float
) -> None:
    """One line of the table.

    Args:
        name: of the package.
        files: how many it has.
        ours: edges that were found.
        truth: edges that are.
        places: of every node in the order.
        by_path: places of every node by its path.
        speed: MB of text per second.
    """
    acyclic, core = split_truth(truth, len(places))
    shares = [f"{satisfied(part, places):.4f} of {len(part):<6,}" for part in (acyclic, core)]
    right = len(ours & truth)
    print(
        f"{name:<28}{files:>7,}{len(truth):>8,}{right / max(len(truth), 1):>9.4f}{right / max(len(ours), 1):>11.4f}"
        f"  {shares[0]:>15}{shares[1]:>16}{satisfied(acyclic, by_path):>7.3f}{speed:>7.1f}",
        flush=True,
    )


def split_truth(truth: Pairs, count: int) -> tuple[Pairs, Pairs]:
    """Edges between strongly connected components, and inside them."""
    listed = np.array(sorted(truth), dtype=np.int64).reshape(-1, 2)
    labels = strong_components(listed[:, 0].copy(), listed[:, 1].copy(), count)
    inside = {(a, b) for a, b in truth if labels[a] == labels[b]}
    return truth - inside, inside


def satisfied(pairs: Pairs, places: Sequence[int]) -> float:
    """Share of the edges whose needed end comes first; 1 where there are none."""
    return sum(places[needed] < places[needs] for needs, needed in pairs) / len(pairs) if pairs else 1.0


def timed(resolver: Resolver, repository: Repository, language: str) -> tuple[list[Dependency], float]:
    """What a resolver finds, and MB of the language's text per processor second."""
    found = list(resolver(repository))
    started = time.process_time()
    found = list(resolver(repository))
    seconds = time.process_time() - started
    chosen = zip(repository.texts, repository.languages, strict=True)
    size = sum(len(text.encode()) for text, name in chosen if name == language)
    return found, size / 1e6 / seconds


def read_repository(root: Path, endings: tuple[str, ...]) -> Repository:
    """The files below a directory whose names end so; those that are no UTF-8 are left out."""
    texts: dict[str, str] = {}
    for path in root.rglob("*"):
        if path.name.endswith(endings) and path.is_file():
            try:
                texts[path.relative_to(root).as_posix()] = path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue
    paths = tuple(sorted(texts, key=str.encode))
    found = [language_of(path) for path in paths]
    return Repository(
        paths, tuple(texts[path] for path in paths), tuple(language.name if language else None for language in found)
    )


def _json_values(text: str) -> Iterator[dict[str, Any]]:
    """JSON objects that stand one after the other."""
    decoder, at = json.JSONDecoder(), 0
    while at < len(text):
        value, at = decoder.raw_decode(text, at)
        yield value
        at += len(text[at:]) - len(text[at:].lstrip())


def _need(tool: str) -> None:
    if shutil.which(tool) is None:
        raise MissingError(f"{tool} is not installed")


def _pip(arguments: list[str]) -> None:
    """Run the pip of this interpreter, or uv where it has none."""
    pip = [sys.executable, "-m", "pip", *arguments]
    if subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True, check=False).returncode:
        _need("pip3")
        pip = ["pip3", *arguments]
    _run([*pip, "--quiet"], cwd=Path.cwd())


def _run(command: list[str], cwd: Path, env: dict[str, str] | None = None) -> str:
    """What a command prints; MissingError with its last words where it fails."""
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise MissingError(f"`{' '.join(command[:4])}` ended with {done.returncode}: {done.stderr.strip()[-200:]}")
    return done.stdout


if __name__ == "__main__":
    main()
