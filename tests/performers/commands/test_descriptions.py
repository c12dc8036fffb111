"""A command is described as it will run and bound to its current content, or refused."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cuebook.gate.sandbox import choose
from cuebook.kernel.effects import RunCommand
from cuebook.kernel.ports import Action, Description
from cuebook.kernel.run import Settings
from cuebook.performers.commands import CommandPerformer
from tests.gate.sandbox.sandboxes import WORKING
from tests.performers.commands.harness import described, refused, result, shell
from tests.support.sampling import many

SHELL = os.path.realpath("/bin/sh")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    (folder / "sub").mkdir(parents=True)
    return folder


@pytest.fixture
def confining(workspace: Path) -> CommandPerformer:
    return CommandPerformer(choose(), workspace)


# --- describing ---


async def test_a_description_shows_everything_that_matters(confining: CommandPerformer, workspace: Path) -> None:
    effect = RunCommand(
        ("sh", "-c", "echo $A 'b c'"), cwd="sub", env={"A": "1", "LD_PRELOAD": "/x.so"}, stdin="in", timeout=5
    )
    description = await described(confining, effect)
    line = """sh -c 'echo $A '"'"'b c'"'"''"""
    assert description.actions == (Action("command", f"cd sub && env A=1 LD_PRELOAD=/x.so {line}"),)
    assert description.summary == f"Run {line}"
    assert description.preview == {
        "command": line,
        "program": SHELL,
        "folder": f"{workspace}/sub",
        "environment": "A=1\nLD_PRELOAD=/x.so",
        "stdin": "in",
        "content not bound": "It may have changed by the time this runs: the value of a variable or a substitution in the"
        " script.",
        "time limit": "5 s",
        "may change": f"the workspace, {workspace}",
        "network": "no",
    }
    assert description.bound["loading"] == {"LD_PRELOAD": "/x.so"}
    assert description.bound["sandbox"] == WORKING[0]


async def test_only_what_is_held_to_reading_is_described_as_reading(workspace: Path) -> None:
    effect = RunCommand(("ls",), reads_only=True)
    held = await described(CommandPerformer(choose(), workspace), effect)
    assert held.actions[0].reads_only
    assert held.preview["may change"] == "nothing"
    free = await described(CommandPerformer(choose("none"), workspace), effect)
    assert not free.actions[0].reads_only
    assert "without a sandbox" in free.preview["may change"]
    effect = RunCommand(("ls",), reads_only=True, network=("example.com",))
    online = await described(CommandPerformer(choose(), workspace), effect)
    assert not online.actions[0].reads_only
    assert online.preview["network"] == "only example.com"


async def test_describing_twice_gives_the_same(confining: CommandPerformer, workspace: Path) -> None:
    (workspace / "deploy.py").write_text("print(1)")
    effect = RunCommand(("python3", "deploy.py"))
    assert await described(confining, effect) == await described(confining, effect)


def rewrite(path: Path) -> None:
    path.write_text("print(2)")


def rewrite_and_hide_it(path: Path) -> None:
    """Same size, same time, same place."""
    status = path.stat()
    path.write_text("print(9)")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def replace(path: Path) -> None:
    other = path.with_name("other")
    other.write_text("print(3)")
    os.replace(other, path)


def relink(path: Path) -> None:
    path.with_name("target").write_text("print(4)")
    path.unlink()
    path.symlink_to("target")


@pytest.mark.parametrize("change", [rewrite, rewrite_and_hide_it, replace, relink])
@pytest.mark.parametrize(
    "argv",
    [
        ("python3", "deploy.py"),
        ("python3", "./sub/../deploy.py"),
        ("sh", "-c", "python3 deploy.py --now && true"),
        ("env", "--chdir=.", "python3", "deploy.py"),
        ("cat", "--number=deploy.py"),
    ],
)
async def test_another_content_of_a_named_file_is_another_binding(
    confining: CommandPerformer, workspace: Path, change: Callable[[Path], None], argv: tuple[str, ...]
) -> None:
    script = workspace / "deploy.py"
    script.write_text("print(1)")
    before = await described(confining, RunCommand(argv))
    assert "deploy.py" in before.bound["files"]
    change(script)
    assert (await described(confining, RunCommand(argv))).bound != before.bound


SPELLINGS: dict[str, tuple[tuple[str, ...], str]] = {
    "wildcard of a redirection": (("bash", "-c", "sh < a.s?"), "a.sh"),
    "a word": (("sh", "a.sh"), "a.sh"),
    "from here": (("sh", "./a.sh"), "a.sh"),
    "in a script": (("sh", "-c", "sh a.sh"), "a.sh"),
    "with a blank": (("sh", "my script.sh"), "my script.sh"),
    "as a value": (("bash", "--rcfile=a.sh", "-i"), "a.sh"),
    "by a link": (("sh", "link.sh"), "a.sh"),
    "by a hard link": (("sh", "hard.sh"), "hard.sh"),
    "after a wrapper": (("env", "X=1", "sh", "a.sh"), "a.sh"),
    "quoted in a script": (("sh", "-c", "sh 'my script.sh'"), "my script.sh"),
    "escaped in a script": (("sh", "-c", "sh my\\ script.sh"), "my script.sh"),
    "with empty quotes": (("sh", "-c", "sh ./a''.sh"), "a.sh"),
    "after cd": (("sh", "-c", "cd sub && sh b.sh"), "sub/b.sh"),
    "after two": (("sh", "-c", "cd sub; cd deep; sh c.sh"), "sub/deep/c.sh"),
    "joined to an option": (("awk", "-fa.sh"), "a.sh"),
    "a folder": (("python3", "pkg"), "pkg/"),
    "a module": (("python3", "-m", "pkg"), "pkg/"),
    "a module in one word": (("python3", "-Impkg.part"), "pkg/part.py"),
    "a module in a script": (("sh", "-c", "cd sub && python3 -m one"), "sub/one.py"),
    "after two signs": (("tool", "k=v=a.sh"), "a.sh"),
    "after an at": (("tool", "@a.sh"), "a.sh"),
    "after an option and an at": (("tool", "-d@a.sh"), "a.sh"),
    "by a wildcard": (("sh", "-c", "cat *.sh | sh"), "a.sh"),
    "by a wildcard elsewhere": (("sh", "-c", "cd sub && cat * | sh"), "sub/b.sh"),
    "by braces": (("bash", "-c", "sh {a,}.sh"), "a.sh"),
    "by a redirection": (("sh", "-c", "sh < a.sh"), "a.sh"),
    "in a substitution": (("sh", "-c", 'echo "$(sh a.sh)"'), "a.sh"),
    "in a script in a script": (("sh", "-c", "sh -c 'sh -c \"sh my\\ script.sh\"'"), "my script.sh"),
    "by a folder option": (("make", "-C", "sub", "-f", "b.sh"), "sub/b.sh"),
}
UNBOUND = [
    ("sh", "-c", "sh $F.sh"),
    ("sh", "-c", "sh `echo a.sh`"),
    ("sh", "-c", "sh $(echo a.sh)"),
    ("bash", "-c", 'eval "$X"'),
    ("env", "A=1", "bash", "-c", "sh ${F}.sh"),
    ("python3", "-c", "exec(open('a' + '.sh').read())"),
    ("sh", "-c", "python3 -c \"exec(open('a.s' + 'h').read())\""),
    ("node", "-e", "require('./a' + '.js')"),
    ("perl", "-ne", "do 'a'.'.pl'"),
    ("sh", "-c", "cat /*/*/*/*/nothing*"),
    ("sh", "-c", "cat */*/*/*/*"),
    ("tar", "c", "."),
    ("tar", "c", "many"),
    ("sh", "-c", "sh ~+/a.sh"),
    ("bash", "-O", "extglob", "-c", "sh @(a).sh"),
    ("bash", "-O", "globstar", "-c", "sh **/b.sh"),
    ("bash", "-c", "cat {a..b}.sh | sh"),
]


def mentioning(workspace: Path) -> None:
    for name in ("a.sh", "my script.sh", "sub/b.sh", "sub/deep/c.sh", "sub/one.py", "pkg/__main__.py", "pkg/part.py"):
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace / name).write_text("echo 1\n")
    (workspace / "link.sh").symlink_to("a.sh")
    os.link(workspace / "a.sh", workspace / "hard.sh")
    tool = workspace / "tool"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)


@pytest.mark.parametrize("spelling", SPELLINGS)
async def test_a_file_is_bound_however_the_command_names_it(workspace: Path, spelling: str) -> None:
    mentioning(workspace)
    argv, name = SPELLINGS[spelling]
    performer = CommandPerformer(choose(), workspace, path=f"{workspace}{os.pathsep}{os.environ['PATH']}")
    before = await described(performer, RunCommand(argv))
    assert name in before.bound["files"], before.bound["files"]
    assert name in before.preview["files as they are now"]
    changed = workspace / (name + "__main__.py" if name.endswith("/") else name)
    changed.write_text("echo 2\n")
    after = await described(performer, RunCommand(argv))
    assert after.bound["files"][name] != before.bound["files"][name]


@pytest.mark.parametrize("argv", UNBOUND, ids=" ".join)
async def test_what_cannot_be_bound_is_said(workspace: Path, argv: tuple[str, ...]) -> None:
    mentioning(workspace)
    (workspace / "many").mkdir()
    for number in range(501):
        (workspace / "many" / str(number)).touch()
    description = await described(CommandPerformer(choose(), workspace), RunCommand(argv))
    assert "may have changed" in description.preview["content not bound"]


async def test_a_command_full_of_wildcards_is_not_looked_through_for_ever(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mentioning(workspace)
    listed: list[str] = []
    scandir = os.scandir

    def counted(path: str) -> Any:
        listed.append(path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", counted)
    monkeypatch.setattr("cuebook.performers.commands.mentions._MOST_ENTRIES", 100)
    script = "cat " + " ".join(f"*/x{number}*" for number in range(1000))
    description = await described(CommandPerformer(choose(), workspace), RunCommand(("sh", "-c", script)))
    assert "wildcards" in description.preview["content not bound"]
    assert len(listed) < 200


@pytest.mark.parametrize("argv", [("python3", "-"), ("timeout", "5", "python3"), ("xargs", "cat")])
async def test_what_an_interpreter_reads_from_its_input_is_not_bound(workspace: Path, argv: tuple[str, ...]) -> None:
    effect = RunCommand(argv, stdin="import this")
    description = await described(CommandPerformer(choose(), workspace), effect)
    assert "its input" in description.preview["content not bound"]


@pytest.mark.parametrize("argv", [("python3", "a.sh"), ("grep", "python3"), ("awk", "{print $1}")])
async def test_input_that_is_read_as_data_is_not_code(workspace: Path, argv: tuple[str, ...]) -> None:
    mentioning(workspace)
    effect = RunCommand(argv, stdin="import this")
    description = await described(CommandPerformer(choose(), workspace), effect)
    assert "content not bound" not in description.preview


@pytest.mark.parametrize("argv", [("sh", "a.sh"), ("sh", "-c", "cd sub && sh b.sh"), ("awk", "{print $1}", "a.sh")])
async def test_what_is_bound_in_full_says_nothing_of_the_kind(workspace: Path, argv: tuple[str, ...]) -> None:
    mentioning(workspace)
    description = await described(CommandPerformer(choose(), workspace), RunCommand(argv))
    assert "content not bound" not in description.preview


async def test_a_file_more_that_a_wildcard_fits_is_another_binding(
    confining: CommandPerformer, workspace: Path
) -> None:
    mentioning(workspace)
    effect = shell("cat *.sh | sh")
    before = await described(confining, effect)
    (workspace / "0.sh").write_text("echo 3")
    assert (await described(confining, effect)).bound != before.bound


@pytest.mark.parametrize(
    "script",
    ["sh " + "{a,b}" * 3000, "sh " + "{" * 5000, "cat " + "*" * 2000, "sh " * 2000, "$(" * 2000, "sh -c '" * 500],
    ids=lambda script: script[:12],
)
async def test_a_script_full_of_expansions_is_described_all_the_same(
    confining: CommandPerformer, workspace: Path, script: str
) -> None:
    mentioning(workspace)
    assert (await described(confining, shell(script))).preview["command"]


async def test_a_shells_input_is_read_as_its_script(confining: CommandPerformer, workspace: Path) -> None:
    mentioning(workspace)
    assert "a.sh" in (await described(confining, RunCommand(("sh",), stdin="sh './a'.sh"))).bound["files"]


async def test_a_program_that_was_changed_is_another_binding(confining: CommandPerformer, workspace: Path) -> None:
    program = workspace / "tool"
    program.write_text("#!/bin/sh\necho 1\n")
    program.chmod(0o755)
    effect = RunCommand(("./tool",))
    before = await described(confining, effect)
    program.write_text("#!/bin/sh\necho 2\n")
    assert (await described(confining, effect)).bound["program"] != before.bound["program"]


async def test_another_program_of_the_same_name_is_another_binding(tmp_path: Path, workspace: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
        (folder / "tool").write_text(f"#!/bin/sh\necho {folder.name}\n")
        (folder / "tool").chmod(0o755)
    performer = CommandPerformer(choose(), workspace, path=f"{first}:{second}:/usr/bin:/bin")
    before = await described(performer, RunCommand(("tool",)))
    assert str((await result(performer, RunCommand(("tool",)))).stdout) == "first\n"
    (first / "tool").unlink()
    assert (await described(performer, RunCommand(("tool",)))).bound != before.bound
    assert str((await result(performer, RunCommand(("tool",)))).stdout) == "second\n"


async def test_a_folder_that_was_turned_elsewhere_is_another_binding(
    confining: CommandPerformer, workspace: Path
) -> None:
    (workspace / "one").mkdir()
    (workspace / "two").mkdir()
    (workspace / "here").symlink_to("one")
    effect = RunCommand(("ls",), cwd="here")
    before = await described(confining, effect)
    (workspace / "here").unlink()
    (workspace / "here").symlink_to("two")
    assert (await described(confining, effect)).bound != before.bound


async def test_a_file_too_large_to_read_is_bound_by_size_and_time(confining: CommandPerformer, workspace: Path) -> None:
    large = workspace / "large"
    with large.open("wb") as file:
        file.truncate(60 << 20)
    effect = RunCommand(("cat", "large"))
    before = await described(confining, effect)
    with large.open("r+b") as file:
        file.write(b"x")
    assert (await described(confining, effect)).bound != before.bound


async def test_a_file_of_some_megabytes_is_bound_by_content(confining: CommandPerformer, workspace: Path) -> None:
    medium = workspace / "medium"
    medium.write_bytes(b"x" * (3 << 20))
    before = await described(confining, RunCommand(("cat", "medium")))
    assert len(before.bound["files"]["medium"]) == 64


async def test_files_are_found_in_a_script_of_any_length(confining: CommandPerformer, workspace: Path) -> None:
    (workspace / "deploy.py").write_text("print(1)")
    script = " ".join(f"word{number}" for number in range(10_000)) + "; python3 deploy.py"
    assert list((await described(confining, shell(script))).bound["files"]) == ["deploy.py"]


# --- refusals ---


@pytest.mark.parametrize("argv", [(), ("",), ("", "x")])
async def test_an_empty_command_is_refused(confining: CommandPerformer, argv: tuple[str, ...]) -> None:
    assert (await refused(confining, RunCommand(argv))).code == "bad_command"


@pytest.mark.parametrize(
    "effect",
    [
        RunCommand(("echo", "a\0b")),
        RunCommand(("ec\0ho",)),
        RunCommand(("echo",), env={"A": "a\0b"}),
        RunCommand(("echo",), env={"A\0": "b"}),
        RunCommand(("echo",), env={"A=B": "c"}),
        RunCommand(("echo",), env={"": "c"}),
        RunCommand(("echo", "\ud800")),
        RunCommand(("cat",), stdin="\ud800"),
    ],
)
async def test_what_no_process_can_be_given_is_refused(confining: CommandPerformer, effect: RunCommand) -> None:
    assert (await refused(confining, effect)).code == "bad_command"


async def test_an_unknown_program_is_refused_and_the_path_is_named(workspace: Path) -> None:
    performer = CommandPerformer(choose(), workspace, path="/usr/bin:/bin")
    outcome = await refused(performer, RunCommand(("no-such-program",)))
    assert outcome.code == "no_such_command"
    assert "/usr/bin:/bin" in outcome.fix


async def test_a_program_of_the_workspace_is_not_found_by_its_bare_name(
    confining: CommandPerformer, workspace: Path
) -> None:
    (workspace / "sneaky").write_text("#!/bin/sh\n")
    (workspace / "sneaky").chmod(0o755)
    assert (await refused(confining, RunCommand(("sneaky",)))).code == "no_such_command"


async def test_a_relative_folder_of_the_path_is_not_searched(workspace: Path) -> None:
    (workspace / "sneaky").write_text("#!/bin/sh\n")
    (workspace / "sneaky").chmod(0o755)
    performer = CommandPerformer(choose(), workspace, path=".::bin:/usr/bin:/bin")
    assert (await refused(performer, RunCommand(("sneaky",)))).code == "no_such_command"


@pytest.mark.parametrize("name", ["/etc/passwd", "/usr", "sub", "./sub", "/no/such/program"])
async def test_a_file_that_is_not_a_program_is_refused(confining: CommandPerformer, name: str) -> None:
    assert (await refused(confining, RunCommand((name,)))).code == "no_such_command"


async def test_a_relative_program_outside_the_workspace_is_refused(
    confining: CommandPerformer, workspace: Path
) -> None:
    outside = workspace.parent / "tool"
    outside.write_text("#!/bin/sh\n")
    outside.chmod(0o755)
    for name in ("../tool", "sub/../../tool", "./../tool"):
        assert (await refused(confining, RunCommand((name,)))).code == "outside_workspace"


@pytest.mark.parametrize("cwd", ["/", "/tmp", "..", "sub/..", "sub/../..", "~", "a\0b", "out", "out/deeper", "loop/x"])
async def test_a_folder_outside_the_workspace_is_refused(
    confining: CommandPerformer, workspace: Path, cwd: str
) -> None:
    outside = workspace.parent / "outside"
    (outside / "deeper").mkdir(parents=True)
    (workspace / "out").symlink_to(outside)
    (workspace / "loop").symlink_to("loop")
    outcome = await refused(confining, RunCommand(("pwd",), cwd=cwd))
    assert outcome.code == ("bad_command" if "loop" in cwd else "outside_workspace")


@pytest.mark.parametrize("cwd", ["missing", "file"])
async def test_a_folder_that_is_not_there_is_refused(confining: CommandPerformer, workspace: Path, cwd: str) -> None:
    (workspace / "file").touch()
    assert (await refused(confining, RunCommand(("pwd",), cwd=cwd))).code == "bad_command"


PIECES = st.lists(
    st.sampled_from(["..", ".", "", "sub", "out", "in", "up", "~", "\0", "/", "a b", "…", "SUB"]) | st.text(max_size=5),
    max_size=6,
)


@settings(max_examples=many(75, 300), deadline=None)
@given(PIECES.map("/".join) | st.text(max_size=30))
def test_no_folder_is_ever_outside_the_workspace(cwd: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        workspace = root / "workspace"
        (workspace / "sub").mkdir(parents=True)
        (root / "outside" / "sub").mkdir(parents=True)
        (workspace / "out").symlink_to(root / "outside")
        (workspace / "in").symlink_to("sub")
        (workspace / "sub" / "up").symlink_to("../..")
        performer = CommandPerformer(choose("none"), workspace)
        description = asyncio.run(performer.describe(RunCommand(("true",), cwd=cwd), Settings()))
        if isinstance(description, Description):
            folder = Path(description.bound["folder"]).resolve()
            assert folder == workspace.resolve() or workspace.resolve() in folder.parents


async def test_a_large_file_with_its_old_size_and_time_is_another_all_the_same(
    confining: CommandPerformer, workspace: Path
) -> None:
    file = workspace / "large.bin"
    file.touch()
    os.truncate(file, 60 << 20)
    effect = RunCommand(("cat", "large.bin"))
    before = await described(confining, effect)
    assert before == await described(confining, effect)
    status = file.stat()
    with file.open("r+b") as opened:
        opened.write(b"other")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert (await described(confining, effect)).bound["files"] != before.bound["files"]
    assert before.preview["files as they are now"].startswith("large.bin (62914560 bytes of ")
