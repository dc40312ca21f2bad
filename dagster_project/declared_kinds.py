"""Kinds of a feature's declarations beside datasets, corpora and blends.

The entry point NAME of the group `declarations` is a `DeclaredKind`: `headrace plan` and `headrace run` print what it
says of what is declared with `type: headrace.NAME`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import NamedTuple

from spark_jobs.features import brought
from spark_jobs.plugins import load


class DeclaredKind(NamedTuple):
    """What commands print of the declarations of one kind.

    Attributes:
        among: those among some names with something to print.
        plan: lines on what a run of one would do.
        outcome: text on what came of it, after a run.
        is_namespace: whether its name is a namespace, so that no dataset or corpus has it too.
    """

    among: Callable[[Collection[str]], list[str]]
    plan: Callable[[str], Iterable[str]]
    outcome: Callable[[str], str]
    is_namespace: bool = False


def declared_among(names: Collection[str]) -> Iterator[tuple[DeclaredKind, str]]:
    """Each declaration of such a kind among some names."""
    for component in brought("declarations") if names else ():
        kind = load("declarations", component, DeclaredKind)
        for name in kind.among(names):
            yield kind, name
