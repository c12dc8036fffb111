"""A path stays below its root, whatever is written in it and whatever is swapped in meanwhile."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from cuebook.kernel.errors import BadInput, NotFound
from cuebook.performers.files.paths import (
    OutsideRoot,
    TooLarge,
    Unusable,
    inside,
    name_inside,
    open_inside,
    parts_of,
    read_inside,
    read_named_inside,
    real,
    write_inside,
)
from tests.support.sampling import many

CANARY = b"canary: nobody may read this"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with content, next to files and folders that must not be reached, one with a similar name."""
    made = tmp_path / "top"
    (made / "folder" / "deep").mkdir(parents=True)
    (made / "a.txt").write_bytes(b"inside")
    (made / "folder" / "b.txt").write_bytes(b"inside too")
    for outside in (tmp_path / "outside", tmp_path / "top-but-not", tmp_path / "TOP"):
        outside.mkdir()
        (outside / "canary.txt").write_bytes(CANARY)
    (tmp_path / "canary.txt").write_bytes(CANARY)
    return made


LINKS: dict[str, Callable[[Path], str]] = {
    "absolute-file": lambda root: str(root.parent / "canary.txt"),
    "absolute-folder": lambda root: str(root.parent / "outside"),
    "relative-file": lambda root: "../canary.txt",
    "relative-folder": lambda root: "../outside",
    "parent": lambda root: "..",
    "through-a-folder": lambda root: "folder/../../canary.txt",
    "in-and-out": lambda root: "../top/../canary.txt",
    "alike": lambda root: f"{root}-but-not/canary.txt",
    "slash": lambda root: "/",
    "to-a-link": lambda root: "relative-folder",
    "missing": lambda root: "../made-by-a-test.txt",
    "missing-folder": lambda root: "nowhere/../../made-by-a-test.txt",
    "process": lambda root: "/proc/self/root",
}


@pytest.fixture
def linked(root: Path) -> Path:
    for name, target in LINKS.items():
        (root / name).symlink_to(target(root))
    return root


def untouched(root: Path) -> bool:
    """Nothing beside the root was read into it, changed, added or taken away."""
    folders_beside = [path for path in root.parent.iterdir() if path != root and path.is_dir()]
    found = [*root.parent.iterdir(), *(path for folder in folders_beside for path in folder.rglob("*"))]
    beside = {path.relative_to(root.parent).as_posix() for path in found}
    folders = {"top", "outside", "top-but-not", "TOP"}
    canaries = {"canary.txt", *(f"{name}/canary.txt" for name in folders - {"top"})}
    contents = {(root.parent / name).read_bytes() for name in canaries}
    return beside == folders | canaries and contents == {CANARY}


# --- what is no path ------------------------------------------------------------------------------------

NO_PATHS = [
    "",
    "/etc/passwd",
    "//etc/passwd",
    "..",
    "../canary.txt",
    "folder/../../canary.txt",
    "folder/..",
    "./../canary.txt",
    "a.txt/../../canary.txt",
    "~",
    "~/x",
    "~root/x",
    "a\0.txt",
    "a.txt\0/../../canary.txt",
    "\ud800",
]


@pytest.mark.parametrize("path", NO_PATHS, ids=ascii)
def test_what_could_lead_out_is_refused_as_it_is_written(root: Path, path: str) -> None:
    for attempt in (
        lambda: inside(root, path),
        lambda: name_inside(root, path),
        lambda: read_inside(root, path, 100),
        lambda: open_inside(root, path, os.O_RDONLY),
        lambda: write_inside(root, path, b"x"),
    ):
        with pytest.raises(OutsideRoot) as refused:
            attempt()
        assert refused.value.code == "outside_root"
    assert untouched(root)


@pytest.mark.parametrize(
    ("path", "parts"),
    [
        ("a.txt", ("a.txt",)),
        ("./a//b/.", ("a", "b")),
        ("...", ("...",)),
        ("..a/b..", ("..a", "b..")),
        (".", ()),
        ("a\\..\\b", ("a\\..\\b",)),
    ],
)
def test_a_path_has_one_form(path: str, parts: tuple[str, ...]) -> None:
    assert parts_of(path) == parts


# --- what stays inside ----------------------------------------------------------------------------------


def test_a_file_below_the_root_is_read(root: Path) -> None:
    assert read_inside(root, "a.txt", 100) == b"inside"
    assert read_inside(root, "./folder//b.txt", 100) == b"inside too"
    assert inside(root, "folder/b.txt") == root.resolve() / "folder" / "b.txt"
    assert inside(root, ".") == root.resolve()
    assert name_inside(root, ".") == "."


def test_a_path_need_not_exist_yet(root: Path) -> None:
    assert inside(root, "new.txt") == root.resolve() / "new.txt"
    assert inside(root, "new/newer/newest.txt") == root.resolve() / "new" / "newer" / "newest.txt"


def test_links_that_stay_inside_are_followed_and_named_for_what_they_are(root: Path) -> None:
    (root / "by-name").symlink_to("folder")
    (root / "folder" / "up").symlink_to("../a.txt")
    (root / "absolute").symlink_to(root / "folder" / "b.txt")
    (root / "again").symlink_to("by-name/up")
    (root / "here").symlink_to(".")
    for given_path, name in (
        ("by-name/b.txt", "folder/b.txt"),
        ("folder/up", "a.txt"),
        ("absolute", "folder/b.txt"),
        ("again", "a.txt"),
        ("here/here/a.txt", "a.txt"),
        ("here", "."),
        ("by-name/new.txt", "folder/new.txt"),
    ):
        assert name_inside(root, given_path) == name
    assert read_named_inside(root, "again", 100) == (b"inside", "a.txt")
    assert read_named_inside(root, "absolute", 100) == (b"inside too", "folder/b.txt")


def test_a_root_may_be_reached_by_a_link(root: Path, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(root)
    (root / "absolute").symlink_to(tmp_path / "alias" / "a.txt")
    assert read_inside(tmp_path / "alias", "absolute", 100) == b"inside"
    write_inside(tmp_path / "alias", "new.txt", b"x")
    assert (root / "new.txt").read_bytes() == b"x"


def test_a_real_path_is_the_same_as_in_python_itself(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "file").write_text("here")
    (folder / "moved (deleted)").write_text("still here")
    (tmp_path / "link").symlink_to(folder)
    (folder / "file link").symlink_to("file")
    (tmp_path / "circle").symlink_to("circle")
    names = ["folder", "link", "link/file", "link/file link", "link/../folder", "folder/moved (deleted)"]
    for path in [*(str(tmp_path / name) for name in (*names, "missing/at all", "circle")), "/", "", "."]:
        assert real(path) == os.path.realpath(path), path


def test_too_much_is_not_read(root: Path) -> None:
    assert read_inside(root, "a.txt", 6) == b"inside"
    with pytest.raises(TooLarge) as refused:
        read_inside(root, "a.txt", 5)
    assert refused.value.code == "too_large"


def test_a_file_is_opened_with_the_flags_that_are_asked_for(root: Path) -> None:
    with os.fdopen(open_inside(root, "log.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND), "ab") as file:
        file.write(b"x")
    assert (root / "log.txt").read_bytes() == b"x"
    folder = open_inside(root, "folder", os.O_RDONLY | os.O_DIRECTORY)
    try:
        assert sorted(os.listdir(folder)) == ["b.txt", "deep"]
    finally:
        os.close(folder)


# --- what cannot be used ----------------------------------------------------------------------------------


def test_a_missing_file_is_reported(root: Path) -> None:
    for path in ("nothing.txt", "nowhere/nothing.txt"):
        with pytest.raises(NotFound):
            read_inside(root, path, 100)
    with pytest.raises(NotFound):
        write_inside(root, "nowhere/nothing.txt", b"x")
    with pytest.raises(NotFound):
        read_inside(root / "nowhere", "a.txt", 100)


def test_only_regular_files_are_read_and_written(root: Path) -> None:
    os.mkfifo(root / "pipe")
    (root / "circle").symlink_to("circle")
    for path in ("folder", "pipe", "circle", "a.txt/b", ".", "x" * 300):
        with pytest.raises(BadInput):
            read_inside(root, path, 100)
        with pytest.raises(BadInput):
            write_inside(root, path, b"x")
    assert stat.S_ISFIFO((root / "pipe").stat().st_mode)


# --- links that lead out ----------------------------------------------------------------------------------


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("below", ["", "/canary.txt", "/new.txt", "/etc/passwd", "/made/new.txt"])
def test_a_link_that_leads_out_is_not_followed(linked: Path, link: str, below: str) -> None:
    path = link + below
    for attempt in (
        lambda: read_inside(linked, path, 1_000),
        lambda: write_inside(linked, path, b"x"),
        lambda: write_inside(linked, path, b"x", parents=True),
        lambda: os.close(open_inside(linked, path, os.O_WRONLY | os.O_CREAT)),
        lambda: os.close(open_inside(linked, path, os.O_RDWR)),
    ):
        with pytest.raises(BadInput):
            attempt()
    with pytest.raises(OutsideRoot):
        inside(linked, path)
    assert untouched(linked)


def test_files_are_not_written_through_links_that_stay_inside(root: Path) -> None:
    (root / "link").symlink_to("a.txt")
    with pytest.raises(OutsideRoot):
        write_inside(root, "link", b"x")
    assert (root / "a.txt").read_bytes() == b"inside"
    (root / "by-name").symlink_to("folder")
    write_inside(root, "by-name/b.txt", b"changed")
    assert (root / "folder" / "b.txt").read_bytes() == b"changed"


# --- writing ----------------------------------------------------------------------------------------------


def test_a_file_is_written_whole_and_keeps_its_mode(root: Path) -> None:
    (root / "a.txt").chmod(0o750)
    write_inside(root, "a.txt", b"changed")
    write_inside(root, "new.txt", b"new")
    write_inside(root, "made/for/it.txt", b"made", parents=True)
    assert (root / "a.txt").read_bytes() == b"changed"
    assert stat.S_IMODE((root / "a.txt").stat().st_mode) == 0o750
    assert (root / "new.txt").read_bytes() == b"new"
    assert (root / "made" / "for" / "it.txt").read_bytes() == b"made"
    assert not list(root.rglob(".*"))


def test_another_name_of_the_same_file_outside_is_not_changed(root: Path) -> None:
    os.link(root.parent / "canary.txt", root / "hard.txt")
    write_inside(root, "hard.txt", b"x")
    assert untouched(root)


def test_a_write_protected_file_stays_as_it_is(root: Path) -> None:
    (root / "a.txt").chmod(0o444)
    with pytest.raises(Unusable):
        write_inside(root, "a.txt", b"x")
    assert (root / "a.txt").read_bytes() == b"inside"


def test_a_failed_write_leaves_nothing_behind(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(Unusable):
        write_inside(root, "a.txt", b"x")
    assert (root / "a.txt").read_bytes() == b"inside"
    assert not list(root.rglob(".*"))


def test_no_descriptor_is_left_open(linked: Path) -> None:
    def open_here() -> list[str]:
        """The open files below the folder; other tests' threads may open files elsewhere."""
        links = [os.path.join("/proc/self/fd", number) for number in os.listdir("/proc/self/fd")]
        return [name for name in map(_target, links) if name.startswith(str(linked.parent))]

    for path in ("a.txt", "folder/b.txt", "nowhere/x", *LINKS):
        for attempt in (read_inside, lambda root, path, _: write_inside(root, path, b"x")):
            try:
                attempt(linked, path, 100)
            except BadInput:
                pass
    assert open_here() == []


def _target(link: str) -> str:
    try:
        return os.readlink(link)
    except FileNotFoundError:  # closed in the meantime
        return ""


# --- anything at all --------------------------------------------------------------------------------------

TRICKS = "|..|.|/|~|a.txt|A.TXT|folder|FOLDER|canary.txt|outside|top|\0|\\|new|..\\|%2e%2e|．．|‥|proc|self|cwd|etc|\n| |\ud800"
PIECES = st.sampled_from([*TRICKS.split("|"), *LINKS])
PATHS = st.one_of(st.text(max_size=30), st.lists(PIECES, max_size=7).map("/".join), st.lists(PIECES).map("".join))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("paths") / "top"
    (made / "folder").mkdir(parents=True)
    for outside in ("outside", "top-but-not", "TOP"):
        (made.parent / outside).mkdir()
        (made.parent / outside / "canary.txt").write_bytes(CANARY)
    (made.parent / "canary.txt").write_bytes(CANARY)
    for name, target in LINKS.items():
        (made / name).symlink_to(target(made))
    return made


@given(path=PATHS)
@example("folder/../../canary.txt")
@example("to-a-link/canary.txt")
@example("parent/top/parent/canary.txt")
@settings(max_examples=many(100, 400), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_path_whatever_reads_or_writes_outside(shared: Path, path: str) -> None:
    try:
        assert CANARY not in read_inside(shared, path, 1_000)
    except BadInput:
        pass
    try:
        found = inside(shared, path)
    except BadInput:
        pass
    else:
        assert shared == found or shared in found.parents
        assert os.path.realpath(found) == str(found)
    try:
        write_inside(shared, path, b"written", parents=True)
    except BadInput:
        pass
    assert untouched(shared)


# --- races ------------------------------------------------------------------------------------------------


class Swapper:
    """Replaces a file inside with a link to the outside and back, as fast as it can, until it ends."""

    def __init__(self, honest: Path, link_to: str) -> None:
        self._at, self._target = honest, link_to
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._swap)
        self.swaps = 0

    def __enter__(self) -> Swapper:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join()

    def _swap(self) -> None:
        aside, link = self._at.with_name("aside"), self._at.with_name("link")
        while not self._stop.is_set():
            link.symlink_to(self._target)
            os.rename(self._at, aside)
            os.rename(link, self._at)
            os.unlink(self._at)
            os.rename(aside, self._at)
            self.swaps += 1


def test_a_folder_that_is_swapped_for_a_link_never_leaks(root: Path) -> None:
    (root / "folder" / "canary.txt").write_bytes(b"inside")
    read = 0
    with Swapper(root / "folder", "../outside") as swapper:
        for turn in range(20_000):
            try:
                assert read_inside(root, "folder/canary.txt", 1_000) == b"inside"
                read += 1
            except BadInput:
                pass
            if turn > 5_000 and swapper.swaps > 2_000 and read > 100:
                break
    assert read


def test_a_file_that_is_swapped_for_a_link_never_leaks_and_is_never_written_through(root: Path) -> None:
    (root / "own.txt").write_bytes(b"inside")
    with Swapper(root / "own.txt", "../canary.txt") as swapper:
        for turn in range(20_000):
            try:
                assert read_inside(root, "own.txt", 1_000) != CANARY
                with os.fdopen(open_inside(root, "own.txt", os.O_WRONLY | os.O_TRUNC), "wb") as file:
                    file.write(b"inside")
            except BadInput:
                pass
            if turn > 3_000 and swapper.swaps > 2_000:
                break
    assert untouched(root)


def test_a_folder_swapped_while_writing_never_receives_the_file(root: Path) -> None:
    with Swapper(root / "folder", "../outside") as swapper:
        for turn in range(5_000):
            try:
                write_inside(root, "folder/new.txt", b"x")
            except BadInput:
                pass
            if turn > 1_000 and swapper.swaps > 2_000:
                break
    assert untouched(root)
