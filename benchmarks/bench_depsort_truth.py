"""Dependencies against the tools of each language: recall, precision, satisfied edges, speed.

    python benchmarks/bench_depsort_truth.py [--part go,java,rust,symbols] [--cache DIRECTORY]

Packages at pinned versions come out of the registries with the ordinary clients (go, mvn, cargo, pip); a part whose
tool or package is absent prints why and is skipped. Edges are compared on files that both sides know. Columns are
those of bench_depsort.py; MB/s are of text per processor second, second run of two.

Truth: `go list` (imports between packages), `jdeps` (between classes), for Python `grimp`. Cargo tells which files
belong to a crate, not which needs which: the module tree is compared with its dep-info, `use` edges with themselves.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import command
import numpy as np
from cpu_time import megabytes
from depsort_orders import HEADER, Nodes, table_row
from depsort_truth import PYTHON, need, python_truth, read_repository, run

from spark_jobs.code.imports.dependency import Dependency, RepositoryTexts, Resolver
from spark_jobs.code.imports.go_imports import go_imports
from spark_jobs.code.imports.java_names import java_names
from spark_jobs.code.imports.rust_uses import rust_uses
from spark_jobs.code.syntax.symbols import symbol_edges
from spark_jobs.code.syntax.syntax_child import SyntaxLimits, shared_child

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
_PYTHON = tuple(package for package in PYTHON if package != "sympy")


def main() -> None:
    """Measure what the machine has the tools for."""
    parts: dict[str, Callable[[Path], None]] = {
        "go": measure_go,
        "java": measure_java,
        "rust": measure_rust,
        "symbols": measure_symbols,
    }
    parser = command.parser(__doc__)
    parser.add_argument("--part", default=",".join(parts), help="which, parted by commas")
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "headrace" / "depsort")
    given = command.read(parser, part="symbols")
    if given.small:
        parts["symbols"] = functools.partial(measure_symbols, packages=["jinja2"])  # installed: nothing is fetched
    given.cache.mkdir(parents=True, exist_ok=True)
    print(HEADER)
    for part in given.part.split(","):
        command.attempt(parts[part], given.cache)


def measure_go(cache: Path) -> None:
    """Packages of Go modules against `go list`, ordered by `two_level`; a package stands where its first file stands.

    Its files follow each other, but for those that only tests need: these come with the tests.
    """
    need("go")
    environment = {**os.environ, "GOMODCACHE": str(cache / "go"), "GOFLAGS": "-mod=mod -modcacherw"}
    for module in _GO:
        found = run(["go", "mod", "download", "-json", module], cwd=cache, env=environment)
        root = Path(json.loads(found)["Dir"]).resolve()
        fields = "-json=ImportPath,Dir,Imports"
        listed = run(["go", "list", "-e", fields, "./..."], cwd=root, env={**environment, "GOPROXY": "off"})
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
        name = module.rpartition("/")[2]
        print(table_row("Go", name, repository, files, ours, truth, speed, nodes, "two_level"), flush=True)


def measure_java(cache: Path) -> None:
    """Files of Java libraries against `jdeps` on their classes."""
    need("jdeps")
    for group, name, version in _JAVA:
        classes, sources = (cache / f"{name}-{version}{kind}.jar" for kind in ("", "-sources"))
        for jar, kind in ((classes, ""), (sources, ":jar:sources")):
            if not jar.exists():
                need("mvn")
                artifact = f"-Dartifact={group}:{name}:{version}{kind}"
                run(["mvn", "-q", "dependency:copy", artifact, f"-DoutputDirectory={cache}"], cwd=cache)
        root = cache / f"{name}-{version}"
        if not root.is_dir():
            zipfile.ZipFile(sources).extractall(root)
        repository = read_repository(root, (".java",))
        by_class = {path.removesuffix(".java").replace("/", "."): index for index, path in enumerate(repository.paths)}
        listing = ["jdeps", "-v", "-filter:none", "--multi-release", "base", "--ignore-missing-deps", str(classes)]
        truth = set()
        for one, other in re.findall(r"^\s+(\S+)\s+->\s+(\S+)", run(listing, cwd=cache), re.MULTILINE):
            ends = (by_class.get(one.partition("$")[0]), by_class.get(other.partition("$")[0]))
            if ends[0] is not None and ends[1] is not None and ends[0] != ends[1]:
                truth.add((ends[0], ends[1]))
        found, speed = timed(java_names, repository, "Java")
        print_files("Java", f"{name} {version}", repository, found, truth, speed)


def measure_rust(cache: Path) -> None:
    """Files of crates against Cargo's dep-info, and the order against the own `use` edges."""
    need("cargo")
    crates = cache / "rust"
    if not (crates / "vendor").is_dir():
        (crates / "src").mkdir(parents=True, exist_ok=True)
        (crates / "src" / "lib.rs").touch()
        needed = "\n".join(f'{name} = "={version}"' for name, version, _ in _RUST)
        manifest = f'[package]\nname = "all"\nversion = "0.1.0"\nedition = "2021"\n[dependencies]\n{needed}\n'
        (crates / "Cargo.toml").write_text(manifest)
        run(["cargo", "vendor", "--quiet", "--versioned-dirs"], cwd=crates)
    for name, version, features in _RUST:
        root = crates / "vendor" / f"{name}-{version}"
        repository = read_repository(root, (".rs", "Cargo.toml"))
        found, speed = timed(rust_uses, repository, "Rust")
        uses = {(edge.needs, edge.needed) for edge in found if edge.kind in ("import", "import_inner")}
        print_files("Rust", f"{name} {version}", repository, found, uses, speed)
        parts = {repository.paths[edge.needed] for edge in found if edge.kind == "module"} | {"src/lib.rs"}
        built = command.attempt(_dep_info, root, cache / "rust" / "target" / root.name, features)
        if built is not None:
            print(f"| Rust | {name}: its module tree finds {len(built & parts)} of the {len(built)} files of Cargo |")


def _dep_info(root: Path, target: Path, features: Sequence[str]) -> set[str]:
    """Sources of the library that Cargo reads with some features."""
    own = cargo_copy(root, target)
    run(["cargo", "check", "--quiet", "--lib", *features, "--target-dir", str(target)], cwd=own)
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


def measure_symbols(cache: Path, packages: Sequence[str] = _PYTHON) -> None:
    """Python packages ordered by symbols alone, against the imports that grimp finds."""
    for package in packages:
        truth = python_truth(package, cache)
        repository = truth.repository
        parse = shared_child(SyntaxLimits()).definitions
        started = time.perf_counter()
        found = symbol_edges(repository, (), parse, alone=True)
        speed = megabytes(repository.texts) / (time.perf_counter() - started)
        print_files("Python", f"{package}, symbols", repository, found.dependencies, {*truth.pairs}, speed)


def print_files(
    language: str, name: str, repository: RepositoryTexts, found: Sequence[Dependency], truth: Pairs, speed: float
) -> None:
    """A row whose nodes are files, in the order of the default policy."""
    own = {(edge.needs, edge.needed) for edge in found if edge.kind != "module"}
    print(table_row(language, name, repository, found, own, truth, speed), flush=True)


def timed(resolver: Resolver, repository: RepositoryTexts, language: str) -> tuple[list[Dependency], float]:
    """What a resolver finds, and MB of the language's text per processor second."""
    found = list(resolver(repository))
    started = time.process_time()
    found = list(resolver(repository))
    seconds = time.process_time() - started
    chosen = zip(repository.texts, repository.languages, strict=True)
    return found, megabytes(text for text, name in chosen if name == language) / seconds


def _json_values(text: str) -> Iterator[dict[str, Any]]:
    """JSON objects that stand one after the other."""
    decoder, at = json.JSONDecoder(), 0
    while at < len(text):
        value, at = decoder.raw_decode(text, at)
        yield value
        at += len(text[at:]) - len(text[at:].lstrip())


if __name__ == "__main__":
    main()
