"""Arguments that models know from other coding agents, plans, files in parts, and searches as models request them."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from cuebook.kernel.ports import Action
from cuebook.performers.agent_tools import agent_tools
from cuebook.performers.agent_tools.files import FILE_LIMIT
from cuebook.performers.tools.toolbox import Toolbox
from tests.performers.tools.calls import ToolCaller, described


@pytest.fixture
def box(tmp_path: Path) -> Toolbox:
    return Toolbox(agent_tools(tmp_path, commands=None, http=None))


# --- names of arguments ---


async def test_a_file_is_written_edited_and_read_under_the_names_that_models_know(box: Toolbox, tmp_path: Path):
    caller = ToolCaller()
    await caller.value(box, "Write", {"file_path": "a.txt", "contents": "one\ntwo\none\n", "description": "a list"})
    await caller.value(box, "Edit", {"filepath": "a.txt", "old_str": "two", "new_str": "2", "explanation": "shorter"})
    edit = {"file_path": str(tmp_path / "a.txt"), "old_string": "one", "new_string": "1", "replace_all": True}
    await caller.value(box, "Edit", edit)
    assert (tmp_path / "a.txt").read_text() == "1\n2\n1\n"
    read = {"file_path": "a.txt", "offset": 2, "limit": 1, "description": "the middle"}
    assert "     2\t2" in await caller.value(box, "Read", read)


async def test_an_argument_under_two_names_is_rejected(box: Toolbox):
    failed = await ToolCaller().failure(box, "Read", {"path": "a", "file_path": "b"})
    assert failed.code == "bad_arguments"


# --- Grep ---


SEARCHED = {
    "src/app.py": "import os\n\ndef Find():\n    return os\n\n# end\n",
    "src/app.ts": "import x\n",
    "note.md": "os\n",
}


@pytest.fixture
def searched(tmp_path: Path) -> Path:
    for name, content in SEARCHED.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    return tmp_path


@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        ({"pattern": "find", "-i": True, "-n": True}, "src/app.py:3: def Find():"),
        ({"pattern": "import", "output_mode": "files_with_matches"}, "src/app.py\nsrc/app.ts"),
        ({"pattern": "os", "output_mode": "count", "path": "src"}, "src/app.py:2"),
        ({"pattern": "import", "type": "ts"}, "src/app.ts:1: import x"),
        ({"pattern": "import", "include": "*.py"}, "src/app.py:1: import os"),
        (
            {"pattern": "Find", "-B": 1, "-A": 1, "description": "its body"},
            "src/app.py:2- \nsrc/app.py:3: def Find():\nsrc/app.py:4-     return os",
        ),
        (
            {"pattern": "os", "glob": "*.py", "-C": 0, "head_limit": 1},
            "src/app.py:1: import os\n[there are more than these 1 lines; narrow the search]",
        ),
        (
            {"pattern": "import os|end", "type": "py", "context": 1},
            "src/app.py:1: import os\nsrc/app.py:2- \n--\nsrc/app.py:5- \nsrc/app.py:6: # end",
        ),
    ],
)
async def test_a_search_shows_what_was_asked_for(box: Toolbox, searched: Path, asked: dict[str, Any], shown: str):
    assert await ToolCaller().value(box, "Grep", asked) == shown


async def test_an_unknown_type_of_files_is_named(box: Toolbox):
    failed = await ToolCaller().failure(box, "Grep", {"pattern": "a", "type": "klingon"})
    assert "klingon" in failed.message
    assert "glob" in failed.fix


def git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.mark.needs("git")
async def test_files_that_git_excludes_outside_the_tree_are_skipped(box: Toolbox, searched: Path):
    git(searched, "init", "-q")
    exclude = searched / ".git/info/exclude"
    exclude.parent.mkdir(exist_ok=True)
    exclude.write_text("*.ts\nnote.md\n[z-a]\n")
    (searched / ".gitignore").write_text("!note.md\n")
    listed = git(searched, "ls-files", "--others", "--exclude-standard")
    found = await ToolCaller().value(box, "Glob", {"pattern": "**/*"})
    assert [line for line in found.splitlines() if not line.startswith("[")] == sorted(listed.splitlines())
    assert "note.md" in found
    assert "app.ts" not in found
    below = await ToolCaller().value(box, "Glob", {"pattern": "*", "directory": "src"})
    assert below.splitlines()[0] == "src/app.py"
    assert "app.ts" not in below


# --- Write in parts ---


async def test_a_long_file_is_written_in_parts(box: Toolbox, tmp_path: Path):
    caller = ToolCaller()
    assert "Wrote 6 bytes" in await caller.value(box, "Write", {"path": "long.txt", "content": "first\n"})
    said = await caller.value(box, "Write", {"path": "long.txt", "content": "zweitё\n", "append_at": 6})
    size = (tmp_path / "long.txt").stat().st_size
    assert f"append the next part at {size}" in said
    await caller.value(box, "Write", {"path": "long.txt", "content": "third\n", "append_at": size})
    assert (tmp_path / "long.txt").read_text() == "first\nzweitё\nthird\n"


async def test_a_part_that_is_written_twice_is_there_once(box: Toolbox, tmp_path: Path):
    part = {"path": "long.txt", "content": "second\n", "append_at": 6}
    (tmp_path / "long.txt").write_text("first\n")
    await ToolCaller().value(box, "Write", part)
    assert "already has this part" in await ToolCaller().value(box, "Write", part)
    assert (tmp_path / "long.txt").read_text() == "first\nsecond\n"


async def test_a_part_at_another_place_is_refused_with_the_size(box: Toolbox, tmp_path: Path):
    (tmp_path / "long.txt").write_text("first\nother\n")
    failed = await ToolCaller().failure(box, "Write", {"path": "long.txt", "content": "second\n", "append_at": 6})
    assert "has 12 bytes, not 6" in failed.message
    assert (tmp_path / "long.txt").read_text() == "first\nother\n"
    assert (
        "has 0 bytes, not 6"
        in (
            await ToolCaller().failure(box, "Write", {"path": "new.txt", "content": "second\n", "append_at": 6})
        ).message
    )


async def test_a_file_in_parts_has_a_maximum_size(box: Toolbox, tmp_path: Path):
    (tmp_path / "long.txt").write_bytes(b"x" * FILE_LIMIT)
    failed = await ToolCaller().failure(box, "Write", {"path": "long.txt", "content": "y", "append_at": FILE_LIMIT})
    assert failed.code == "too_large"


async def test_an_approver_sees_the_part_and_where_it_goes(box: Toolbox, tmp_path: Path):
    (tmp_path / "long.txt").write_text("first\n")
    shown = await described(box, "Write", {"path": "long.txt", "content": "second\n", "append_at": 6})
    assert shown.summary == "Append to long.txt"
    assert shown.preview["appends"] == "second\n"
    assert shown.preview["at"] == "byte 6"
    assert Action("file", "write:long.txt") in shown.actions


# --- TodoWrite ---


async def test_a_plan_is_kept_and_says_what_comes_next(box: Toolbox):
    todos = [
        {"content": "Read the log", "status": "completed", "activeForm": "Reading the log"},
        {"content": "Fix the bug", "status": "in_progress", "priority": "high", "id": "2"},
        {"content": "Run the tests", "status": "pending"},
    ]
    said = await ToolCaller().value(box, "TodoWrite", {"todos": todos})
    assert said == "The plan has 3 items, 1 completed. Next: Fix the bug"
    assert await ToolCaller().value(box, "TodoWrite", {"plan": []}) == "The plan has 0 items, 0 completed."
    assert (await described(box, "TodoWrite", {"todos": todos})).harmless


async def test_a_plan_with_an_unknown_status_is_refused(box: Toolbox):
    failed = await ToolCaller().failure(box, "TodoWrite", {"todos": [{"content": "a", "status": "maybe"}]})
    assert failed.code == "bad_arguments"
