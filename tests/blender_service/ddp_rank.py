"""One rank of a training run by DistributedDataParallel; imports little, since each process imports it anew."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from blender_service.torch import BlendDataset


def train_rank(rank: int, address: str, folder: Path, first_steps: int) -> None:
    """Train one rank of two for some steps, save the state, and go on with a fresh dataset from what was saved."""
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    model = DistributedDataParallel(torch.nn.Embedding(300, 4))
    rows: list[list[int]] = []

    def steps(dataset: BlendDataset, most: int) -> None:
        for step, batch in enumerate(DataLoader(dataset, batch_size=None), 1):
            model(batch["input_ids"]).sum().backward()
            rows.extend(batch["input_ids"].tolist())
            if step == most:
                return

    dataset = BlendDataset(address, "code", 100, rank=rank, world_size=2)
    steps(dataset, first_steps)
    saved = [dataset.state_dict()]
    distributed.broadcast_object_list(saved)
    resumed = BlendDataset(address, "code", 100, rank=rank, world_size=2)
    resumed.load_state_dict(saved[0])
    steps(resumed, 100)
    (folder / f"rows-{rank}.json").write_text(json.dumps(rows))
    distributed.destroy_process_group()
