"""Originals: which of two similar repositories is a fork of the other, or holds a copy of it, by their files.

Facts name the original (`fork_of`) of few repositories, and of none in a dump of code. The files tell the others. Two
repositories are *aligned* by the two folders below which most of their shared files have equal paths. A file is
*held* by the other repository if that has a file with the same letters, or a file at the aligned path. Repositories
are compared if three tenths of the smaller one's files have their letters in the larger one. The first rule that holds
decides:

    the aligned folder is a smaller part of    this folder is a copy of the other repository, whatever its name, and so
    one repository than of the other, and      are all files with letters of the other
    the larger holds .7 of the smaller, or
    half of the folder is held

    half of the larger one is held             one is a fork, a mirror or another state of the other. The original is
                                               the one whose manifest or paths have its name; else the one with twice
                                               the stars; else the one whose folder is less deep; else the smaller one,
                                               if the larger holds .7 of it, since forks add files; else neither

    the larger holds .7 of the smaller         files with the letters of the smaller one are copies

    each has a deeper folder in which half     they vendor one another: both folders are copies, and nothing else
    of the files are the other's

    hiredis  a.c b.c      redis  deps/hiredis/a.c  deps/hiredis/b.c  src/1.c .. 9.c      two files of redis are copies
    request  r.js t.js    postman-request  r.js t.js extra.js                            a fork

The letters of a copied file count for the original alone. Of a fork, only the files missing from its original
count as its own. A name counts only in files of both, since a fork may add a folder `redis`. If facts name a
fork, they decide. Releases of one name (`lib-1.0`, `lib-2.0`) are no copies of each other: the preference `newest`
chooses between them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

FORK_DEPTHS: Final = 3
"""Classes of repositories: an original, a fork of one, a fork of a fork."""
# `requests-2.31.0`, `requests@v2` and `requests` are releases of one name.
RELEASE: Final = r"[-_@ ]v?[0-9]+(\.[0-9A-Za-z]+)*$"
_MOST_STARS = 2  # an original has more than twice the stars of its fork; with fewer the order may be chance
SOURCE_ROOT = r"^(?:(?:src|lib|source|python|packages|include)/)?"
DECLARES_NAME, DECLARES_ADDRESS = 2, 3


class Related(NamedTuple):
    """Two repositories with shared files; `a` is the one with fewer files, and `b` has the same fields as `a`.

    Attributes:
        a: its `repository_key`.
        a_size: number of its files with letters.
        a_depth: 0 an original, 1 a fork, 2 a fork of a fork, by facts.
        a_stars: stars; None if unknown.
        a_named: whether its top folders or files have its name, and `b` holds half of these.
        a_folder: its folder aligned with one of `b`, with the last slash; empty for its root.
        a_below: number of its files in this folder.
        held: number of files of `a` that `b` holds.
        a_copy: a folder of it that lies deeper than the folder of `b` with the same files, of which `b` holds half and
            more than one; None unless both have such a folder.
    """

    a: str
    b: str
    a_size: int
    b_size: int
    a_depth: int
    b_depth: int
    a_stars: int | None
    b_stars: int | None
    a_named: bool
    b_named: bool
    a_folder: str
    b_folder: str
    a_below: int
    b_below: int
    held: int
    a_copy: str | None = None
    b_copy: str | None = None

    @property
    def is_close(self) -> bool:
        """Whether each has half of the other."""
        return 2 * self.held >= self.b_size

    @property
    def is_contained(self) -> bool:
        """Whether `b` has seven tenths of `a`."""
        return 10 * self.held >= 7 * self.a_size

    @property
    def copy(self) -> Copy | None:
        """The copy of one repository inside the other, if the aligned folders are clearly unequal parts of the two."""
        a, b = self.a_below * self.b_size, self.b_below * self.a_size
        if 5 * min(a, b) >= 4 * max(a, b):
            return None
        if b < a:
            copy, below, in_order = Copy(self.a, self.b, self.b_folder), self.b_below, self.a_depth <= self.b_depth
        else:
            copy, below, in_order = Copy(self.b, self.a, self.a_folder), self.a_below, self.b_depth <= self.a_depth
        mostly = 2 * self.held >= below
        related = copy if mostly else copy._replace(folder=None)
        return related if in_order and (mostly or self.is_contained) else None


class Copy(NamedTuple):
    """A copy of a repository inside a larger one.

    Attributes:
        original: the smaller repository.
        container: the larger one.
        folder: the copied folder of the larger one; None if the files are spread or most of it is others.
    """

    original: str
    container: str
    folder: str | None


class Aligned(NamedTuple):
    """Two repositories, and the folders below which most of their shared files have equal paths.

    Attributes:
        copy: a folder of the first, perhaps a copy of the other; None unless the other has such a folder too.
    """

    repo: str
    other: str
    folder: str
    other_folder: str
    copy: str | None = None
    other_copy: str | None = None

    @property
    def turned(self) -> Aligned:
        """The same with the two repositories exchanged."""
        return Aligned(self.other, self.repo, self.other_folder, self.folder, self.other_copy, self.copy)


class PairVerdicts(NamedTuple):
    """Verdicts on pairs of repositories.

    Attributes:
        forks: as in `Copies`.
        copies: those inside other repositories.
        origins: forks with their originals.
    """

    forks: dict[str, int]
    copies: list[Copy]
    origins: list[Aligned]


def judge(related: Sequence[Related], declared: Mapping[str, int]) -> PairVerdicts:
    """Find forks and copies among pairs of repositories with shared files.

    Args:
        related: pairs with shared files, each once.
        declared: `DECLARES_NAME` or `DECLARES_ADDRESS` of repositories with their name in the manifest, or also their
            address.
    """
    originals: dict[str, set[str]] = {}
    origins = []
    depths = {
        repository: depth for pair in related for repository, depth in ((pair.a, pair.a_depth), (pair.b, pair.b_depth))
    }
    copies = []
    for pair in related:
        if _base(pair.a) == _base(pair.b):
            continue
        if pair.a_copy is not None and pair.b_copy is not None:
            copies += [Copy(pair.b, pair.a, pair.a_copy), Copy(pair.a, pair.b, pair.b_copy)]
            continue
        copy = pair.copy
        if copy is None and pair.is_contained and not pair.is_close and pair.a_depth <= pair.b_depth:
            copy = Copy(pair.a, pair.b, None)
        copies += [] if copy is None else [copy]
        if copy is not None:
            original = copy.original if 10 * pair.held >= 7 * pair.b_size else None
        else:
            original = _original(pair, declared) if pair.is_close else None
        if original is not None:
            originals.setdefault(pair.b if original == pair.a else pair.a, set()).add(original)
        elif copy is None and pair.is_close and pair.a_depth != pair.b_depth:
            original = pair.a if pair.a_depth < pair.b_depth else pair.b
        if original is not None:
            aligned = Aligned(pair.a, pair.b, pair.a_folder, pair.b_folder)
            origins.append(aligned.turned if original == pair.a else aligned)
    is_copy = {repository for repository, depth in depths.items() if depth} | originals.keys()
    forks = {repository: max(depths[repository], 2 if is_copy & of else 1) for repository, of in originals.items()}
    return PairVerdicts(forks, copies, origins)


def _original(pair: Related, declared: Mapping[str, int]) -> str | None:
    """The original of two close repositories; None if nothing decides, or if facts name it already."""
    if pair.a_depth != pair.b_depth:
        return None
    a, b = (
        declared.get(repository, int(named)) for repository, named in ((pair.a, pair.a_named), (pair.b, pair.b_named))
    )
    if not ("/" in pair.a and "/" in pair.b):
        a, b = min(a, DECLARES_NAME), min(b, DECLARES_NAME)
    if a != b:
        return pair.a if a > b else pair.b
    a, b = pair.a_stars or 0, pair.b_stars or 0
    if pair.a_stars is not None and pair.b_stars is not None and max(a, b) > _MOST_STARS * min(a, b):
        return pair.a if a > b else pair.b
    deeper = depth_of(pair.a_folder) - depth_of(pair.b_folder)
    if deeper:
        return pair.b if deeper > 0 else pair.a
    return pair.a if pair.is_contained and pair.a_size < pair.b_size else None


def short_name(repository: str) -> str:
    """The last part of a repository's name in lower case, without release and punctuation."""
    last = re.sub(r"\.git$", "", repository.lower().rpartition("\n")[2].rstrip("/").rpartition("/")[2])
    return re.sub(r"[-_.]", "", re.sub(RELEASE, "", last))


def _base(repository: str) -> str:
    """What releases of one name share: dataset, owner and name, without the version."""
    return re.sub(RELEASE, "", repository.lower())


def depth_of(folder: str) -> int:
    """How many folders deep a folder lies, not counting a first one common to many projects, such as `src/`."""
    return re.sub(SOURCE_ROOT, "", folder).count("/")
