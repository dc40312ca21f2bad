"""The page of frameworks: each block is trained, resumed in the middle, and gives exactly the rows that follow."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from blender_service.blend.requests import SourceSpec
from blender_service.client import connect
from blender_service.exceptions import InvalidReadError
from blender_service.server.server import RunningServer
from tests.blender_service.packed_tables import VOCABULARY_SIZE, PackedFixture

torch = pytest.importorskip("torch", reason="torch is in the extra torch")

pytestmark = pytest.mark.filterwarnings("ignore")  # of the frameworks, about themselves
PAGE = Path(__file__).parents[2] / "docs" / "feed" / "frameworks.md"
ROWS = 64


class Model(torch.nn.Module):
    """Notes the offset of each batch that it is trained on."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.offsets: list[int] = []

    def forward(self, batch: dict[str, Any]) -> Any:
        """Give a loss."""
        self.offsets.append(batch["offset"])
        return self.weight.sum()


@pytest.fixture(params=["ends", pytest.param("endless", marks=pytest.mark.nightly)])
def run_block(request: pytest.FixtureRequest, serve: Callable[..., RunningServer], code: PackedFixture) -> Any:
    """Run the block of a section, with names given; gives its names. The blend has 700 rows, or no end."""
    address = serve().address
    with connect(address) as client:
        blend = client.create_blend([SourceSpec(code.identifier, max_epochs=int(request.param == "ends"))]).blend_id

    class Page:
        def source(self, section: str) -> str:
            block = re.search(
                rf"^## {section}.*?```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE
            )
            assert block is not None
            return block[1].replace("blender:7170", address).replace('"mix"', repr(blend))

        def __call__(self, section: str, **names: Any) -> dict[str, Any]:
            exec(compile(self.source(section), PAGE.name, "exec"), names)
            return names

    return Page()


def steps(first: int, end: int) -> list[int]:
    """Give the offsets of steps [first, end)."""
    return [ROWS * step for step in range(first, end)]


def test_a_loop_of_ones_own_goes_on(run_block: Any, tmp_path: Path) -> None:
    """Its state goes through a checkpoint of torch.distributed, also to other ranks."""
    seen: list[list[list[int]]] = []

    def train(batch: dict[str, Any]) -> None:
        seen.append(batch["input_ids"].tolist())

    names = {"train": train, "rank": 0, "world_size": 1}
    run_block("A loop", **names, steps=4, resume_from=None, save_to=tmp_path / "first")
    run_block("A loop", **names, steps=3, resume_from=tmp_path / "first", save_to=tmp_path / "second")
    whole = list(seen)
    seen.clear()
    run_block("A loop", **names, steps=7, resume_from=None, save_to=tmp_path / "third")
    assert whole == seen
    halves: list[list[list[int]]] = []
    for rank in range(2):
        seen.clear()
        names |= {"rank": rank, "world_size": 2}
        run_block("A loop", **names, steps=2, resume_from=tmp_path / "first", save_to=tmp_path / f"rank-{rank}")
        halves.append(list(seen))
    assert [first + second for first, second in zip(*halves, strict=True)] == whole[4:6]


@pytest.mark.nightly
def test_torchtitan_builds_the_loader_and_its_checkpoint_goes_on(run_block: Any, tmp_path: Path) -> None:
    """With what its Trainer builds a loader with, and read as its Trainer reads; under other ranks too."""
    pytest.importorskip("torchtitan", reason="torchtitan is installed by tests/packaging/test_newest.py alone")
    import torch.distributed.checkpoint as dcp
    from torchtitan.trainer import Trainer

    config = run_block("torchtitan", config=Trainer.Config())["config"]

    def loader(rank: int, world_size: int) -> Any:
        return config.dataloader.build(
            dp_world_size=world_size, dp_rank=rank, tokenizer=None, seq_len=16, local_batch_size=ROWS // world_size,
            snapshot_every_n_steps=None,
        )  # fmt: skip

    def read(rank: int, world_size: int, count: int, saved: Path | None, save_to: Path) -> list[list[list[int]]]:
        data = loader(rank, world_size)
        if saved is not None:
            dcp.load({"dataloader": data}, checkpoint_id=saved)
        reader = SimpleNamespace(metrics_processor=SimpleNamespace(ntokens_since_last_log=0, data_loading_times=[]))
        batches = Trainer.batch_generator(reader, data)
        rows = [inputs["input"].tolist() for _, (inputs, _) in zip(range(count), batches, strict=False)]
        dcp.save({"dataloader": data}, checkpoint_id=save_to)
        return rows

    whole = [inputs["input"].tolist() for _, (inputs, _) in zip(range(8), loader(0, 1), strict=False)]
    inputs, labels = next(iter(loader(0, 1)))
    assert inputs.keys() == {"input", "positions"}
    assert labels.shape == inputs["positions"].shape == inputs["input"].shape
    assert read(0, 1, 4, None, tmp_path / "first") == whole[:4]
    halves = [read(rank, 2, 2, tmp_path / "first", tmp_path / f"rank-{rank}") for rank in range(2)]
    assert [first + second for first, second in zip(*halves, strict=True)] == whole[4:6]


@pytest.mark.nightly
def test_a_loop_of_jax_goes_on(run_block: Any) -> None:
    """At the next step, also under other ranks; with what a jitted step wants."""
    jax = pytest.importorskip("jax", reason="JAX is installed by tests/packaging/test_newest.py alone")
    step = jax.jit(lambda batch: {name: values[:, :-1] for name, values in batch.items()})

    def train(state: list[list[list[int]]], batch: dict[str, Any]) -> list[list[list[int]]]:
        assert {values.shape for values in step(batch).values()} == {(batch["labels"].shape[0], 15)}
        return [*state, batch["input_ids"].tolist()]

    def read(first: int, last: int) -> list[list[list[int]]]:
        return run_block("JAX", train=train, state=[], first_step=first, last_step=last)["state"]  # type: ignore[no-any-return]

    whole = read(0, 7)
    assert read(0, 4) + read(4, 7) == whole
    assert [len(rows) for rows in whole] == [ROWS] * 7


@pytest.mark.nightly
def test_an_iterator_of_grain_goes_on(run_block: Any) -> None:
    """By its state, below a transformation; its ranks together read each step."""
    pytest.importorskip("grain", reason="grain is installed by tests/packaging/test_newest.py alone")

    def iterator(rank: int, world_size: int) -> Any:
        return iter(run_block("grain", rank=rank, world_size=world_size)["dataset"])

    rows = iterator(0, 1)
    whole = [batch["input_ids"].tolist() for _, batch in zip(range(4), rows, strict=False)]
    state = rows.get_state()
    whole += [batch["input_ids"].tolist() for _, batch in zip(range(3), rows, strict=False)]
    for world_size in (1, 2):
        parts = []
        for rank in range(world_size):
            again = iterator(rank, world_size)
            again.set_state(state)
            parts.append([batch["input_ids"].tolist() for _, batch in zip(range(3), again, strict=False)])
        assert [[row for rows in step for row in rows] for step in zip(*parts, strict=True)] == whole[4:]


DEEPSPEED = """
import json, sys
from pathlib import Path
import deepspeed, torch
from tests.blender_service.test_frameworks import ROWS, Model
block, folder, count, resume_from = sys.argv[1:]
for name in list(deepspeed.ops.__compatible_ops__):  # else it compiles some for minutes
    deepspeed.ops.__compatible_ops__[name] = False
deepspeed.init_distributed("gloo")
optimizer = {"type": "AdamW", "params": {"lr": 0.001, "torch_adam": True}}
config = {"train_micro_batch_size_per_gpu": ROWS // 2, "gradient_accumulation_steps": 2, "optimizer": optimizer}
model = Model()
names = {"model": model, "config": config, "steps": int(count), "resume_from": resume_from, "save_to": folder}
exec(Path(block).read_text(), names)
Path(folder, f"{torch.distributed.get_rank()}.json").write_text(json.dumps(model.offsets))
"""


@pytest.mark.nightly
def test_deepspeed_goes_on_in_the_middle(run_block: Any, tmp_path: Path) -> None:
    """Its checkpoint carries the state, for two processes; a step of two micro-batches takes two batches."""
    pytest.importorskip("deepspeed", reason="it is installed by tests/packaging/test_newest.py alone")
    root = Path(__file__).parents[2]
    program, block = tmp_path / "program.py", tmp_path / "block.py"
    program.write_text(DEEPSPEED)
    block.write_text(run_block.source("DeepSpeed"))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", program, block]
    environment = {**os.environ, "DS_ACCELERATOR": "cpu", "PYTHONPATH": os.pathsep.join([str(root), *sys.path])}
    seen: list[list[int]] = [[], []]
    for count, resume_from in (("2", ""), ("3", tmp_path / "2")):
        (tmp_path / count).mkdir()
        done = subprocess.run(
            [*command, tmp_path / count, count, resume_from],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        for rank in range(2):
            seen[rank] += json.loads((tmp_path / count / f"{rank}.json").read_text())
    assert seen == [steps(0, 10), [offset + ROWS // 2 for offset in steps(0, 10)]]


@pytest.mark.nightly
@pytest.mark.parametrize("wrap", ["the dataset", "a StatefulDataLoader"])
def test_lightning_goes_on_in_the_middle(run_block: Any, tmp_path: Path, wrap: str, monkeypatch: Any) -> None:
    """A checkpoint of step 4, saved while the loop went on, resumes at step 4, one of the end goes on too."""
    lightning = pytest.importorskip("lightning.pytorch", reason="Lightning is in the extra frameworks")
    stateful = pytest.importorskip("torchdata.stateful_dataloader", reason="torchdata is in the extra frameworks")
    if wrap == "a StatefulDataLoader":
        import blender_service.torch as module

        plain = module.BlendDataset
        monkeypatch.setattr(
            module, "BlendDataset", lambda *given, **named: stateful.StatefulDataLoader(plain(*given, **named), None)
        )
    saved = tmp_path / "middle.ckpt"

    class Module(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.inner = Model()

        def training_step(self, batch: dict[str, Any], index: int) -> Any:
            return self.inner(batch)

        def on_train_batch_end(self, *_: Any) -> None:
            if self.trainer.global_step == 4 and not saved.exists():
                self.trainer.save_checkpoint(saved)

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.1)

    quiet = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary", "enable_checkpointing"), False)
    names = {"settings": quiet | {"accelerator": "cpu", "default_root_dir": tmp_path}}
    first, second, third = Module(), Module(), Module()
    run_block("Lightning", **names, model=first, steps=6, resume_from=None)["trainer"].save_checkpoint(tmp_path / "end")
    run_block("Lightning", **names, model=second, steps=10, resume_from=saved)
    run_block("Lightning", **names, model=third, steps=10, resume_from=tmp_path / "end")
    assert first.inner.offsets == steps(0, 6)
    assert second.inner.offsets == steps(4, 10)
    assert third.inner.offsets == steps(6, 10)


def test_accelerate_goes_on_in_the_middle(run_block: Any, tmp_path: Path) -> None:
    """`save_state` and `load_state` keep the state of a dataset that is registered."""
    pytest.importorskip("accelerate", reason="Accelerate is in the extra frameworks")
    seen: list[int] = []
    for count, resume_from in ((4, None), (9, tmp_path / "4")):
        model = Model()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        names = {"model": model, "optimizer": optimizer, "cpu": True, "steps": count, "resume_from": resume_from}
        run_block("Accelerate", **names, save_to=tmp_path / str(count))
        seen += model.offsets
    assert seen == steps(0, 9)


def test_a_loader_that_accelerate_prepared_is_refused(run_block: Any, tmp_path: Path) -> None:
    """It would shard again what is sharded; the error says what to write."""
    accelerate = pytest.importorskip("accelerate", reason="Accelerate is in the extra frameworks")
    dataset = run_block("A loop", rank=0, world_size=1, resume_from=None, steps=0, save_to=tmp_path)["dataset"]
    loader = accelerate.Accelerator(cpu=True).prepare(torch.utils.data.DataLoader(dataset, batch_size=None))
    with pytest.raises(InvalidReadError, match=r"leave the dataset out of prepare\(\)"):
        next(iter(loader))
    dispatcher = accelerate.data_loader.DataLoaderDispatcher(dataset, batch_size=None)
    with pytest.raises(InvalidReadError, match="get_train_dataloader of its own"):
        next(iter(dispatcher))


@pytest.mark.nightly
def test_trainer_goes_on_in_the_middle(run_block: Any, tmp_path: Path) -> None:
    """A checkpoint of step 4 resumes at step 4; the loss is that of the labels as they are, not shifted once more."""
    transformers = pytest.importorskip("transformers", reason="transformers is in the extra transformers")
    pytest.importorskip("accelerate", reason="Accelerate is in the extra frameworks")
    seen: list[list[list[int]]] = []
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    config = transformers.LlamaConfig(vocab_size=VOCABULARY_SIZE, num_key_value_heads=1, **sizes)

    class Noting(transformers.LlamaForCausalLM):  # type: ignore[misc, name-defined]
        def forward(self, **inputs: Any) -> Any:
            assert self.config.use_cache is False  # else the documents of a row would see one another
            output = super().forward(**inputs)
            plain = torch.nn.functional.cross_entropy(output.logits.flatten(0, 1), inputs["shift_labels"].flatten())
            assert torch.allclose(output.loss, plain, rtol=1e-4)
            seen.append(inputs["input_ids"].tolist())
            return output

    names = {"output_dir": str(tmp_path), "settings": {"use_cpu": True, "save_steps": 4, "report_to": "none"}}
    run_block("Trainer", **names, model=Noting(config), steps=9, resume_from=None)
    whole = list(seen)
    seen.clear()
    run_block("Trainer", **names, model=Noting(config), steps=9, resume_from=str(tmp_path / "checkpoint-4"))
    assert seen == whole[4:]
    assert len(whole) == 9
