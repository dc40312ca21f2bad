"""The selections of a corpus, from the declared list to steps bound to their inputs.

    select: [semantic: {..}, shape: {..}, mill.picked: {max_shouting: 0.3}]

Each reads what the one before it left. Selections of duplicates at its beginning belong to deduplication: what they
leave is `survivors`, and what deduplication leaves before them `distinct`. Decontamination comes last, named or not.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from pydantic import BaseModel

from dagster_project.exceptions import DefinitionError
from dagster_project.run_config import bind_config
from spark_jobs.dedup.removal.survivors import distinct, survivors
from spark_jobs.exceptions import ConfigError
from spark_jobs.lake.declare.step import Step
from spark_jobs.registry import find_selection
from spark_jobs.selection.declared import Bound, Selection, SelectionPlace
from spark_jobs.selection.stages import SelectionStage

LAST: Final = "decontaminate"
"""The selection that comes last, and that a corpus has without naming it."""
OFF: Final = "off"


@dataclass(frozen=True)
class DeclaredSelection:
    """A selection as a corpus declares it.

    Attributes:
        name: as it was written.
        selection: that it names.
        settings: checked.
    """

    name: str
    selection: Selection
    settings: BaseModel

    @property
    def stage(self) -> SelectionStage | None:
        """What it leaves; None where it measures alone."""
        return self.selection.stage if self.selection.selects(self.settings) else None


@dataclass(frozen=True)
class Placed:
    """A selection at its place in a corpus.

    Attributes:
        name: as it was written.
        reads: identifier of the table of the incoming documents.
        keeps: identifier of the table of kept documents; the same where it measures alone.
        stage: what it leaves; None where it measures alone.
        steps: bound to what they read.
        cut_texts: identifier of the texts cut by it, or by one before it; None without any.
        of_duplicates: whether it is one of the selections of duplicates at the head of the list.
    """

    name: str
    reads: str
    keeps: str
    stage: SelectionStage | None
    steps: tuple[Bound, ...]
    cut_texts: str | None
    of_duplicates: bool


@dataclass(frozen=True)
class Chain:
    """The selections of a corpus in their order, each at its place; `stages_of` tells the same of a lake's rows.

    Attributes:
        base: identifier of the table of what deduplication leaves.
        placed: the selections.
    """

    base: str
    placed: tuple[Placed, ...]

    @property
    def stages(self) -> tuple[SelectionStage, ...]:
        """What they leave, in order."""
        return tuple(one.stage for one in self.placed if one.stage is not None)

    @property
    def kept(self) -> str:
        """Identifier of the table of the documents left after all of them."""
        return self.placed[-1].keeps if self.placed else self.base

    @property
    def before_last(self) -> str:
        """The same before decontamination: a late benchmark changes that, and no tokenizer follows it."""
        return next((one.reads for one in self.placed if one.name == LAST), self.kept)

    @property
    def cut_texts(self) -> str | None:
        """Identifier of the texts cut by one of them; None without any."""
        return self.placed[-1].cut_texts if self.placed else None

    def steps(self, *, of_duplicates: bool) -> Iterator[Bound]:
        """Steps of the selections of duplicates at the head of the list, or of all others."""
        return (step for one in self.placed if one.of_duplicates == of_duplicates for step in one.steps)


def of_duplicates(chosen: Sequence[DeclaredSelection]) -> Sequence[DeclaredSelection]:
    """The selections of duplicates at the head of a list."""
    others = (at for at, one in enumerate(chosen) if one.stage is None or not one.stage.repeats)
    return chosen[: next(others, None)]


def base_of(chosen: Sequence[DeclaredSelection]) -> Step:
    """The step for what the levels of deduplication leave."""
    return distinct if of_duplicates(chosen) else survivors


def chain_of(
    corpus: str,
    datasets: tuple[str, ...],
    chosen: Sequence[DeclaredSelection],
    made: Iterable[str],
    measured: Iterable[str] = (),
) -> Chain:
    """Place selections in a corpus.

    Args:
        corpus: its namespace.
        datasets: of the corpus.
        chosen: the selections, in the order of the list.
        made: names of the tables of deduplication and of the steps before it.
        measured: of those that measure what it leaves, such as clusters.

    Raises:
        DefinitionError: one cannot work at its place, makes an existing table, or cuts texts behind another.
    """
    base, tables, duplicates = f"{corpus}.{base_of(chosen).name}", {*made}, len(of_duplicates(chosen))
    placed = list[Placed]()
    for at, one in enumerate(chosen):
        tables |= {*measured} if at == duplicates else set()
        before = (placed[-1].keeps, placed[-1].cut_texts) if placed else (base, None)
        place = SelectionPlace(
            corpus, datasets, before[0], frozenset(tables), before[1], leaves_survivors=at == duplicates - 1
        )
        placed.append(_placed(one, place, at < duplicates))
        tables |= {table.name for bound in placed[-1].steps for table in bound.step.tables}
    return Chain(base, tuple(placed))


def _placed(chosen: DeclaredSelection, place: SelectionPlace, is_of_duplicates: bool) -> Placed:
    where, stage = f"corpus {place.corpus}: select: {chosen.name}", chosen.stage
    try:
        steps = tuple(chosen.selection.arrange(chosen.settings, place))
    except ConfigError as error:
        raise DefinitionError(f"{where}: {error}") from error
    if there := sorted({table.name for bound in steps for table in bound.step.tables} & place.made):
        raise DefinitionError(f"{where}: the corpus has a table {there[0]} already; rename one")
    if stage is None:
        return Placed(chosen.name, place.survivors, place.survivors, None, steps, place.cut_texts, is_of_duplicates)
    if stage.cuts and place.cut_texts is not None:
        raise DefinitionError(f"{where}: another selection before it cuts texts; take one of them out")
    stage = replace(stage, table=place.table(stage))
    cut_texts = f"{place.corpus}.{stage.reasons}" if stage.cuts else place.cut_texts
    keeps = f"{place.corpus}.{stage.table}"
    return Placed(chosen.name, place.survivors, keeps, stage, steps, cut_texts, is_of_duplicates)


def listed(corpus: str, select: Sequence[Any]) -> dict[str, Any]:
    """The settings of each declared selection, in order; those of decontamination come last.

    Raises:
        DefinitionError: an entry names no selection, or two; one comes twice; decontamination is not the last.
    """
    by_name = dict[str, Any]()
    for entry in select:
        named = {entry: None} if isinstance(entry, str) else entry
        if not isinstance(named, Mapping) or len(named) != 1:
            raise DefinitionError(f"corpus {corpus}: select: {entry!r} is not one selection; write - NAME: {{..}}")
        ((name, settings),) = named.items()
        if name in by_name:
            raise DefinitionError(f"corpus {corpus}: select: {name} comes twice; take one of them out")
        by_name[str(name)] = _settings(corpus, str(name), settings)
    if LAST in by_name and by_name[LAST] != OFF and [*by_name][-1] != LAST:
        raise DefinitionError(f"corpus {corpus}: select: {LAST} comes last; write it behind {[*by_name][-1]}")
    return {
        **{name: settings for name, settings in by_name.items() if name != LAST},
        LAST: by_name.get(LAST, {}),
    }


def _settings(corpus: str, name: str, given: Any) -> Any:
    """Check the settings behind a name: a mapping, or nothing for an empty one; `off` for decontamination alone."""
    if name == LAST and given in (False, OFF):  # YAML reads off as false
        return OFF
    if given is None or (name == LAST and given in (True, "required")):
        return {}
    if not isinstance(given, Mapping):
        _selection(corpus, name)  # of an unknown name the name is wrong, not what stands behind it
        more = ", or off" if name == LAST else "; or take it out" if given is False else ""
        raise DefinitionError(
            f"corpus {corpus}: select: {name} is {given!r}; write its settings, such as {{}} for none{more}"
        )
    return dict(given)


def _selection(corpus: str, name: str) -> Selection:
    """The selection of a name.

    Raises:
        DefinitionError: there is none.
    """
    try:
        return find_selection(name)
    except ConfigError as error:
        raise DefinitionError(f"corpus {corpus}: select: {error}") from error


FORMER: Final = ("shape", "passages", LAST)
"""Fields of a corpus that are selections now."""


def instead(former: Mapping[str, Any]) -> str:
    """Tell what to write in place of former fields, and of the former level semantic.

    Args:
        former: what was written, by selection.
    """
    kept = {name: given for name, given in former.items() if name != LAST or given not in (True, "required")}
    order = [name for name in ("semantic", *FORMER) if name in kept]
    lines = ", ".join(f"{name}: {'off' if kept[name] in (False, OFF) else _flow(kept[name])}" for name in order)
    names, are = " and ".join(former), "is a selection" if len(former) == 1 else "are selections"
    if not order:
        return f"{names} {are}, and there without being named; take it out"
    return f"{names} {are} of the corpus; write instead: select: [{lines}]"


def _flow(value: Any) -> str:
    """A value as YAML writes it in one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}: {_flow(inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_flow, value))}]"
    plain = isinstance(value, str) and value.replace("_", "").replace(".", "").isalnum()
    return value if plain else json.dumps(value)


def choose(corpus: str, settings: Mapping[str, Any]) -> tuple[DeclaredSelection, ...]:
    """The selections with some settings by name, checked.

    Raises:
        DefinitionError: there is no such selection, or a setting is refused.
    """
    chosen = []
    for name, given in settings.items():
        selection = _selection(corpus, name)
        bound = bind_config(selection.config, f"corpus {corpus}: select: {name}", given)
        chosen.append(DeclaredSelection(name, selection, bound))
    return tuple(chosen)
