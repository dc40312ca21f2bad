"""Whether what a source has may be taken: opt-outs of people, and what sites say; a feature knows, where one is there.

    register   opt-outs that hold while an increment lands: of files by their names, of records by what they say
    site       robots.txt and its like, once for each host; what an answer says in its headers and in its page

The entry point NAME of the group `permissions` is a `Permission`. Answers are facts of landing, as those of an API are:
they are in no step key, so a new opt-out computes nothing again of what landed before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol

from pydantic import Field, model_validator

from headrace.tables.rights_root import OPT_OUTS
from spark_jobs.exceptions import ConfigError
from spark_jobs.features import brought, missing
from spark_jobs.plugins import load
from spark_jobs.sources.config.declared import Declared
from spark_jobs.sources.refusals import Reason, Refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyiceberg.catalog import Catalog


class Asking(Declared):
    """Whose no a source keeps to."""

    ask: Literal["site", "register", "nobody"] = Field(
        "site",
        description="whose no is kept to: that of sites (robots.txt, tdmrep.json, ai.txt, headers, pages; those in a "
        "web archive too) and of the opt-out register; that of the register alone; nobody's",
    )
    agent: str = Field("headrace", pattern=r"^[A-Za-z_-]+$", description="the name by which sites may address us")
    reason: str | None = Field(None, min_length=1, description="why nobody is asked; kept with each increment")

    @model_validator(mode="after")
    def _nobody_needs_a_reason(self) -> Asking:
        """Refuse to ask nobody without a reason."""
        if (self.ask == "nobody") != (self.reason is not None):
            raise ValueError("reason: write it where `ask` is nobody, and only there")
        return self


class OptOuts(Protocol):
    """The opt-outs that hold when an increment lands; they go to executors."""

    @property
    def has_hashes(self) -> bool:
        """Whether any is of a SHA-256, so that files are hashed before they are read."""

    def refusal(self, facts: Mapping[str, Any]) -> Refusal | None:
        """The refusal of a file or document by its facts.

        Facts are any of location, repository, path, content_sha256, doc_id and metadata, as tables have them.
        """

    def holds(self, entry: str) -> bool:
        """Whether an opt-out holds now."""


class Site(Protocol):
    """What a host says to an agent."""

    def files(self, origin: str) -> Sequence[str]:
        """Addresses of its files in the order in which they are asked for; an answer may name more."""

    def hear(self, url: str, status: int | None, body: bytes, at: str | None = None) -> bool:
        """Take an answer about one of them (status None: there was none); false where it could not be asked for."""

    def refusal(self, url: str) -> Refusal | None:
        """The refusal of an address, by the answers so far."""

    def page_refusal(self, url: str, headers: Sequence[tuple[str, str]], body: bytes) -> Refusal | None:
        """The refusal of a page by the headers of its answer, as many times as each comes, and by its own words."""


_REGISTER: Final = "opt-out "


def refusal_of(entry: str, what: str) -> Refusal:
    """The refusal for an opt-out of the register."""
    return Refusal(Reason.OPTED_OUT, f"{_REGISTER}{entry}: {what}; headrace rights show shows who asked")


def is_withdrawn(detail: str | None, opt_outs: OptOuts | None) -> bool:
    """Whether a refusal was for an opt-out that does not hold any more."""
    entry = (detail or "").partition(":")[0].removeprefix(_REGISTER)
    return (detail or "").startswith(_REGISTER) and not (opt_outs is not None and opt_outs.holds(entry))


class Permission(NamedTuple):
    """What a feature brings.

    Attributes:
        opt_outs: those of the register that hold now, about a dataset; None where there is none.
        site: a host that was not asked yet, for the name of an agent; it notes its answers, for `keep`.
        keep: writes the answers of sites down, and that a dataset asked nobody; with the dataset's name.
    """

    opt_outs: Callable[[Catalog, str], OptOuts | None]
    site: Callable[[str, Callable[[Any], None]], Site]
    keep: Callable[[Catalog, str, Sequence[Any], str | None], None]


def permission() -> Permission | None:
    """That of the installed feature."""
    return next((load("permissions", name, Permission) for name in brought("permissions")), None)


def asking_of(source: Any) -> Asking:
    """Whose no a source keeps to; one without the setting asks the register, and sites in its web archives."""
    return getattr(source, "rights", None) or Asking()


def opt_outs(dataset: str, source: Any, catalogue: Catalog | None) -> OptOuts | None:
    """Opt-outs that hold now for a dataset; None where there are none, or nobody is asked.

    Raises:
        ConfigError: there is a register, and the feature that reads it is not there.
    """
    if catalogue is None or asking_of(source).ask == "nobody":
        return None
    if (there := permission()) is None and missing("permissions") and catalogue.table_exists(OPT_OUTS):
        mend = "install headrace whole, or write `rights: {ask: nobody, reason: ..}`"
        raise ConfigError(
            f"dataset {dataset}: the lake has opt-outs, and what reads them is not installed here; {mend}"
        )
    return None if there is None else there.opt_outs(catalogue, dataset)


def permissions_of(config: Any, catalogue: Catalog) -> OptOuts | None:
    """Opt-outs that hold when an increment lands; that nobody is asked is written down, with the reason."""
    asking = asking_of(config.source)
    if asking.ask == "nobody" and (there := permission()) is not None:
        there.keep(catalogue, config.dataset, (), asking.reason)
    return opt_outs(config.dataset, config.source, catalogue)


def site_maker(source: Any, note: Callable[[Any], None] = lambda _: None) -> Callable[[], Site] | None:
    """Makes hosts that were not asked yet, which note their answers; None where sites are not asked."""
    asking, there = asking_of(source), permission()
    return partial(there.site, asking.agent, note) if there is not None and asking.ask == "site" else None
