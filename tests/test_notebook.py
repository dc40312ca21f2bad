"""The notebook in `examples`, run cell by cell."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

_NOTEBOOK = Path(__file__).parents[1] / "examples" / "in_hand.ipynb"


def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """In an empty folder, which stays empty; it holds no outputs."""
    monkeypatch.chdir(tmp_path)
    cells = [cell for cell in json.loads(_NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]
    assert len(cells) >= 6 and not any(cell["outputs"] or cell["execution_count"] for cell in cells)
    names = dict[str, object]()
    for cell in cells:
        exec("".join(cell["source"]), names)
    shown = capsys.readouterr().out
    assert "4 of 5 rows are kept" in shown and "3 of 4 rows are kept" in shown
    assert "['en', 'en', 'de']" in shown and "mail 47 63 ada@lovelace.org" in shown
    assert "['wheel.py', 'mill.py']" in shown and "2 windows" in shown
    assert "A mill is a building" in names["page"].text  # type: ignore[attr-defined]
    assert list(tmp_path.iterdir()) == []
