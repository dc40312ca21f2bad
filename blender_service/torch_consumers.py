"""What takes a dataset's batches, where that decides whether its state is right.

A dataset is told nothing of its consumer. So the calls that lead to it are looked through, once an iteration, for the
objects of the loaders and loops that are known to take batches in another way than one by one.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from torch.utils.data._utils.fetch import _BaseDatasetFetcher

from blender_service.exceptions import InvalidReadError

LIGHTNING = ("lightning.pytorch.", "pytorch_lightning.")


def is_read_by_data_loader(dataset: object) -> bool:
    """Say whether a torch `DataLoader`, or one of its kind, begins to iterate a dataset.

    Raises:
        InvalidReadError: it would collate whole batches again.
    """
    for owner in _callers():
        if isinstance(owner, _BaseDatasetFetcher) and owner.dataset is dataset:
            if owner.auto_collation:
                raise InvalidReadError(
                    "dataset: a DataLoader would put batches of the dataset into batches of its own; write "
                    "DataLoader(dataset, batch_size=None), the rows of a step are batch_rows"
                )
            return True
    return False


def check_lightning(is_endless: bool, is_told_where: bool) -> None:
    """Refuse Lightning's loop where a checkpoint's state would not be that of what was trained on.

    Where it does not know how many batches there are, it takes one ahead, to see whether there is one. And it loads the
    state of a loader only where an epoch was not at its end, or `max_steps` is set.

    Args:
        is_endless: whether the dataset has no length.
        is_told_where: whether a state was loaded, or an offset given.

    Raises:
        InvalidReadError: it says what to write.
    """
    for owner in _callers():
        if not type(owner).__module__.startswith(LIGHTNING):
            continue
        if is_endless and getattr(owner, "prefetch_batches", False) and owner.length is None:
            raise InvalidReadError(
                "dataset: the blend has no end, so Lightning would take a batch ahead, and a checkpoint would "
                "count it as trained on; say how many there are: Trainer(limit_train_batches=steps), or "
                "limit_val_batches where it validates"
            )
        if not is_told_where and getattr(owner, "_combined_loader_states_to_load", None):
            raise InvalidReadError(
                "dataset: the checkpoint was saved at the end of an epoch, and Lightning then loads its model and not "
                "the state of its data, which would begin at the first row again; with "
                "Trainer(max_epochs=-1, max_steps=..) it loads both"
            )


def _callers() -> Iterator[Any]:
    """Give the objects whose methods are being called, the nearest first."""
    frame = sys._getframe(2)
    while frame is not None:
        if "self" in frame.f_code.co_varnames[:1]:
            yield frame.f_locals.get("self")
        frame = frame.f_back  # type: ignore[assignment]
