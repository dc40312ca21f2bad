"""The committed Python of the protos is what the compiler makes of them."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

PROTOS = Path(__file__).parents[2] / "protos"


def test_generated_modules_are_up_to_date(tmp_path: Path) -> None:
    """Generating again gives the committed files; if not, run `python protos/generate.py`."""
    pytest.importorskip("grpc_tools", reason="grpcio-tools is in the extra dev")
    spec = importlib.util.spec_from_file_location("generate", PROTOS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    written = module.generate(tmp_path)
    assert written
    for path in written:
        assert path.read_text() == (PROTOS.parent / path.relative_to(tmp_path)).read_text(), path.name
