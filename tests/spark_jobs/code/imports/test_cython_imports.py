"""Imports of Cython: declarations, modules, included files and headers."""

from __future__ import annotations

import pytest

from spark_jobs.code.imports.cython_imports import cython_imports
from spark_jobs.code.imports.python_imports import python_imports
from tests.spark_jobs.code.made_repository import edges, targets

FILES = {
    "pkg/__init__.py": "",
    "pkg/core.pyx": "",
    "pkg/core.pxd": "",
    "pkg/sub/__init__.pxd": "",
    "pkg/sub/__init__.py": "",
    "pkg/sub/deep.pxd": "",
    "pkg/tools.py": "",
    "pkg/parts/one.pxi": "",
    "include/fast.h": "",
}


@pytest.mark.parametrize(
    ("text", "needed"),
    [
        ("from pkg.core cimport Thing", ["pkg/core.pxd"]),
        ("cimport pkg.core as c, pkg.sub", ["pkg/core.pxd", "pkg/sub/__init__.pxd"]),
        ("from . cimport core", ["pkg/core.pxd"]),
        ("from .sub cimport deep, other", ["pkg/sub/deep.pxd", "pkg/sub/__init__.pxd"]),
        ("from .core cimport (\n    One,  # first\n    Two,\n)", ["pkg/core.pxd"]),
        ("from pkg import core\nimport pkg.tools", ["pkg/core.pyx", "pkg/tools.py"]),
        ("cimport cython\nfrom libc.stdlib cimport malloc\ncimport numpy as cnp", []),
        ("include \"parts/one.pxi\"\ninclude 'parts/one.pxi'", ["pkg/parts/one.pxi", "pkg/parts/one.pxi"]),
        ('include "one.pxi"', ["pkg/parts/one.pxi"]),
        ('cdef extern from "fast.h" nogil:\n    int f()', ["include/fast.h"]),
        ('cdef extern from * :\n    pass\ncdef extern from "math.h":\n    pass', []),
        ('# include "one.pxi"\ns = """\ninclude "one.pxi"\nfrom .core cimport X\n"""', []),
        ("def f():\n    from .core cimport X", ["pkg/core.pxd"]),
        (
            "from cython.cimports.pkg.core import Thing\nimport cython.cimports.pkg.sub as s",
            ["pkg/core.pxd", "pkg/sub/__init__.pxd"],
        ),
        ("cdef int include = 5\ncimported = core", []),
    ],
)
def test_statements_lead_to_the_files_that_cython_reads(text: str, needed: list[str]) -> None:
    """Each form and each trap on its own."""
    assert targets(cython_imports, {**FILES, "pkg/x.pyx": text}, "pkg/x.pyx") == sorted(set(needed))


def test_a_module_needs_its_own_declarations() -> None:
    """Both of Cython and of Python beside a .pxd; a .pxd needs no module."""
    files = {"a.pyx": "", "a.pxd": "", "b.py": "", "b.pxd": "", "c/d.pyx": "", "d.pxd": ""}
    found = {(needs, needed) for needs, needed, _ in edges(cython_imports, files)}
    assert found == {("a.pyx", "a.pxd"), ("b.py", "b.pxd")}


def test_python_in_the_form_of_cython_needs_declarations() -> None:
    """What a .py takes from `cython.cimports`; its other imports are those of Python."""
    files = {**FILES, "pkg/x.py": "import cython\nfrom pkg import tools\nfrom cython.cimports.pkg.core import Thing\n"}
    assert targets(cython_imports, files, "pkg/x.py") == ["pkg/core.pxd"]
    assert targets(python_imports, files, "pkg/x.py") == ["pkg/tools.py"]


def test_python_still_finds_modules_of_cython() -> None:
    """A package's __init__ imports its compiled part."""
    files = {"pkg/__init__.py": "from pkg.core import f\n", "pkg/core.pyx": "", "pkg/core.pxd": ""}
    assert [(of, to) for of, to, _ in edges(python_imports, files)] == [("pkg/__init__.py", "pkg/core.pyx")]
