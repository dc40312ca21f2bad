"""What a process keeps on disk goes with it, or with the next one where it was killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_KEEP = """
import sys
from spark_jobs.lake.engine.scratch import remove_left_scratch, scratch_folder
remove_left_scratch()
(scratch_folder() / "rows").write_text("x")
print(scratch_folder(), flush=True)
sys.stdin.read()
"""


def test_a_killed_process_leaves_nothing_to_those_that_come(tmp_path: Path) -> None:
    """The folder of one that lives stays, as does one whose lock is not there yet."""
    young = tmp_path / "headrace-kept-young"
    young.mkdir()
    environment = {**os.environ, "TMPDIR": str(tmp_path)}

    def start() -> tuple[subprocess.Popen[str], Path]:
        process = subprocess.Popen(
            [sys.executable, "-c", _KEEP], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        assert process.stdout is not None
        return process, Path(process.stdout.readline().strip())

    living, its_folder = start()
    killed, left = start()
    killed.kill()
    killed.communicate()
    assert (left / "rows").exists()
    later, last = start()
    assert not left.exists() and (its_folder / "rows").exists() and young.exists()
    for process in (living, later):
        process.communicate("")
        assert process.returncode == 0
    assert not its_folder.exists() and not last.exists() and young.exists()
