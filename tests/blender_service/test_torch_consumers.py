"""What takes a dataset's batches: loaders that would batch again, take ahead, or begin a run anew are refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog

from blender_service.blend.requests import SourceSpec
from blender_service.blend.store import open_store
from blender_service.client import Identity, connect
from blender_service.exceptions import InvalidReadError, StateError
from blender_service.server.run_register import RunRegister
from tests.blender_service.packed_tables import PackedFixture
from tests.waiting import until

torch = pytest.importorskip("torch", reason="torch is in the extra torch")
from torch.utils.data import DataLoader, IterableDataset  # noqa: E402 (needs torch)

from blender_service.torch import BlendDataset  # noqa: E402 (needs torch)
from tests.tiers import sampled  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # torchdata 0.11 calls it


@pytest.fixture(params=["server", "lake:"])
def address(request: pytest.FixtureRequest, code: PackedFixture, tmp_path: Path, monkeypatch: Any) -> str:
    """A server, or the lake without one, with the blend `code`: 700 rows, once; and `endless`, of the same table."""
    monkeypatch.chdir(tmp_path)  # which holds warehouse/
    address: str = request.getfixturevalue("serve")().address if request.param == "server" else request.param
    with connect(address) as client:
        client.create_blend([SourceSpec(code.identifier)], seed=17, name="code")
        client.create_blend([SourceSpec(code.identifier, max_epochs=0)], seed=17, name="endless")
    return address


def loaders() -> list[Callable[..., Any]]:
    """The kinds of loaders that are here."""
    try:
        from torchdata.stateful_dataloader import StatefulDataLoader
    except ModuleNotFoundError:
        return [DataLoader]
    return [DataLoader, StatefulDataLoader]


@sampled(2)
@pytest.mark.parametrize("how", [{}, {"batch_size": 1}, {"batch_size": 4, "drop_last": True}, {"collate_fn": list}])
def test_a_loader_that_would_batch_again_is_refused(address: str, how: dict[str, Any]) -> None:
    """Whatever it collates with, also around a dataset that is a subclass; one that cuts batches into rows may."""

    class Ours(BlendDataset):
        def __iter__(self) -> Iterator[Any]:
            yield from super().__iter__()

    class Rows(IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            for batch in BlendDataset(address, "code", 50):
                yield from batch["input_ids"]

    for loader in loaders():
        for dataset in (BlendDataset(address, "code", 50), Ours(address, "code", 50)):
            with pytest.raises(InvalidReadError, match=r"DataLoader\(dataset, batch_size=None\)"):
                next(iter(loader(dataset, **how)))
            assert dataset.state_dict()["offset"] == 0
            assert len([*loader(dataset, batch_size=None)]) == 14
        assert sum(len(rows) for rows in loader(Rows(), **how)) == 700


def test_a_loader_that_begins_a_run_anew_is_refused(address: str, code: PackedFixture, lake: Catalog) -> None:
    """A run that consumed rows of the blend, or of one it continues, goes on by a state, or begins where it is told."""
    run = Identity(run="llm-7b")
    register = RunRegister(open_store(lake).objects)

    def begin(blend: str, identity: Identity = run, **how: Any) -> BlendDataset:
        return BlendDataset(address, blend, 50, identity=identity, **how)

    dataset = begin("code")
    for _ in zip(range(3), DataLoader(dataset, batch_size=None), strict=False):
        pass
    until(
        lambda: "llm-7b" in register.names() and (read := register.reads("llm-7b")[0]).status and read.consumed == 150
    )
    with connect(address) as client:
        child = client.update_blend("code", 400, [], align=True).blend_id
    for blend in ("code", child):
        for loader in loaders():
            with pytest.raises(StateError, match=r"run llm-7b: has consumed rows of blend .* up to 150.*offset=0"):
                next(iter(loader(begin(blend), batch_size=None)))
    for allowed, offset in (
        (begin("code", offset=0), 0),
        (begin("code", Identity(run="llm-8b")), 0),
        (begin("code", Identity()), 0),
        (begin("endless"), 0),
        (begin("code", rank=1, world_size=2), 25),
        (begin("code", offset=50), 50),
    ):
        assert next(iter(DataLoader(allowed, batch_size=None)))["offset"] == offset
    resumed, restarted = begin("code"), begin("code")
    resumed.load_state_dict(dataset.state_dict())
    restarted.load_state_dict({"blend": dataset.blend.blend_id, "offset": 0})
    assert [next(iter(DataLoader(one, batch_size=None)))["offset"] for one in (resumed, restarted)] == [150, 0]
    assert next(iter(begin("code")))["offset"] == 0, "a loop of one's own knows what it does"


def test_peers_that_begin_together_do_not_see_one_another(address: str) -> None:
    """A read that runs now is no reason to refuse one that begins."""
    first, second = (BlendDataset(address, "code", 50, identity=Identity(run="peers")) for _ in range(2))
    batches = iter(DataLoader(first, batch_size=None))
    next(batches)
    assert next(iter(DataLoader(second, batch_size=None)))["offset"] == 0


def lightning_module(lightning: Any, seen: list[int], each: Callable[[Any], None]) -> Any:
    """A module that notes the offsets it is trained on."""

    class Module(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(1))

        def training_step(self, batch: dict[str, Any], index: int) -> Any:
            seen.append(batch["offset"])
            return self.weight.sum()

        def on_train_batch_end(self, *_: Any) -> None:
            each(self.trainer)

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.1)

    return Module()


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("wrap", ["dataset", "DataLoader", "StatefulDataLoader"])
@pytest.mark.parametrize("blend", ["code", "endless"])
def test_lightning_counts_what_it_trained_on_or_is_refused(
    serve: Any, code: PackedFixture, tmp_path: Path, blend: str, wrap: str
) -> None:
    """After each step the state is that of the step; without a number of steps a blend without end is refused."""
    lightning = pytest.importorskip("lightning.pytorch", reason="Lightning is in the extra frameworks")
    stateful = pytest.importorskip("torchdata.stateful_dataloader", reason="torchdata is in the extra frameworks")
    wraps = {"dataset": lambda one: one, "DataLoader": lambda one: DataLoader(one, batch_size=None)}
    wraps["StatefulDataLoader"] = lambda one: stateful.StatefulDataLoader(one, batch_size=None)
    address = serve().address
    with connect(address) as client:
        blend = client.create_blend([SourceSpec(code.identifier, max_epochs=int(blend == "code"))]).blend_id
    quiet = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary", "enable_checkpointing"), False)
    quiet |= {"accelerator": "cpu", "default_root_dir": tmp_path}

    def fit(**how: Any) -> tuple[BlendDataset, list[int]]:
        dataset, seen = BlendDataset(address, blend, 50), list[int]()

        def counted(trainer: Any) -> None:
            assert dataset.state_dict()["offset"] == trainer.global_step * 50

        lightning.Trainer(**quiet, **how).fit(lightning_module(lightning, seen, counted), wraps[wrap](dataset))
        return dataset, seen

    for how in ({"limit_train_batches": 5, "max_epochs": 1}, {"limit_train_batches": 2, "max_epochs": 3}):
        dataset, seen = fit(**how)
        assert seen == [50 * step for step in range(how["limit_train_batches"] * how["max_epochs"])]
        assert dataset.state_dict()["offset"] == seen[-1] + 50
    if BlendDataset(address, blend, 50).blend.end is None:
        with pytest.raises(InvalidReadError, match="limit_train_batches=steps"):
            fit(max_steps=5)
    else:
        dataset, seen = fit(max_epochs=1)
        assert len(seen) == 14
        with pytest.raises(StateError, match=r"ended at offset 700.*max_epochs"):
            fit(max_epochs=2)


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("wrap", ["dataset", "StatefulDataLoader"])
def test_lightning_goes_on_after_an_epoch_or_is_refused(
    serve: Any, code: PackedFixture, tmp_path: Path, wrap: str
) -> None:
    """It does not load the state of data that it saved at the end of an epoch, unless max_steps is set."""
    lightning = pytest.importorskip("lightning.pytorch", reason="Lightning is in the extra frameworks")
    stateful = pytest.importorskip("torchdata.stateful_dataloader", reason="torchdata is in the extra frameworks")
    address = serve().address
    with connect(address) as client:
        blend = client.create_blend([SourceSpec(code.identifier)]).blend_id
    quiet = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary", "enable_checkpointing"), False)
    quiet |= {"accelerator": "cpu", "default_root_dir": tmp_path, "limit_train_batches": 3}
    saved = tmp_path / "epoch.ckpt"

    def fit(resume_from: Path | None, told: int | None = None, **how: Any) -> list[int]:
        dataset, seen = BlendDataset(address, blend, 50, offset=told), list[int]()
        data = stateful.StatefulDataLoader(dataset, batch_size=None) if wrap == "StatefulDataLoader" else dataset
        trainer = lightning.Trainer(**quiet, **how)
        module = lightning_module(lightning, seen, lambda _: None)
        trainer.fit(module, data, ckpt_path=resume_from, weights_only=False)
        if resume_from is None:
            trainer.save_checkpoint(saved)
        return seen

    assert fit(None, max_epochs=1) == [0, 50, 100]
    with pytest.raises(InvalidReadError, match=r"saved at the end of an epoch.*max_epochs=-1, max_steps="):
        fit(saved, max_epochs=2)
    assert fit(saved, max_epochs=-1, max_steps=6) == [150, 200, 250]
    assert fit(saved, told=150, max_epochs=2) == [150, 200, 250]


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")
def test_a_trainer_asks_how_many_steps_and_has_no_second_pass(serve: Any, code: PackedFixture, tmp_path: Path) -> None:
    """A blend without end leaves the Trainer's own error, set max_steps; two passes over one that ends are refused."""
    transformers = pytest.importorskip("transformers", reason="transformers is in the extra transformers")
    pytest.importorskip("accelerate", reason="Accelerate is in the extra frameworks")
    address = serve().address
    with connect(address) as client:
        once, endless = (client.create_blend([SourceSpec(code.identifier, max_epochs=n)]).blend_id for n in (1, 0))
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    config = transformers.LlamaConfig(vocab_size=300, num_key_value_heads=1, **sizes)

    class BlendTrainer(transformers.Trainer):  # type: ignore[misc, name-defined]
        def get_train_dataloader(self) -> Any:
            names = ("input_ids", "position_ids", "labels")
            return DataLoader(self.train_dataset, None, collate_fn=lambda batch: {name: batch[name] for name in names})

    def train(blend: str, **how: Any) -> Any:
        arguments = transformers.TrainingArguments(str(tmp_path), use_cpu=True, report_to="none", save_steps=7, **how)
        model = transformers.LlamaForCausalLM(config)
        trainer = BlendTrainer(model, arguments, train_dataset=BlendDataset(address, blend, 50))
        trainer.train()
        return trainer.state

    with pytest.raises(ValueError, match="max_steps"):
        train(endless)
    assert train(endless, max_steps=3).global_step == 3
    assert train(once, num_train_epochs=1).global_step == 14
    assert train(once, max_steps=14).global_step == 14
    with pytest.raises(StateError, match=r"ended at offset 700.*max_epochs"):
        train(once, num_train_epochs=2)
