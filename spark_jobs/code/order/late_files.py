"""Which paths are those of tests, examples, benchmarks and documentation, which come after the files they are about.

A `#` comes before the id of a record, which may be the path of a file.
"""

from __future__ import annotations

import re

_DIRECTORY = re.compile(
    r"(?:^|[/#])(?:tests?|testing|unit_?tests?|__tests__|__mocks__|specs?|e2e|fixtures?|testdata|"
    r"examples?|samples?|demos?|tutorials?|notebooks?|bench|benchmarks?|docs?|documentation)/",
    re.IGNORECASE,
)
_NAME = re.compile(
    r"(?:^|[/#])(?:test_[^/]*|[^/]*_tests?|[^/]*\.(?:test|spec|stories)|[^/]*[a-z0-9](?:Tests?|Spec|IT)|conftest|"
    r"readme|changelog|changes|contributing|history|news)\.[A-Za-z0-9]+$"
)
_PROSE = re.compile(r"\.(?:mdx?|markdown|rst|txt|text|adoc)$", re.IGNORECASE)


def is_late(path: str) -> bool:
    """Whether a path is that of a test, an example, a benchmark or documentation.

    Case counts in names of files (`HttpTest.java`, not `latest.py`), not in those of directories.
    """
    return bool(_DIRECTORY.search(path) or _NAME.search(path) or _PROSE.search(path))
