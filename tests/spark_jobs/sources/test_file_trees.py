"""Every file below a path is found once; what cannot be read is told, and links may loop."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.exceptions import InputError
from spark_jobs.sources.opening.file_trees import FoundFile, find_files, glob_pattern, open_file
from spark_jobs.sources.refusals import Reason


def paths(root: Path) -> list[str]:
    """Sorted paths of what is found."""
    return sorted(file.path for file in find_files(str(root)))


def test_files_have_location_path_size_and_time(tmp_path: Path) -> None:
    """Microseconds are whole; the path is below the root; a root that is a file is that file."""
    (tmp_path / "a").mkdir()
    file = tmp_path / "a" / "b.txt"
    file.write_bytes(b"12345")
    os.utime(file, ns=(0, 1_700_000_000_123_456_789))
    expected = FoundFile(str(file), "a/b.txt", 5, 1_700_000_000_123_456)
    assert list(find_files(str(tmp_path))) == [expected]
    assert list(find_files(str(file))) == [expected._replace(path="b.txt")]


def test_hidden_files_and_tool_directories_are_left_out(tmp_path: Path) -> None:
    """What version control and build tools keep is nobody's data."""
    for name in (".git/config", "a/__pycache__/m.pyc", "node_modules/x.js", ".hidden", "a/kept.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    assert paths(tmp_path) == ["a/kept.py"]


def test_loops_of_links_end_and_each_directory_is_walked_once(tmp_path: Path) -> None:
    """Real paths win over linked ones, which are told; with `follow` a link to elsewhere is followed."""
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / "z").mkdir(parents=True)
    outside.mkdir()
    (root / "z" / "real.txt").write_text("x")
    (outside / "linked.txt").write_text("x")
    (root / "a").symlink_to(root / "z")
    (root / "z" / "up").symlink_to(root)
    (root / "other").symlink_to(outside)
    (root / "self.txt").symlink_to(root / "self.txt")
    (root / "gone.txt").symlink_to(root / "nowhere.txt")
    found = {file.path: file for file in find_files(str(root), links="follow")}
    assert sorted(found) == ["a/", "gone.txt", "other/linked.txt", "self.txt", "z/real.txt", "z/up/"]
    again = {path: str(found[path].refusal and found[path].refusal.detail) for path in ("a/", "z/up/")}
    assert again == {
        "a/": f"leads to {root / 'z'}, whose files are listed there",
        "z/up/": f"leads to {root}, whose files are listed there",
    }
    for name in ("self.txt", "gone.txt"):
        refusal = found[name].refusal
        assert refusal is not None and refusal.reason == Reason.UNREADABLE and found[name].byte_count is None


class Trees:
    """A folder `root` with files, a folder beside it, and links that a test drew."""

    def __init__(self, folder: Path) -> None:
        self.root, self.beside = folder / "root", folder / "root-beside"
        for path in (self.root / "a" / "x.txt", self.root / "y.txt", self.beside / "b" / "z.txt"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(path.name)
        self.places = [self.root, self.root / "a", self.root / "y.txt", self.root / "a" / "x.txt"]
        self.places += [self.beside, self.beside / "b", self.beside / "b" / "z.txt", folder, folder / "nowhere"]

    def draw(self, choices: list[tuple[int, int, bool]]) -> None:
        """Make links, which may lead to links, up, down, out and to themselves, by whole or relative paths."""
        for number, (where, target, is_relative) in enumerate(choices):
            link = [self.root, self.root / "a", self.beside][where] / f"link{number}"
            aim = self.places[target % len(self.places)]
            link.symlink_to(os.path.relpath(aim, link.parent) if is_relative else aim)
            self.places.append(link)


_LINKS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 20), st.booleans()), max_size=6)


@given(_LINKS, st.booleans())
def test_no_file_outside_of_the_root_is_listed(choices: list[tuple[int, int, bool]], by_uri: bool) -> None:
    """By its real place, whatever links lead there; each link that leads out is refused by its name."""
    with tempfile.TemporaryDirectory() as folder:
        trees = Trees(Path(folder).resolve())
        trees.draw(choices)
        root = trees.root.as_uri() if by_uri else str(trees.root)
        found = list(find_files(root))
        for file in found:
            place = Path(unquote(file.location.removeprefix("file://")))
            is_inside = place.resolve(strict=False).is_relative_to(trees.root) if not is_loop(place) else True
            is_refused = file.refusal is not None and file.refusal.reason == Reason.OUTSIDE_LINK
            assert is_inside != is_refused
        assert {file.path for file in found if file.refusal is None} == {"a/x.txt", "y.txt"} | {
            file.path for file in found if file.refusal is None and "link" in file.path
        }
        refused = {
            file.path.rstrip("/") for file in found if file.refusal and file.refusal.reason == Reason.OUTSIDE_LINK
        }
        out = [link for link in (*trees.root.glob("link*"), *(trees.root / "a").glob("link*")) if not is_loop(link)]
        expected = {link for link in out if not link.resolve(strict=False).is_relative_to(trees.root)}
        assert refused == {str(link.relative_to(trees.root)) for link in expected}


def is_loop(link: Path) -> bool:
    """Whether links lead in a circle."""
    try:
        link.resolve(strict=True)
    except OSError as error:
        return error.errno == errno.ELOOP
    except RuntimeError:
        return True
    return False


@pytest.mark.parametrize("by_uri", [False, True])
def test_a_root_that_is_a_link_is_where_it_leads(tmp_path: Path, by_uri: bool) -> None:
    """Who names a link means what it leads to, a file or a folder; and a name that begins like the root is outside."""
    trees = Trees(tmp_path)
    (tmp_path / "named").symlink_to(trees.root)
    (tmp_path / "file").symlink_to(trees.root / "y.txt")
    (trees.root / "out").symlink_to(trees.beside)
    named, file = tmp_path / "named", tmp_path / "file"
    found = list(find_files(named.as_uri() if by_uri else str(named)))
    assert {one.path: one.refusal and one.refusal.reason for one in found} == {
        "a/x.txt": None,
        "y.txt": None,
        "out/": Reason.OUTSIDE_LINK,
    }
    assert [one.byte_count for one in find_files(file.as_uri() if by_uri else str(file))] == [5]
    followed = find_files(named.as_uri() if by_uri else str(named), links="follow")
    assert sorted(one.path for one in followed) == ["a/x.txt", "out/b/z.txt", "y.txt"]


def test_pipes_and_sockets_are_told_and_never_opened(tmp_path: Path) -> None:
    """Opening a pipe that nobody writes to would wait for ever."""
    os.mkfifo(tmp_path / "pipe.txt")
    (file,) = find_files(str(tmp_path))
    assert file.refusal is not None and file.refusal.reason == Reason.NOT_A_FILE


def test_a_directory_that_cannot_be_listed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others go on; its path ends in a slash."""
    (tmp_path / "shut").mkdir()
    (tmp_path / "open.txt").write_text("x")
    real = os.scandir

    def scandir(path: str) -> object:
        if str(path).endswith("shut"):
            raise PermissionError(13, "Permission denied", path)
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    found = {file.path: file for file in find_files(str(tmp_path))}
    assert sorted(found) == ["open.txt", "shut/"]
    refusal = found["shut/"].refusal
    assert refusal is not None and (refusal.reason, refusal.detail) == (Reason.UNREADABLE, "Permission denied")


def test_a_name_that_is_no_text_is_told_with_escapes(tmp_path: Path) -> None:
    """Bytes that are not UTF-8 cannot stand in a path of the lake."""
    with open(os.fsencode(tmp_path) + b"/caf\xe9.txt", "wb"):
        pass
    (file,) = find_files(str(tmp_path))
    assert file.path == "caf\\xe9.txt" and file.refusal is not None and file.refusal.reason == Reason.BAD_NAME


def test_nothing_there_is_an_error_before_work_starts(tmp_path: Path) -> None:
    """One line that names the path."""
    with pytest.raises(InputError, match=r"/absent: no such file or directory; check"):
        list(find_files(str(tmp_path / "absent")))
    with pytest.raises(InputError, match=r"nosuchscheme://x: .*; check the URI"):
        list(find_files("nosuchscheme://x"))


def test_uris_go_through_pyarrow(tmp_path: Path) -> None:
    """A file: URI finds and opens what the plain path does, odd names included."""
    for name in ("a.txt", "deep/b #1 100%?.txt", ".hidden"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    by_path = {file.path: file for file in find_files(str(tmp_path))}
    by_uri = {file.path: file for file in find_files(tmp_path.as_uri())}
    assert sorted(by_uri) == sorted(by_path) == ["a.txt", "deep/b #1 100%?.txt"]
    for path, file in by_uri.items():
        assert (file.byte_count, file.modified) == (by_path[path].byte_count, by_path[path].modified)
        with open_file(file.location) as stream:
            assert stream.read() == path.encode()


@pytest.mark.parametrize(
    ("glob", "matching", "others"),
    [
        ("*.txt", ["a.txt", "x/a.txt"], ["a.txt.gz", "a_txt"]),
        ("x/*.txt", ["x/a.txt"], ["a.txt", "x/y/a.txt", "w/x/a.txt"]),
        ("**/*.txt", ["a.txt", "x/y/a.txt"], ["a.md"]),
        ("x/**/part-?", ["x/part-1", "x/y/z/part-2"], ["x/part-10", "part-1"]),
        ("x/**", ["x/a", "x/y/a"], ["y/a"]),
        ("a+(b).txt", ["a+(b).txt"], ["aab.txt"]),
    ],
)
def test_globs_match_as_in_a_shell(glob: str, matching: list[str], others: list[str]) -> None:
    """One star stays in a directory, two span any number; without a slash the name alone counts."""
    pattern = glob_pattern(glob)
    assert [path for path in matching + others if pattern.fullmatch(path)] == matching
