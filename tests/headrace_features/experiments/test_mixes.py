"""Mixes: repeats are matched exactly, a search proposes within bounds, one from a former mix says what it saves."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyiceberg.catalog import Catalog

from blender_service.server.blender import Blender
from dagster_project.exceptions import CommandError, DefinitionError
from headrace.tables.settings import settings_at
from headrace_features.experiments import declared as declared_module
from headrace_features.experiments.declaration import ExperimentDeclaration, Variant, declare_experiment
from headrace_features.experiments.experiment import LakeExperiment, Run
from headrace_features.experiments.mixes import fit_mix, search_of
from headrace_features.experiments.reading import VariantContents, blend_of, rows_of
from headrace_features.experiments.thinning import kept_rows
from tests.blender_service.packed_tables import create_packed, open_lake

# What a token of each source is worth for each set: `a` and `b` want sources of their own, `d` is good for both.
WORTH = {"a": {"one": 1.0, "other": 0.1}, "b": {"one": 0.1, "other": 1.0}, "c": {"one": 0.1, "other": 0.1}}
WORTH |= {"d": {"one": 0.9, "other": 0.9}}


@pytest.fixture
def catalogue(tmp_path: Path) -> Catalog:
    """A lake with a packed table for each source."""
    lake = open_lake(tmp_path / "warehouse")
    for number, name in enumerate(WORTH):
        create_packed(lake, f"main.packed_{name}_16").append(300 + 200 * number, seed=number)
    (tmp_path / "essays.jsonl").write_text(json.dumps({"text": "an essay"}))
    return lake


@dataclass
class Lake:
    """Experiments on it, whose runs are planted; `trained` has their variants."""

    catalogue: Catalog
    folder: Path
    trained: list[str] = field(default_factory=list)
    declared: dict[str, ExperimentDeclaration] = field(default_factory=dict)

    def experiment(self, name: str, sources: str | Mapping[str, str], **mixes: Any) -> LakeExperiment:
        """One with some sources."""
        tables = {one: f"main.packed_{one}_16" for one in sources} if isinstance(sources, str) else dict(sources)
        sets = {one: {"file": str(self.folder / "essays.jsonl")} for one in ("one", "other")}
        values = {"name": name, "mixes": {"sources": tables, **mixes}, "budget_tokens": 1000, "seeds": 1}
        self.declared[name] = declare_experiment({**values, "learning_rates": [0.01], "held_out": sets}, Path("/"))
        return LakeExperiment(self.declared[name], self.catalogue, settings_at(self.folder))

    def losses(self, variant: Variant) -> dict[str, float]:
        """The planted ones: a power of what the shares are worth; without thinning all is better."""
        total = sum(map(float, variant.sources.values()))
        shares = {table.split("_")[1]: float(share) / total for table, share in variant.sources.items()}
        worth = {s: sum(share * WORTH[name][s] for name, share in shares.items()) for s in ("one", "other")}
        return {name: 1 + 0.5 * value**-0.3 - 0.25 * (variant.thinned == 1) for name, value in worth.items()}


@pytest.fixture
def lake(catalogue: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """Runs are not trained: their losses are planted."""
    planted = Lake(catalogue, tmp_path)

    def processed(
        self: LakeExperiment, waiting: Mapping[str, tuple[str, Run]], measured: bool
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        for key, (_, run) in waiting.items():
            planted.trained.append(run.variant)
            losses = planted.losses(self.variants[run.variant])
            scores = [{"set": s, "measure": "bits_per_byte", "value": v, "chance": None} for s, v in losses.items()]
            yield key, {"losses": [], "scores": scores, "seconds": 0.0, "device": "", "tokens": run.tokens}

    monkeypatch.setattr(LakeExperiment, "_processed", processed)
    monkeypatch.setattr(declared_module, "declared_experiment", lambda name: planted.declared[name])
    return planted


@pytest.mark.parametrize(("share", "budget"), [(0.1, 2000), (0.031, 700), (0.5, 9000)])
def test_a_thinned_source_is_repeated_as_often_as_by_the_target(catalogue: Catalog, share: float, budget: int) -> None:
    """By the rows that were read: so many, from all increments alike, each as often as another but for one pass."""
    table = create_packed(catalogue, "main.packed_notes_16").append(400, seed=7).append(200, seed=8, increment=1)
    blend = blend_of(Blender(catalogue), "x", Variant(sources={"main.packed_notes_16": 1}), 0)
    contents, counts = VariantContents(), Counter[tuple[int, ...]]()
    for rows in rows_of(catalogue, blend, {}, budget, 0, contents, thinned=share):
        counts.update(map(tuple, rows.input_ids.tolist()))
    kept = round(600 * share)
    assert kept_rows(600, share) == kept and kept_rows(600, 1) == 600
    wanted = Counter(table.rows[number * 600 // kept].input_ids for number in range(kept))
    passes, more = divmod(contents.rows, kept)
    assert set(counts) <= set(wanted) and contents.epochs["main.packed_notes_16"] == contents.rows / kept
    for ids, rows in wanted.items():  # some rows are equal by chance
        assert passes * rows <= counts[ids] <= (passes + bool(more)) * rows


def test_thinned_cells_are_of_their_own_rows(catalogue: Catalog) -> None:
    """A source of some cells counts its rows along their runs, and of those each second one is read."""
    cells = {'{"quality":0}': 40, '{"quality":1}': 60}
    table = create_packed(catalogue, "main.packed_web_16", cells=True)
    table.append_cells(3, 0, cells).append_cells(4, 1, cells)
    blend = blend_of(Blender(catalogue), "x", Variant(sources={"main.packed_web_16[quality=1]": 1}), 0)
    contents, read = VariantContents(), set[tuple[int, ...]]()
    for rows in rows_of(catalogue, blend, {}, 2000, 0, contents, thinned=0.5):
        read |= set(map(tuple, rows.input_ids.tolist()))
    own = [row.input_ids for row, cell in zip(table.rows, table.cells, strict=True) if "1" in cell]
    assert read == set(own[::2]) and contents.rows > 60


def test_rows_that_are_not_thinned_are_read_as_before(catalogue: Catalog) -> None:
    """The order of the blend itself, so no run that is known is trained again."""
    blend = blend_of(Blender(catalogue), "x", Variant(sources={"main.packed_a_16": 1, "main.packed_b_16": 2}), 0)
    contents = VariantContents()
    list(rows_of(catalogue, blend, {}, 3000, 0, contents))
    assert contents.digest == "6102c88458599df9b0b5d98612f285c6d88624c7c8a6e33da55d2b9a998e8de2"
    with pytest.raises(DefinitionError, match="thinned: a blend is read as it is"):
        declare_experiment(
            {"name": "x", "variants": {"x": {"blend": "y", "thinned": 0.1}}, "budget_tokens": 1000}, Path("/")
        )


def test_a_search_proposes_and_says_what_is_lost_where(lake: Lake) -> None:
    """Two rounds, one more run without thinning, a blend within the bounds; again it trains nothing."""
    experiment = lake.experiment("first", "abc", target_tokens=10_000, least={"c": 0.1}, aims={"one": 3, "other": 1})
    plan = list(search_of(experiment).lines())
    assert "12 runs on mixes of 3 sources, 8 of them all over, of which 8 are to be done, then 4 near" in plan[0]
    assert "runs read 1/10 of each source's rows, to repeat them as a run of 10,000 tokens will; 1 more" in plan[1]
    with pytest.raises(CommandError, match="8 of its runs are not done; run: headrace run first"):
        fit_mix(experiment, train=False)
    found = fit_mix(experiment)
    assert lake.trained == [*(f"mix_{number:02}" for number in range(12)), "mix_08_unthinned"] and found.trained == 13
    mix = dict(zip("abc", found.proposal.mix, strict=True))
    assert mix["c"] == pytest.approx(0.1, abs=1e-3) and mix["a"] > mix["b"] > 0.05
    assert found.unmatched == pytest.approx((-0.25, -0.25))
    blend = {source.name: source.weight for source in Blender(lake.catalogue).config(found.blend).sources}
    assert blend["a"] / sum(blend.values()) == pytest.approx(mix["a"], abs=1e-3)
    text = found.text()
    assert "a trade-off: the best mix for one loses" in text and "proposed" in text and "best for other" in text
    assert "times, and small ones so do of 1/10 of the rows" in text and "otherwise: one -0.2500, other -0.2500" in text
    page = found.metadata()
    assert next(record.data["for"] for record in page["front"].records).endswith("best for one")
    assert "data:image/png;base64," in page["won_and_lost"].value
    lake.trained.clear()
    again = fit_mix(experiment, train=False)
    assert again.text() == text and lake.trained == []


@pytest.mark.nightly
def test_a_search_from_a_former_mix_keeps_what_is_as_it_was(lake: Lake) -> None:
    """A new source costs the runs of two; a removed one has no share; former runs count where they measure alike."""
    former = fit_mix(lake.experiment("former", "abc"))
    lake.trained.clear()
    experiment = lake.experiment("now", "abd", **{"from": "former"})
    plan = " ".join(search_of(experiment).lines())
    assert "as one source: a 0.5" in plan and "new d; no more, or changed: c; that saves 3 runs" in plan
    assert "12 former mixes count in the law" in plan and "9 runs on mixes of 2 sources" in plan
    found = fit_mix(experiment)
    assert 6 <= len(lake.trained) <= 9 and found.notes[0] in plan  # equal mixes are trained once
    mix = dict(zip("abd", found.proposal.mix, strict=True))
    assert set(found.sources) == {"a", "b", "d"} and sum(mix.values()) == pytest.approx(1) and mix["d"] > 0.9
    first = [
        list(variant.sources.values())
        for variant in search_of(experiment).variants(np.array([[0.4, 0.4, 0.2, 0]]), 0).values()
    ]
    assert first == [[0.4, 0.4, 0.2]]
    ratio = former.proposal.mix[0] / former.proposal.mix[1]
    for mix_of_runs in found.runs.mixes[: search_of(experiment).search.first_count]:
        assert mix_of_runs[0] / mix_of_runs[1] == pytest.approx(ratio, rel=0.02)
    plan = " ".join(search_of(lake.experiment("third", "bdc", **{"from": "now"})).lines())
    without = sum(not row[2] for row in former.runs.mixes)  # runs on c, which was lost between, do not count
    assert f"new c; no more, or changed: a; that saves 3 runs, and {9 + without} former mixes count" in plan
    alone = lake.experiment("apart", "abd", max_epochs=5, target_tokens=20_000, **{"from": "former"})
    assert "count in the law" not in " ".join(search_of(alone).lines())


def test_a_search_over_what_a_former_one_had_trains_nothing(lake: Lake) -> None:
    """Its runs are fitted again, with the aims of now."""
    former = fit_mix(lake.experiment("former", "abc"))
    lake.trained.clear()
    same = lake.experiment("same", "abc", **{"from": "former"})
    assert list(search_of(same).lines()) == [
        "same: from former: all sources are as they were, so its runs are the answer: 0 runs"
    ]
    found = fit_mix(same)
    assert (found.blend, found.trained, found.experiment) == (former.blend, 0, "same") and lake.trained == []
    other = fit_mix(lake.experiment("aimed", "abc", aims={"other": 1}, **{"from": "former"}))
    assert other.trained == 0 and other.proposal.mix[1] > found.proposal.mix[1] + 0.2 and lake.trained == []


@pytest.mark.nightly
def test_a_search_from_a_former_mix_says_where_nothing_is_saved(lake: Lake) -> None:
    """Nothing is as it was, or one source; the former one was never run, or has no mix."""
    fit_mix(lake.experiment("former", "abc"))
    changed = {name: "main.packed_d_16" if name == "a" else f"main.packed_{name}_16" for name in "ab"}
    one = " ".join(search_of(lake.experiment("one", changed, **{"from": "former"})).lines())
    assert "b alone is as it was (new a; no more, or changed: a, c), so no run is saved" in one
    none = {"x": "main.packed_a_16", "y": "main.packed_d_16"}
    assert "no source is as it was" in next(search_of(lake.experiment("none", none, **{"from": "former"})).lines())
    lake.experiment("never", "abc")
    with pytest.raises(CommandError, match="8 of its runs are not done; run: headrace run never"):
        search_of(lake.experiment("late", "abd", **{"from": "never"}))
    lake.declared["variants"] = lake.declared["former"].model_copy(update={"mixes": None, "name": "variants"})
    with pytest.raises(CommandError, match="variants has variants; name one with mixes"):
        search_of(lake.experiment("late", "abd", **{"from": "variants"}))


def test_sources_may_be_cells_of_a_table(lake: Lake) -> None:
    """Each has the tokens of its own rows."""
    cells = {'{"quality":0}': 100, '{"quality":1}': 50}
    table = create_packed(lake.catalogue, "main.packed_web_16", cells=True).append_cells(3, 0, cells)
    web = "main.packed_web_16"
    experiment = lake.experiment("cells", {"low": f"{web}[quality=0]", "high": f"{web}[quality>=1]"})
    low, high = (sum(row.token_count for row in rows) for rows in (table.rows[:100], table.rows[100:]))
    assert search_of(experiment).search.tokens.tolist() == [low, high]
    assert experiment.declared.tables == [web]
    with pytest.raises(CommandError, match="has no row; see headrace corpus cells"):
        search_of(lake.experiment("empty", {"low": f"{web}[quality=0]", "high": f"{web}[quality>=2]"}))


@pytest.mark.parametrize(
    ("mixes", "said"),
    [
        ({"least": {"e": 0.1}}, "least: e is no source"),
        ({"least": {"a": 0.7, "b": 0.4}}, "add up to 1.1"),
        ({"aims": {"ones": 1}}, "ones is no held-out set; did you mean 'one'"),
        ({"aims": {"one": 0}}, "one is above 0"),
        ({"from": "trial"}, "not from itself"),
        ({"target_tokens": 1000}, "give budget_tokens too, not above it"),
        ({"form": "former"}, "form"),
    ],
)
def test_mixes_that_cannot_be_are_refused_when_they_are_declared(
    tmp_path: Path, mixes: dict[str, Any], said: str
) -> None:
    """In a line that names the field."""
    values = {"sources": {"a": "main.packed_a_16", "b": "main.packed_b_16"}, **mixes}
    (tmp_path / "essays.jsonl").write_text(json.dumps({"text": "an essay"}))
    sets = {"one": {"file": str(tmp_path / "essays.jsonl")}}
    with pytest.raises(DefinitionError, match=said):
        declare_experiment({"name": "trial", "mixes": values, "budget_tokens": 2000, "held_out": sets}, Path("/"))


def test_a_source_that_is_too_small_to_thin_is_refused(lake: Lake) -> None:
    """Three rows of it would be read again and again, in place of 300."""
    with pytest.raises(CommandError, match=r"a has 300 rows, and 0\.01 of them are less than 8"):
        search_of(lake.experiment("thin", "abc", target_tokens=100_000))
