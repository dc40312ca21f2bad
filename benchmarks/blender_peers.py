"""Other streaming loaders beside Blender: each gives the same rows, ids as int64, to a torch loop in its own process.

    uv venv peers
    uv pip install --python peers/bin/python mosaicml-streaming==0.13.0 litdata==0.2.76 torchvision
    python benchmarks/bench_blender.py --part served --peers peers/bin/python

What they read was written by their own writers to local disk, and they give token ids alone; Blender's rows come
through gRPC into a `BlendDataset`, with ids alone and with all its tensors; the latter beside a plain copy of as many
bytes, from one set of arrays to another, which is what memory alone would allow. Last, a loop that takes 400,000
tokens/s, as 8 GPUs do, says how long it waited and what input cost its process. As a program it does one part
(`blender_peers.py mds-write ROWS.npy FOLDER`) and prints the rows it read and the seconds.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

BATCH_ROWS = 256
ROUNDS = 3
PASSES = 6  # over the rows, of which the first is not counted
LOOP_TOKENS, LOOP_ROWS, LOOP_SECONDS = 400_000, 64, 20


def bench_peers(python: str, folder: Path, rows: NDArray[np.uint16], address: str, blend: str) -> None:
    """Print rows/s of each loader, in turns, and ratios to it; one that does not run is named with the reason.

    Args:
        python: interpreter that has the other loaders.
        folder: for what they write.
        rows: (R, L) the rows that they get.
        address: of a Blender server.
        blend: that gives the same rows, without end.
    """
    np.save(folder / "rows.npy", rows)
    ours = {"Blender, ids": "input_ids", "Blender, all tensors": "all"}
    loaders: dict[str, tuple[str, list[str]]] = {
        name: (sys.executable, ["blender-read", address, blend, str(len(rows)), tensors])
        for name, tensors in ours.items()
    }
    for name in ("mds", "litdata"):
        try:
            _part(python, f"{name}-write", str(folder / "rows.npy"), str(folder / name))
        except subprocess.CalledProcessError as error:
            print(f"{name}: left out: {(error.stderr or 'no message').strip().splitlines()[-1]}")
        else:
            loaders[name] = (python, [f"{name}-read", str(folder / name), str(rows.shape[1])])
    loaders["a copy of the bytes of all tensors"] = (sys.executable, ["copy", str(rows.shape[1])])
    speeds: dict[str, list[float]] = {name: [] for name in loaders}
    for _ in range(ROUNDS):
        for name, (interpreter, arguments) in loaders.items():
            count, seconds = _part(interpreter, *arguments).split()[-2:]
            speeds[name].append(int(count) / float(seconds))
    title = f"rows of {rows.shape[1]:,} tokens into a torch loop"
    print(f"\n{title:44} {'rows/s':>8}" + "".join(f" {name + ' / it':>25}" for name in ours))
    for name, values in speeds.items():
        ratios = (np.median(speeds[one]) / np.median(values) for one in ours)
        print(f"{name:44} {np.median(values):8.0f}" + "".join(f" {ratio:25.2f}" for ratio in ratios))
    print(_part(sys.executable, "blender-loop", address, blend), end="")
    for name in ("mds", "litdata"):
        shutil.rmtree(folder / name, ignore_errors=True)


def _part(python: str, *arguments: str) -> str:
    command = [python, __file__, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout


def write_mds(rows: NDArray[np.uint16], folder: str) -> None:
    """Write rows as MosaicML Streaming does."""
    from streaming import MDSWriter

    with MDSWriter(out=folder, columns={"input_ids": f"ndarray:uint16:{rows.shape[1]}"}) as writer:
        for row in rows:
            writer.write({"input_ids": row})


def read_mds(folder: str) -> Iterator[Any]:
    """Give batches as MosaicML Streaming reads them, in order."""
    from streaming import StreamingDataset
    from torch.utils.data import DataLoader

    dataset = StreamingDataset(local=folder, shuffle=False, batch_size=BATCH_ROWS)
    for _ in range(PASSES):
        yield from (batch["input_ids"] for batch in DataLoader(dataset, batch_size=BATCH_ROWS))


def tokens_of(path: str) -> Iterator[Any]:
    """Give the tokens of rows, one row after the other, to litData's writer."""
    import torch

    yield from torch.from_numpy(np.load(path))


def write_litdata(path: str, folder: str, window_tokens: int) -> None:
    """Write rows as litData does for language models."""
    import litdata

    loader = litdata.TokensLoader(block_size=window_tokens)
    litdata.optimize(tokens_of, [path], folder, chunk_size=8192 * window_tokens, num_workers=1, item_loader=loader)


def read_litdata(folder: str, window_tokens: int) -> Iterator[Any]:
    """Give batches as litData reads them, in order."""
    import litdata

    loader = litdata.TokensLoader(block_size=window_tokens)
    dataset = litdata.StreamingDataset(folder, item_loader=loader, shuffle=False)
    for _ in range(PASSES):
        yield from litdata.StreamingDataLoader(dataset, batch_size=BATCH_ROWS)


def read_blender(address: str, blend: str, pass_rows: int, tensors: str) -> Iterator[Any]:
    """Give batches of Blender, each once all its tensors are there."""
    from blender_service.torch import TENSORS, BlendDataset

    names = TENSORS if tensors == "all" else (tensors,)
    for number, batch in enumerate(BlendDataset(address, blend, BATCH_ROWS, tensors=names), start=1):
        yield batch["input_ids"]
        if number * BATCH_ROWS >= pass_rows * PASSES:
            return


def loop(batches: Iterable[Any], pass_rows: int) -> None:
    """Touch every batch as a training loop does; print rows and seconds after the first pass."""
    read, began = 0, 0.0
    for batch in batches:
        read += len(batch.long())
        if not began and read >= pass_rows:
            read, began = 0, time.perf_counter()
    print(read, time.perf_counter() - began)


def copy_bytes(window_tokens: int) -> None:
    """Copy batches of the sizes of all tensors between arrays that are there; print rows and seconds."""
    sizes = [BATCH_ROWS * window_tokens * width // 8 for width in (8, 8, 8, 4)]  # ids, labels, positions; documents
    batches = [[np.full(size, number) for size in sizes] for number in range(6)]
    count, began = 400, time.perf_counter()
    for number in range(count):
        for target, source in zip(batches[number % 6], batches[(number + 3) % 6], strict=True):
            np.copyto(target, source)
    print(count * BATCH_ROWS, time.perf_counter() - began)


def loop_at_pace(address: str, blend: str) -> None:
    """Take all tensors of `LOOP_TOKENS` tokens a second; print the share of waiting, and of a core that input takes."""
    from blender_service.torch import BlendDataset

    dataset = BlendDataset(address, blend, LOOP_ROWS)
    started = spent = 0.0
    for number, batch in enumerate(dataset):
        if number == 0:
            started, spent = time.perf_counter(), time.process_time()
        due = started + number * batch["input_ids"].numel() / LOOP_TOKENS
        time.sleep(max(0.0, due - time.perf_counter()))
        if due - started > LOOP_SECONDS:
            break
    core = (time.process_time() - spent) / (time.perf_counter() - started)
    stalled = dataset.input_stall_seconds * 1e3
    print(
        f"{f'a loop at {LOOP_TOKENS:,} tokens/s, all tensors':44} waits {stalled:.1f} ms in {LOOP_SECONDS} s, ", end=""
    )
    print(f"input takes {core:.2%} of a core")


def main() -> None:
    """Do one part."""
    part, *arguments = sys.argv[1:]
    if part == "mds-write":
        write_mds(np.load(arguments[0]), arguments[1])
    elif part == "litdata-write":
        write_litdata(*arguments, np.load(arguments[0]).shape[1])
    elif part == "blender-read":
        loop(read_blender(arguments[0], arguments[1], int(arguments[2]), arguments[3]), int(arguments[2]))
    elif part == "copy":
        copy_bytes(int(arguments[0]))
    elif part == "blender-loop":
        loop_at_pace(*arguments)
    else:
        pass_rows = len(np.load(Path(arguments[0]).parent / "rows.npy", mmap_mode="r"))
        batches = read_mds(arguments[0]) if part == "mds-read" else read_litdata(arguments[0], int(arguments[1]))
        loop(batches, pass_rows)


if __name__ == "__main__":
    main()
