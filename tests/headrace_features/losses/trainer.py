"""A training job for test_kill.py: `python -m tests.headrace_features.losses.trainer ADDRESS STATE STEPS ATTEMPT`.

It trains nothing: the loss of a token follows from its row and the attempt. State is saved every three steps, after a
flush; it says so on stdout, and where it stands.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from blender_service.client.identity import Identity
from blender_service.torch import DENSE, BlendDataset, LossWriter
from tests.headrace_features.losses.losses_by_row import drawn

RUN, ROWS, EVERY, SAVED_EVERY = "killed", 8, 2, 3


def main(address: str, state: Path, steps: int, attempt: int) -> None:
    """Train until `steps` steps are made in all attempts."""
    dataset = BlendDataset(
        address, "mix", ROWS, rank=0, world_size=1, tensors=(*DENSE, "segment_documents"), identity=Identity(run=RUN)
    )
    if state.exists():
        dataset.load_state_dict(json.loads(state.read_text()))
    with LossWriter(address, RUN, every=EVERY) as writer:
        for batch in dataset:
            writer.add(batch["offset"], drawn(batch, attempt), batch)
            made = dataset.state_dict()["offset"] // ROWS
            if made % SAVED_EVERY == 0 or made == steps:
                assert writer.flush() == 0
                state.with_suffix(".new").write_text(json.dumps(dataset.state_dict()))
                state.with_suffix(".new").replace(state)
            sys.stdout.write(f"{made}\n")
            sys.stdout.flush()
            if made == steps:
                return


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
