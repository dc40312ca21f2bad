#!/usr/bin/env bash
# cython 3.3.1 (and 3.1.8), `Cython.Build.cythonize` and its finder of dependencies.
# One would guess: `from p cimport b` makes a module depend on p/b.pxd, as `cimport p.b` does, so that it is built again
#   when p/b.pxd changes.
# Seen: it depends on p/__init__.pxd alone. The pattern for the names after `cimport` begins with ^, which no search from
#   the middle of a line meets; so it reads the next indented line in their place. Of lxml 6.1.3's own cimports 15 are lost.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet install "cython==${1:-3.3.1}" "setuptools==80.9.0"
mkdir -p "$folder/work/p"
cd "$folder/work"
touch p/__init__.pxd p/b.pxd
printf 'from p cimport b\nx = 1\n' > from.pyx
printf 'cimport p.b\nx = 1\n' > dotted.pyx
"$folder/venv/bin/python" - <<'PY'
import sys

from Cython.Build.Dependencies import create_dependency_tree

tree = create_dependency_tree(quiet=True)
seen = {name: sorted(tree.all_dependencies(name)) for name in ("from.pyx", "dotted.pyx")}
print(seen)
sys.exit(0 if "p/b.pxd" not in seen["from.pyx"] and "p/b.pxd" in seen["dotted.pyx"] else 1)
PY
