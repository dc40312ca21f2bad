"""The selections of a corpus, from the list that a user declares to steps bound to what they read.

    select: [semantic: {..}, shape: {..}, mill.picked: {max_shouting: 0.3}]

Each reads what the one before it left. Selections of duplicates that begin the list belong to deduplication: what they
leave is `survivors`, and what deduplication leaves before them `distinct`. Decontamination comes last, named or not.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import BaseModel

from dagster_project.exceptions import DefinitionError
from dagster_project.run_config import bind_config
from spark_jobs.dedup.removal.survivors import distinct, survivors
from spark_jobs.exceptions import ConfigError
from spark_jobs.lake.declare.step import Step
from spark_jobs.registry import find_selection
from spark_jobs.selection.declared import Bound, Place, Selection
from spark_jobs.selection.stages import Stage

LAST: Final = "decontaminate"
"""The selection that comes last, and that a corpus has without naming it."""
OFF: Final = "off"


@dataclass(frozen=True)
class Chosen:
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
    def stage(self) -> Stage | None:
        """What it leaves; None where it measures alone."""
        return self.selection.stage if self.selection.selects(self.settings) else None


@dataclass
class Chain:
    """The selections of a corpus, each bound at its place.

    Attributes:
        corpus: its namespace.
        datasets: of the corpus.
        chosen: selections in the order of the list.
        stages: what those that were placed leave, in order.
        kept: identifier of the table of the documents that go on after them.
        before_last: the same before decontamination.
        cut_texts: identifier of the texts that one of them cut; None where none does.
    """

    corpus: str
    datasets: tuple[str, ...]
    chosen: tuple[Chosen, ...]
    stages: list[Stage] = field(default_factory=list)
    kept: str = ""
    before_last: str = ""
    cut_texts: str | None = None

    def __post_init__(self) -> None:
        """Begin with what deduplication leaves."""
        self.kept = self.before_last = f"{self.corpus}.{self.base.name}"

    @property
    def of_duplicates(self) -> tuple[Chosen, ...]:
        """The selections of duplicates that begin the list."""
        return self.chosen[: next((at for at, one in enumerate(self.chosen) if not _repeats(one)), None)]

    @property
    def base(self) -> Step:
        """The step that leaves what the levels of deduplication leave."""
        return distinct if self.of_duplicates else survivors

    def duplicates(self, made: Iterable[str]) -> Iterator[Bound]:
        """The steps of the selections of duplicates that begin the list, where the corpus has some tables."""
        yield from self._placed(self.of_duplicates, {*made})

    def others(self, made: Iterable[str]) -> Iterator[Bound]:
        """The steps of all other selections."""
        yield from self._placed(self.chosen[len(self.of_duplicates) :], {*made})

    def _placed(self, chosen: Sequence[Chosen], made: set[str]) -> Iterator[Bound]:
        for one in chosen:
            is_last_of_duplicates = one in self.of_duplicates[-1:]
            place = Place(self.corpus, self.datasets, self.kept, frozenset(made), self.cut_texts, is_last_of_duplicates)
            where = f"corpus {self.corpus}: select: {one.name}"
            try:
                steps = list(one.selection.arrange(one.settings, place))
            except ConfigError as error:
                raise DefinitionError(f"{where}: {error}") from error
            for bound in steps:
                for table in bound.step.tables:
                    if table.name in made:
                        raise DefinitionError(f"{where}: the corpus has a table {table.name} already; rename one")
                    made.add(table.name)
            yield from steps
            self._passed(one, place, where)

    def _passed(self, one: Chosen, place: Place, where: str) -> None:
        """Go on with what a selection leaves."""
        stage = one.stage
        if stage is None:
            return
        if stage.cuts and self.cut_texts is not None:
            raise DefinitionError(f"{where}: another selection before it cuts texts; take one of them out")
        self.stages.append(stage)
        self.before_last = self.kept if one.name == LAST else f"{self.corpus}.{place.table(stage)}"
        self.kept = f"{self.corpus}.{place.table(stage)}"
        if stage.cuts:
            self.cut_texts = f"{self.corpus}.{stage.reasons}"


def _repeats(chosen: Chosen) -> bool:
    return chosen.stage is not None and chosen.stage.repeats


def listed(corpus: str, select: Sequence[Any]) -> dict[str, Any]:
    """The settings of each selection that a declaration lists, in order; those of decontamination come last.

    Raises:
        DefinitionError: an entry names no selection, or two; one comes twice; decontamination is not the last.
    """
    found = dict[str, Any]()
    for entry in select:
        named = {entry: None} if isinstance(entry, str) else entry
        if not isinstance(named, Mapping) or len(named) != 1:
            raise DefinitionError(f"corpus {corpus}: select: {entry!r} is not one selection; write - NAME: {{..}}")
        ((name, settings),) = named.items()
        if name in found:
            raise DefinitionError(f"corpus {corpus}: select: {name} comes twice; take one of them out")
        found[str(name)] = _settings(corpus, str(name), settings)
    if LAST in found and found[LAST] != OFF and [*found][-1] != LAST:
        raise DefinitionError(f"corpus {corpus}: select: {LAST} comes last; write it behind {[*found][-1]}")
    return {**{name: settings for name, settings in found.items() if name != LAST}, LAST: found.get(LAST, {})}


def _settings(corpus: str, name: str, given: Any) -> Any:
    """The settings behind a name: a mapping, which nothing stands for too; `off` for decontamination alone."""
    if name == LAST and given in (False, OFF):  # YAML reads off as false
        return OFF
    if given is None or (name == LAST and given in (True, "required")):
        return {}
    if not isinstance(given, Mapping):
        or_off = ", or off" if name == LAST else ""
        raise DefinitionError(
            f"corpus {corpus}: select: {name} is {given!r}; write its settings, such as {{}} for none{or_off}"
        )
    return dict(given)


FORMER: Final = ("shape", "passages", LAST)
"""Fields of a corpus that are selections now."""


def instead(former: Mapping[str, Any]) -> str:
    """What to write in place of fields, and of the level semantic, that are selections now.

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


def chain_of(corpus: str, datasets: tuple[str, ...], settings: Mapping[str, Any]) -> Chain:
    """The selections with some settings by name, checked.

    Raises:
        DefinitionError: there is no such selection, or a setting is refused.
    """
    chosen = []
    for name, given in settings.items():
        try:
            selection = find_selection(name)
        except ConfigError as error:
            raise DefinitionError(f"corpus {corpus}: select: {error}") from error
        chosen.append(Chosen(name, selection, bind_config(selection.config, f"corpus {corpus}: select: {name}", given)))
    return Chain(corpus, datasets, tuple(chosen))
