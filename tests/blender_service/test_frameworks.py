"""The page of frameworks: each block is trained, resumed in the middle, and gives exactly the rows that follow."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from blender_service.blend.requests import SourceSpec
from blender_service.client import connect
from blender_service.exceptions import InvalidReadError
from blender_service.server.server import RunningServer
from tests.blender_service.packed_tables import VOCABULARY_SIZE, PackedFixture

torch = pytest.importorskip("torch", reason="torch is in the extra torch")

pytestmark = pytest.mark.filterwarnings("ignore")  # of the frameworks, about themselves
PAGE = Path(__file__).parents[2] / "docs" / "frameworks.md"
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
        blend = client.create_blend([SourceSpec(code.identifier, max_epochs=request.param == "ends")]).blend_id

    def run(section: str, **names: Any) -> dict[str, Any]:
        text = PAGE.read_text("utf-8")
        block = re.search(rf"^## {section}.*?```python\n(.*?)```", text, re.DOTALL | re.MULTILINE)
        assert block is not None
        source = block[1].replace("blender:7170", address).replace('"mix"', repr(blend))
        exec(compile(source, PAGE.name, "exec"), names)
        return names

    return run


def steps(first: int, end: int) -> list[int]:
    """Give the offsets of steps [first, end)."""
    return [ROWS * step for step in range(first, end)]


def test_a_loop_in_the_way_of_torchtitan_goes_on(run_block: Any, tmp_path: Path) -> None:
    """Its state goes through a checkpoint of torch.distributed, also to other ranks."""
    seen: list[list[list[int]]] = []

    def train(inputs: dict[str, Any], labels: Any) -> None:
        seen.append(inputs["input_ids" if "input_ids" in inputs else "input"].tolist())

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
@pytest.mark.parametrize("wrap", ["the dataset", "a StatefulDataLoader"])
def test_lightning_goes_on_in_the_middle(run_block: Any, tmp_path: Path, wrap: str, monkeypatch: Any) -> None:
    """A checkpoint of step 4, saved while the loop went on, resumes at step 4 and goes to the end of the blend."""
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
    first, second = Module(), Module()
    run_block("Lightning", **names, model=first, steps=6, resume_from=None)
    run_block("Lightning", **names, model=second, steps=10, resume_from=saved)
    assert first.inner.offsets == steps(0, 6)
    assert second.inner.offsets == steps(4, 10)


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
    dataset = run_block("A loop", rank=0, world_size=1, resume_from=None, steps=0, save_to=tmp_path)["loader"].dataset
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
