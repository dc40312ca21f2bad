"""Modules of C++20: traps, partitions, header units, and an order in which the compiler takes them."""

from __future__ import annotations

import shutil
import subprocess
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from spark_jobs.code.imports.cpp_modules import cpp_modules
from tests.spark_jobs.code.made_repository import edges, targets

SHOP = {
    "shop/shop.cpp": """module;
#include <cstdio>
export module shop;
export import :prices;
import :stock;
export int total() { return price() + stock(); }
""",
    "shop/prices.cpp": """export module shop:prices;
import money.whole;
export int price() { return cents(); }
""",
    "shop/stock.cpp": """module shop:stock;
int stock() { return 2; }
""",
    "shop/report.cpp": """module shop;
int report() { return stock(); }
""",
    "money.cpp": """export module money.whole [[maybe_unused]];
export int cents() { return 1; }
""",
    "main.cpp": """// import money.whole;
const char *s = "import money.whole;";
import shop;
int main() { return total() - 3; }
""",
}
NEEDED = {
    ("shop/shop.cpp", "shop/prices.cpp"),
    ("shop/shop.cpp", "shop/stock.cpp"),
    ("shop/prices.cpp", "money.cpp"),
    ("shop/report.cpp", "shop/shop.cpp"),
    ("main.cpp", "shop/shop.cpp"),
}


def pairs(files: dict[str, str]) -> set[tuple[str, str]]:
    """(needs, needed) of all edges."""
    return {(needs, needed) for needs, needed, _ in edges(cpp_modules, files)}


def test_imports_lead_to_modules_and_partitions() -> None:
    """A unit that implements a module needs its interface; comments and strings import nothing."""
    assert pairs(SHOP) == NEEDED


def test_gcc_compiles_files_in_the_order_of_the_edges(tmp_path: Path) -> None:
    """And refuses every file one of whose edges leads to a file that was not compiled."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("needs g++")

    def compile_all(folder: Path, order: list[str]) -> list[str]:
        folder.mkdir()
        done = []
        for path in order:
            (folder / path).parent.mkdir(exist_ok=True)
            (folder / path).write_text(SHOP[path])
            command = [compiler, "-std=c++20", "-fmodules-ts", "-c", path, "-o", f"{path}.o"]
            if subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode:
                return done
            done.append(path)
        return done

    needs = {path: {needed for one, needed in NEEDED if one == path} for path in SHOP}
    order = list(TopologicalSorter(needs).static_order())
    if compile_all(tmp_path / "one", order[:1]) != order[:1]:
        pytest.skip("this g++ has no modules")
    assert compile_all(tmp_path / "all", order) == order
    for number, (path, needed) in enumerate(sorted(NEEDED)):
        lacking = {needed}
        for one in order:
            lacking |= {one} if needs[one] & lacking else set()
        rest = [one for one in order if one not in lacking]
        assert compile_all(tmp_path / f"without{number}", [*rest, path]) == rest


@pytest.mark.parametrize(
    ("text", "needed"),
    [
        ("import a.b;", ["ab.cppm"]),
        ("  export   import a . b ;", ["ab.cppm"]),
        ("import /* why */ a.b; // so", ["ab.cppm"]),
        ("import a.b [[deprecated]];", ["ab.cppm"]),
        ('import "h.hpp";\nimport <h.hpp>;\nexport import"h.hpp";', ["h.hpp"]),
        ("import <vector>;\nimport std;", []),
        ("importa.b;\nauto import = a.b;\nx import a.b;", []),
        ("import a.b", []),
        ("module;\nimport a;", []),
        ("import :part;", []),
        ("export module a.b:other;\nimport :part;\nimport : part ;", ["part.ixx"]),
        ("module a.b;\n", ["ab.cppm"]),
        ("module :private;\nmodule = 5;\nmodule x(3);", []),
        ('R"(\nimport a.b;\n)";', []),
        ("import \\\n  a.b;", ["ab.cppm"]),
        ("#define LOAD \\\n    import a.b;", []),
        ("export module größe;\nimport größe.λ;", ["letters.cppm"]),
    ],
)
def test_statements_are_found_outside_of_comments_and_strings(text: str, needed: list[str]) -> None:
    """Each trap on its own."""
    files = {"x.cpp": text, "ab.cppm": "export module a.b;", "part.ixx": "export module a.b:part;", "h.hpp": ""}
    files["letters.cppm"] = "export module größe.λ;"
    assert targets(cpp_modules, files, "x.cpp") == needed
