"""Programming languages by content: names as documents have them, nulls where there is none."""

from __future__ import annotations

import pyarrow as pa
import pytest

from spark_jobs.filters.languages.languages import score_programming

pytest.importorskip("magika", reason="magika is in the extra filters")
PYTHON = "import os\n\n\ndef first(path: str) -> str:\n    return os.path.dirname(path)\n" * 4
C = '#include <stdio.h>\n\nint main(void) {\n    printf("hello");\n    return 0;\n}\n' * 4
PROSE = "The committee has decided to publish its report at the end of the month, after a short consultation. " * 9


def test_names_are_those_of_documents() -> None:
    """Code has the language that its extension would have given it; prose has a kind and no language."""
    found = pa.RecordBatch.from_pydict(score_programming(pa.array(["", PYTHON, C, PROSE, "\0\0\0"]))).to_pylist()
    kinds = [(row["content_kind"], row["programming_language"]) for row in found]
    assert kinds[:4] == [(None, None), ("code", "Python"), ("code", "C"), ("prose", None)]
    assert found[1]["content_type"] == "python"
    assert found[1]["content_type_confidence"] > 0.9
    assert set(found[0].values()) == {None}
