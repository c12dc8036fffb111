"""Parallel branches in git worktrees of their own, with real git and a process for every command."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.support.command_line import CommandLine
from tests.support.git_workspace import Repository, kill
from tests.support.model_server import ModelServer
from tests.support.sampling import some

pytestmark = [pytest.mark.needs("git"), pytest.mark.needs("bash")]

GRAPH = """\
id: both
name: Both
entry: plan
nodes:
  plan: {name: Plan, instruction: "Node plan."}
  left: {name: Left, instruction: "Node left."}
  right: {name: Right, instruction: "Node right."}
  end: {name: End, instruction: "Node end."}
edges:
  - {from: plan, to: left}
  - {from: plan, to: right}
  - {from: left, to: end}
  - {from: right, to: end}
x_cuebook:
  parallel: true
  nodes:
    left: {workspace: worktree}
    right: {workspace: worktree}
"""
POLICY = '[tools]\nallow = ["Write", "Bash"]\n[files]\nallow = ["write:**"]\n[commands]\nallow = ["*"]\n'


class Team(Repository):
    """A repository whose graph has two branches with worktrees; the commands of each node are given."""

    def __init__(self, cli: CommandLine, server: ModelServer) -> None:
        super().__init__(cli)
        self.server = server
        (cli.config.parent / "policy.toml").write_text(POLICY)
        self.book = self.book.with_name("both.yml")
        self.book.write_text(GRAPH)
        self.commands: dict[str, str] = {}
        self.ran: list[str] = []
        server.script = self._reply  # type: ignore[assignment]

    def _reply(self, request: dict[str, Any]) -> str | dict[str, Any]:
        messages = request["messages"]
        asked = str([one["content"] for one in messages if one["role"] == "user"][-1:])
        node = re.findall(r"Node (\w+)\.", asked)[0]
        if messages[-1]["role"] == "tool" or node not in self.commands:
            return f"{node} is done."
        self.ran.append(node)
        return {"tool": "Bash", "arguments": {"command": self.commands[node]}}

    def begin(self, **commands: str) -> dict[str, Any]:
        self.commands = commands
        return dict(self.cli.call("run", str(self.book), "--json").object)

    def folders(self) -> list[str]:
        return sorted(one.name for one in self.worktrees.iterdir() if one.is_dir())

    @property
    def is_clean(self) -> bool:
        """Whether only the workspace itself and its branch are left."""
        lists = len(self.git("worktree", "list").splitlines())
        return (self.branches, self.folders(), lists, self.git("status", "--porcelain")) == (["main"], [], 1, "")


@pytest.fixture
def team(cli: CommandLine, server: ModelServer) -> Team:
    return Team(cli, server)


def test_branches_work_apart_and_are_merged_in_order_before_the_join(team: Team) -> None:
    cli = team.cli
    ran = team.begin(
        plan="echo plan > plan.txt",
        left="cat plan.txt && echo left > left.txt && ls > seen_left.txt",
        right="sed -i 's/one/uno/' a.txt && ls > seen_right.txt",
        end="cat left.txt a.txt seen_left.txt > all.txt",
    )
    run = ran["run"]
    assert ran["status"] == "awaiting_approval", ran
    assert team.git("status", "--porcelain") == ""
    assert team.folders() == [run]
    shown = team.shown(run)
    labels = [step["label"] for step in shown["steps"] if step["label"].startswith("worktree.")]
    assert labels == ["worktree.merge:left", "worktree.merge:right", "worktree.changes", "worktree.merge"]
    whole = cli.call("show", run).out
    assert "+left" in whole
    assert "Merge the worktree of right" in whole
    assert cli.call("decide", run, "approve").code == 0
    assert team.read("seen_left.txt").split() == ["a.txt", "left.txt", "plan.txt", "seen_left.txt"]
    assert team.read("seen_right.txt").split() == ["a.txt", "plan.txt", "seen_right.txt"]
    assert team.read("all.txt").splitlines()[:2] == ["left", "uno"]
    assert team.is_clean
    assert cli.call("replay", run).code == 0


NESTED = """\
id: nested
name: Nested
entry: plan
nodes:
  plan: {name: Plan, instruction: "Node plan."}
  left: {name: Left, instruction: "Node left."}
  one: {name: One, instruction: "Node one."}
  two: {name: Two, instruction: "Node two."}
  both: {name: Both, instruction: "Node both."}
  right: {name: Right, instruction: "Node right."}
  end: {name: End, instruction: "Node end."}
edges:
  - {from: plan, to: left}
  - {from: plan, to: right}
  - {from: left, to: one}
  - {from: left, to: two}
  - {from: one, to: both}
  - {from: two, to: both}
  - {from: both, to: end}
  - {from: right, to: end}
x_cuebook:
  parallel: true
  nodes:
    left: {workspace: worktree}
    one: {workspace: worktree}
    two: {workspace: worktree}
"""


def test_branches_of_a_branch_are_merged_into_its_worktree(team: Team) -> None:
    team.book.write_text(NESTED)
    team.write(".gitignore", "*.tmp\n")
    team.commit("ignore")
    ran = team.begin(
        left="echo left > left.txt; touch left.tmp",
        one="echo one > one.txt; ls > seen_one.txt",
        two="rm a.txt; ls > seen_two.txt",
        both="ls > seen_both.txt",
        right="ls > seen_right.txt",
        end="ls > seen_end.txt",
    )
    assert team.cli.call("decide", ran["run"], "approve").code == 0
    left = {"a.txt", "left.txt"}
    assert set(team.read("seen_one.txt").split()) == {*left, "one.txt", "seen_one.txt"}
    assert set(team.read("seen_two.txt").split()) == {"left.txt", "seen_two.txt"}
    both = {"left.txt", "left.tmp", "one.txt", "seen_one.txt", "seen_two.txt", "seen_both.txt"}
    assert set(team.read("seen_both.txt").split()) == both, "what git ignores stays in the branch"
    assert "left.txt" not in team.read("seen_right.txt")
    assert set(team.read("seen_end.txt").split()) == {*both - {"left.tmp"}, "seen_right.txt", "seen_end.txt"}
    assert not (team.folder / "a.txt").exists()
    assert team.is_clean


def test_a_conflict_waits_for_a_person_and_loses_neither_side(team: Team) -> None:
    cli = team.cli
    run = team.begin(left="echo left > a.txt; echo l > l.txt", right="echo right > a.txt; echo r > r.txt")["run"]
    (wait,) = team.shown(run)["waits"]
    folder = team.worktrees / f"{run}-right"
    assert wait["prompt"].startswith("'right' conflicts with what was merged before it, in a.txt.")
    assert str(folder) in cli.call("inbox", run).out
    assert (team.worktrees / run / "a.txt").read_text() == "left\n"
    marked = (folder / "a.txt").read_text()
    assert marked.startswith("<<<<<<< ")
    assert "\nleft\n=======\nright\n>>>>>>> " in marked
    assert team.git("show", f"cuebook/{run}-right.own:a.txt") == "right"

    cli.call("decide", run, "approve")  # without having resolved it
    (wait,) = team.shown(run)["waits"]
    assert "still contain conflict marks: a.txt" in str(wait)
    (folder / "a.txt").write_text("left and right\n")
    assert cli.call("decide", run, "approve").code == 3
    assert "Merge the changes in 3 files into main" in cli.call("inbox", run).out
    assert cli.call("decide", run, "approve").code == 0
    assert (team.read("a.txt"), team.read("l.txt"), team.read("r.txt")) == ("left and right\n", "l\n", "r\n")
    assert team.is_clean


def test_a_denied_conflict_keeps_both_worktrees_and_a_retry_asks_again(team: Team) -> None:
    cli = team.cli
    run = team.begin(left="echo left > a.txt", right="rm a.txt")["run"]
    denied = cli.call("decide", run, "deny", "--reason", "later")
    assert denied.code == 5
    words = " ".join((denied.out + denied.err).split())
    assert "The branch 'right' was not merged, because it conflicts in a.txt" in words
    assert team.folders() == [run, f"{run}-right"]
    assert f"worktree  {run}-right" in cli.call("doctor").out
    assert cli.call("retry", run).code == 3
    assert cli.call("decide", run, "approve").code == 3  # nothing is marked: the file is kept as it was merged before
    assert cli.call("decide", run, "approve").code == 0
    assert team.read("a.txt") == "left\n"
    assert team.ran.count("right") == 1
    assert team.is_clean


@pytest.mark.parametrize(
    ("when", "at"),
    some(
        [
            *[
                ("after", "read-tree -m"),
                ("before", "worktree add"),
                ("after", "worktree add"),
                ("after", "write-tree"),
            ],
            *[
                ("after", "commit-tree"),
                ("after", "merge-tree"),
                ("before", "read-tree -m"),
                ("after", "worktree prune"),
            ],
            *[("after", "branch -D"), ("before", "worktree remove")],
        ],
        2,
    ),
)
def test_a_killed_run_repeats_nothing_and_leaves_no_worktree(when: str, at: str, team: Team) -> None:
    cli = team.cli
    team.commands = {"left": "echo left >> log; echo l > l.txt", "right": "echo right >> log2", "end": "cat log log2"}
    kill(team, when, at, "run", str(team.book), "--json")
    (row,) = cli.call("runs", "--json").object
    run = row["run"]
    assert cli.call("resume", run).code == 3, cli.call("show", run).out
    assert cli.call("decide", run, "approve").code == 0
    assert (team.read("log"), team.read("log2"), team.read("l.txt")) == ("left\n", "right\n", "l\n")
    assert sorted(team.ran) == ["end", "left", "right"]
    assert team.is_clean


@pytest.mark.parametrize(
    ("when", "at"),
    some([("after", "merge-tree"), ("after", "update-ref"), ("before", "read-tree -m"), ("after", "read-tree -m")], 2),
)
def test_a_run_killed_in_a_conflict_finds_the_same_conflict_again(when: str, at: str, team: Team) -> None:
    cli = team.cli
    team.book.write_text(GRAPH.replace("    left: {workspace: worktree}\n", ""))
    team.commands = {"left": "echo left > a.txt", "right": "echo right > a.txt"}
    kill(team, when, at, "run", str(team.book), "--json")
    (row,) = cli.call("runs", "--json").object
    run = row["run"]
    assert cli.call("resume", run).code == 3
    folder = team.worktrees / f"{run}-right"
    assert "\nleft\n=======\nright\n>>>>>>> " in (folder / "a.txt").read_text()
    (folder / "a.txt").write_text("both\n")
    assert cli.call("decide", run, "approve").code == 3
    assert cli.call("decide", run, "approve").code == 0
    assert team.read("a.txt") == "both\n"
    assert sorted(team.ran) == ["left", "right"]
    assert team.is_clean


def test_a_worktree_for_a_node_that_begins_no_branch_is_an_error_with_its_line(team: Team) -> None:
    team.book.write_text(GRAPH.replace("    right: {workspace: worktree}", "    end: {workspace: worktree}"))
    found = team.cli.call("validate", str(team.book))
    assert found.code == 2
    assert "both.yml:18: error: x_cuebook.nodes.end.workspace" in found.out
    assert "no parallel branch begins with 'end'" in " ".join(found.out.split())
