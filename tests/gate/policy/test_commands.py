"""Rules for commands: the typed command must be permitted, and commands inside it can be restricted."""

from __future__ import annotations

import os
import random
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from cuebook.formats.shell import placed_in, simple_commands
from cuebook.gate.policy import Decision, decide
from cuebook.gate.policy.overrides import problem_with, suggested
from cuebook.kernel.ports import Action
from tests.gate.policy.samples import override, policy, ruled


def run(*argv: str) -> Action:
    return Action("command", shlex.join(argv))


def bash(script: str) -> Action:
    return run("bash", "-c", script)


# --- scripts taken apart ------------------------------------------------------------------------------

PLAIN = {
    "": [],
    "   ": [],
    "\n\n": [],
    "# nothing but a comment": [],
    "ls": [["ls"]],
    "ls -la /tmp": [["ls", "-la", "/tmp"]],
    "  ls \t -la  ": [["ls", "-la"]],
    "a; b": [["a"], ["b"]],
    "a;b;": [["a"], ["b"]],
    "a && b || c | d": [["a"], ["b"], ["c"], ["d"]],
    "a&&b||c|d": [["a"], ["b"], ["c"], ["d"]],
    "a\nb\n\nc\n": [["a"], ["b"], ["c"]],
    "a &&\n b": [["a"], ["b"]],
    "a |\n\n b": [["a"], ["b"]],
    "a # b; c\nd": [["a"], ["d"]],
    "a #b": [["a"]],
    "a b#c": [["a", "b#c"]],
    "a '#b'": [["a", "#b"]],
    "echo 'a; b && c'": [["echo", "a; b && c"]],
    'echo "a; b | c"': [["echo", "a; b | c"]],
    "echo a\\;b": [["echo", "a;b"]],
    "echo a\\ b": [["echo", "a b"]],
    "echo 'a'\"b\"c": [["echo", "abc"]],
    "r'm' x": [["rm", "x"]],
    "r\\m x": [["rm", "x"]],
    '"rm" x': [["rm", "x"]],
    "echo ''": [["echo", ""]],
    "echo '$HOME' '`x`' '$(y)'": [["echo", "$HOME", "`x`", "$(y)"]],
    "echo \\$HOME \\`": [["echo", "$HOME", "`"]],
    'echo "\\$HOME \\" \\\\ \\`x"': [["echo", '$HOME " \\ `x']],
    'echo "a\\nb"': [["echo", "a\\nb"]],
    "echo 'a\nb'": [["echo", "a\nb"]],
    "rm \\\n -rf x": [["rm", "-rf", "x"]],
    "r\\\nm x": [["rm", "x"]],
    'echo "a\\\nb"': [["echo", "ab"]],
    "ls *.py": [["ls", "*.py"]],
    "ls [ab]?": [["ls", "[ab]?"]],
    "[ -f x ] && a": [["[", "-f", "x", "]"], ["a"]],
    "find . -name x -exec rm {} +": [["find", ".", "-name", "x", "-exec", "rm", "{}", "+"]],
    "find . -exec rm {} \\;": [["find", ".", "-exec", "rm", "{}", ";"]],
    "grep -E 'a|b' x": [["grep", "-E", "a|b", "x"]],
    "make x=1": [["make", "x=1"]],
    "'a=1' b": [["a=1", "b"]],
    "export A=1": [["export", "A=1"]],
    "echo if then": [["echo", "if", "then"]],
    "'if' x": [["if", "x"]],
    "echo !": [["echo", "!"]],
    "cd ~/x": [["cd", "~/x"]],
    "env -i FOO=1 rm x": [["env", "-i", "FOO=1", "rm", "x"]],
}

NOT_PLAIN = [
    "echo $HOME",
    'echo "$HOME"',
    "echo ${HOME}",
    "echo $(rm x)",
    'echo "$(rm x)"',
    "echo `rm x`",
    'echo "`rm x`"',
    "echo $((1+1))",
    "$'rm' x",
    '$"rm" x',
    "a > b",
    "a >> b",
    "a < b",
    "a 2>&1",
    "a &> b",
    "a <<EOF\nx\nEOF",
    "a <<< b",
    "a >| b",
    "diff <(a) <(b)",
    "tee >(a)",
    "a &",
    "a & b",
    "a |& b",
    "(a)",
    "{ a; }",
    "f() { a; }",
    "function f { a; }",
    "if a; then b; fi",
    "for x in a; do b; done",
    "while a; do b; done",
    "case a in b) c;; esac",
    "! a",
    "[[ a ]]",
    "time a",
    "coproc a",
    "A=1",
    "A=1 b",
    "A+=1 b",
    "A[0]=1 b",
    "{a,b} c",
    "a {b,c}",
    "r? x",
    "/bin/r* x",
    "[r]m x",
    "'a",
    '"a',
    "a\\",
    "a &&",
    "a |",
    "&& a",
    "; a",
    "a ;; b",
    "a ; ; b",
    "a && || b",
    "a\r\nb",
    "a\0b",
    "a\x0bb",
    "a\u00a0b",
    "'' a",
]


@pytest.mark.parametrize(("script", "commands"), PLAIN.items(), ids=map(repr, PLAIN))
def test_a_script_of_plain_commands_is_taken_apart(script: str, commands: list[list[str]]) -> None:
    assert simple_commands(script) == commands


@pytest.mark.parametrize("script", NOT_PLAIN, ids=repr)
def test_a_script_that_holds_more_than_plain_commands_is_not(script: str) -> None:
    assert simple_commands(script) is None


PIECES = ["a", "b", "rm", "-x", " ", " ", " ", "\n", ";", "&&", "||", "|", "'", "'", '"', '"', "\\", "\\\n", "#"]
PIECES += ["$", "`", "(", ")", "<", ">", "&", "{", "}", "{}", "*", "?", "[", "]", "=", "!", ",", "\t", "\r", "^"]
PIECES += ["$(rm)", "`rm`", "$'rm'", "<<a", "a=1 ", "if ", " then ", " fi", "time ", "''", "%", "+", "@", ":", "é"]

RECORDER = '#!/bin/sh\nprintf \'%s\\0\' "${0##*/}" "$@" \'\n\' >> "$LOG"\n'


@pytest.mark.parametrize("shell", [name for name in ("sh", "bash", "dash") if shutil.which(name)])
def test_a_real_shell_runs_nothing_that_was_not_taken_apart(shell: str, tmp_path: Path) -> None:
    programs, log, empty = tmp_path / "bin", tmp_path / "log", tmp_path / "empty"
    programs.mkdir()
    empty.mkdir()
    for name in ("a", "b", "rm", "ab", "rma"):
        (programs / name).write_text(RECORDER)
        (programs / name).chmod(0o755)
    found = scripts_of_plain_commands(200)
    assert any("'" in script for script in found)
    runs = 0
    for script in found:
        log.write_bytes(b"")
        environ = {"PATH": str(programs), "LOG": str(log), "LC_ALL": "C.UTF-8"}
        started = [shutil.which(shell) or shell, "-c", script]
        subprocess.run(started, cwd=empty, env=environ, capture_output=True, timeout=60, check=False)
        ran = [entry.split("\0") for entry in log.read_bytes().decode().split("\0\n\0") if entry]
        listed = simple_commands(script) or []
        assert all(argv in listed for argv in ran), script
        assert os.listdir(empty) == []
        runs += len(ran)
    assert runs > 100


def scripts_of_plain_commands(count: int) -> list[str]:
    """Random scripts, always the same ones, without tildes, because their meaning is not in the text."""
    chance, found = random.Random(7), list[str]()

    def command() -> str:
        words = "".join(chance.choices(PIECES, k=chance.randint(1, 5)))
        return chance.choice(("a ", "b ", "rm ", "")) + words + chance.choice((";", "\n", " && ", " || ", "|", ""))

    while len(found) < count:
        script = "".join(command() for _ in range(chance.randint(1, 3)))
        if any(letter in script for letter in "'\"\\#;|&\n*=!") and simple_commands(script):
            found.append(script)
    return found


# --- what is permitted --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("allow", "action", "expected"),
    [
        (["git *"], run("git", "push"), "allow"),
        (["git *"], run("git"), "ask"),
        (["git status"], run("git", "status"), "allow"),
        (["git status"], run("git", "status", "-s"), "ask"),
        (["git *"], run("GIT", "push"), "ask"),
        (["git *"], run("./git", "push"), "ask"),
        (["git *"], run("/tmp/git", "push"), "ask"),
        (["*git *"], run("/tmp/git", "push"), "ask"),
        (["* /etc/x"], run("/tmp/evil", "/etc/x"), "ask"),
        (["/usr/bin/git *"], run("/usr/bin/git", "push"), "allow"),
        (["./build.sh*"], run("./build.sh", "x"), "allow"),
        (["git *"], run("env", "git", "push"), "ask"),
        (["git *"], run("sudo", "git", "push"), "ask"),
        (["env git *"], run("env", "git", "push"), "allow"),
        (["echo *"], run("echo", "a; rm -rf x"), "allow"),
        (["echo *"], run("echo", "$(rm x)"), "allow"),
        (["git *"], bash("git push"), "allow"),
        (["git *", "ls"], bash("git push && ls"), "allow"),
        (["git *"], bash("git push && ls"), "ask"),
        (["git *"], bash("git push; rm x"), "ask"),
        (["git *"], bash("git push\nrm x"), "ask"),
        (["git *"], bash("git push | rm x"), "ask"),
        (["git *"], bash("git log > /etc/x"), "ask"),
        (["git *"], bash("git $(rm x)"), "ask"),
        (["git *"], bash("git `rm x`"), "ask"),
        (["git *"], bash("git push &"), "ask"),
        (["git *"], bash("GIT_SSH=x git push"), "ask"),
        (["git *"], bash("(git push)"), "ask"),
        (["git *"], bash(""), "ask"),
        (["git *"], bash("./git push"), "ask"),
        (["echo *"], bash("echo 'a; rm x'"), "allow"),
        (["bash *"], bash("rm x"), "ask"),
        (["bash -c *"], bash("rm x"), "ask"),
        (["bash -c 'rm *"], bash("rm x"), "ask"),
        (["bash -c 'rm $X'"], bash("rm $X"), "allow"),
        (["bash -c 'ls *'"], bash("ls *"), "ask"),
        (["git *"], run("sh", "-c", "git push"), "allow"),
        (["git *"], run("/bin/bash", "-c", "git push"), "allow"),
        (["git *"], run("./bash", "-c", "git push"), "ask"),
        (["git *"], run("zsh", "-c", "git push"), "ask"),
        (["git *"], run("bash", "-lc", "git push"), "ask"),
        (["git *"], run("bash", "-c", "git push", "x"), "ask"),
        (["git *"], bash("bash -c 'git push'"), "allow"),
        (["git *"], bash("bash -c 'git push; rm x'"), "ask"),
        (["eval *"], run("eval", "rm x"), "ask"),
        (["sudo *"], run("sudo", "rm", "x"), "allow"),
        (["sudo *"], run("sudo", "bash", "-c", "rm x"), "ask"),
        (["timeout *", "git *"], bash("timeout 5 git push"), "allow"),
        (["*"], bash("rm -rf $HOME > x"), "allow"),
        (["*"], run("/usr/bin/anything"), "allow"),
        (["git *"], Action("command", "git 'unfinished"), "ask"),
    ],
)
def test_a_command_is_permitted_as_it_is_typed(allow: list[str], action: Action, expected: Decision) -> None:
    assert ruled(action, {"commands": {"allow": allow}}) == expected


def test_a_script_is_permitted_by_one_layer_as_a_whole() -> None:
    halves = [{"commands": {"allow": ["git *"]}}, {"commands": {"allow": ["ls"]}}]
    assert ruled(bash("git push && ls"), *halves) == "ask"
    ruling = decide(bash("git push && ls"), [policy({"commands": {"allow": ["ls", "x", "git *"]}})])
    assert [reason.rule for reason in ruling.deciding] == ["commands.allow 'ls'", "commands.allow 'git *'"]


def test_an_override_and_a_rule_may_share_a_script() -> None:
    mine = policy({"commands": {"allow": ["echo *"], "deny": ["rm *"]}})
    standing = [override("npm test*", "command"), override("rm x", "command")]
    assert decide(bash("echo src && npm test"), [mine], standing).decision == "allow"
    assert decide(bash("echo src && npm test && ls"), [mine], standing).decision == "ask"
    assert decide(bash("echo src && npm test > x"), [mine], standing).decision == "ask"
    assert decide(bash("npm test; rm x"), [mine], standing).decision == "deny"
    assert decide(run("npm", "test", "-w"), [mine], standing).decision == "allow"
    assert decide(run("./npm", "test"), [mine], standing).decision == "ask"


# --- folders ------------------------------------------------------------------------------------------


def placed(folder: str, *argv: str) -> Action:
    return Action("command", placed_in(folder, shlex.join(argv)))


@pytest.mark.parametrize(
    ("allow", "action", "expected"),
    [
        # A rule for the workspace applies only there.
        (["git status"], placed("", "git", "status"), "allow"),
        (["git status"], placed(".", "git", "status"), "allow"),
        (["git status"], placed("assets/x.git", "git", "status"), "ask"),
        (["git *"], placed("x", "git", "status"), "ask"),
        (["git status", "cd *"], placed("x", "git", "status"), "ask"),
        (["make"], placed("x", "make"), "ask"),
        (["./build.sh"], placed("x", "./build.sh"), "ask"),
        (["cat *"], placed("x", "cat", "file"), "ask"),
        (["*"], placed("x", "git", "status"), "allow"),
        # A rule may name the folder.
        (["cd x && git status"], placed("x", "git", "status"), "allow"),
        (["cd x && git *"], placed("x", "git", "log"), "allow"),
        (["cd x && *"], placed("x", "make"), "allow"),
        (["cd 'a b' && make"], placed("a b", "make"), "allow"),
        (["cd packages/* && npm test"], placed("packages/one", "npm", "test"), "allow"),
        (["cd packages/* && npm test"], placed("other/one", "npm", "test"), "ask"),
        (["cd x && git status"], placed("y", "git", "status"), "ask"),
        (["cd x && git status"], run("git", "status"), "ask"),
        (["cd x && git *"], placed("x", "./git", "status"), "ask"),
        (["cd * && git log *"], placed("x", "evil", "a && git log x"), "ask"),
        (["cd * && git status"], placed("x && git status", "evil"), "ask"),
        (["cd * && git status"], placed("../other", "git", "status"), "ask"),
        (["cd * && git status"], placed("/other", "git", "status"), "ask"),
        (["cd x && git status"], placed("x", "env", "GIT_DIR=y", "git", "status"), "ask"),
        # Programs that only read are the same everywhere.
        (["cd *", "cat *"], placed("x", "cat", "file"), "allow"),
        (["cd x", "ls"], placed("x", "ls"), "allow"),
        (["cd x", "ls"], placed("y", "ls"), "ask"),
        # In a script, what follows `cd DIR &&` is in that folder.
        (["cd *", "git status"], bash("cd x && git status"), "ask"),
        (["cd x && git status"], bash("cd x && git status"), "allow"),
        (["cd x && git status", "ls"], bash("ls; cd x && git status"), "allow"),
        (["cd x/y && git status"], bash("cd x && cd y && git status"), "allow"),
        (["cd x && git status", "cd x && git log"], bash("cd x && git status && git log"), "allow"),
        (["cd x && git status", "cd x && wc"], bash("cd x && git status | wc"), "allow"),
        (["cd *", "ls", "wc"], bash("cd x && ls | wc"), "allow"),
        (["cd x"], bash("cd x"), "allow"),
        (["cd x && git status", "git status"], bash("cd x; git status"), "ask"),
        (["cd x && git status", "git status"], bash("cd x || git status"), "ask"),
        (["cd x && git status", "git status"], bash("cd x | git status"), "ask"),
        (["cd x && git status", "git status"], bash("cd x && git status; git status"), "ask"),
        (["cd x && git status", "git status", "ls"], bash("ls || cd x && git status"), "ask"),
        (["cd x && git status", "git status", "ls"], bash("ls | cd x && git status"), "ask"),
        (["cd *", "cd * && git status", "git status"], bash("cd -P x && git status"), "ask"),
        (["cd *", "cd * && git status", "git status"], bash("cd - && git status"), "ask"),
        (["cd", "cd * && git status", "git status"], bash("cd && git status"), "ask"),
        (["cd *", "cd * && git status", "git status"], bash("cd x* && git status"), "ask"),
        (["cd *", "cd * && git status", "git status"], bash("cd ~/x && git status"), "ask"),
        (["cd *", "cd * && git status", "git status"], bash("cd x/../y && git status"), "ask"),
        (["pushd *", "git status"], bash("pushd x && git status"), "ask"),
        (["builtin *", "git status"], bash("builtin cd x && git status"), "ask"),
        (["export *", "git status"], bash("export GIT_DIR=x && git status"), "ask"),
        (["export *", "git status"], bash("git status && export GIT_DIR=x"), "allow"),
        ([". *", "git status"], bash(". ./x && git status"), "ask"),
        (["cd x && git status"], placed("x", "bash", "-c", "git status"), "allow"),
        (["git status"], placed("x", "bash", "-c", "git status"), "ask"),
        (["cd x/y && git status"], placed("x", "bash", "-c", "cd y && git status"), "allow"),
        # Options choose folders as well, and a wildcard does not cover them.
        (["git *"], run("git", "-C", "x", "status"), "ask"),
        (["git *"], run("git", "--no-pager", "-C", "x", "status"), "ask"),
        (["git *"], run("git", "--git-dir=x", "status"), "ask"),
        (["git *"], run("git", "--git-d", "x", "status"), "ask"),
        (["git *"], run("git", "log", "-C"), "allow"),
        (["git -C x *"], run("git", "-C", "x", "status"), "allow"),
        (["git -C x *"], run("git", "-C", "x", "-C", "y", "status"), "ask"),
        (["git -C *"], run("git", "-C", "x", "status"), "ask"),
        (["make *"], run("make", "test"), "allow"),
        (["make *"], run("make", "test", "-C", "x"), "ask"),
        (["make *"], run("make", "-sCx"), "ask"),
        (["make *"], run("make", "--dir=x"), "ask"),
        (["make *"], run("make", "-f", "other.mk"), "ask"),
        (["make -C x *"], run("make", "-C", "x", "test"), "allow"),
        (["make -C x"], run("make", "-C", "x"), "allow"),
        (["npm test*"], run("npm", "test", "--prefix", "x"), "ask"),
        (["npm test --prefix x*"], run("npm", "test", "--prefix", "x"), "allow"),
        (["npm test --prefix x*"], run("npm", "test", "--prefix", "xy"), "ask"),
        (["cargo test *"], run("cargo", "test", "--manifest-path=x/Cargo.toml"), "ask"),
        (["pytest *"], run("pytest", "--rootdir", "x"), "ask"),
        (["pytest *"], run("pytest", "-q", "-x"), "allow"),
        (["terraform *"], run("terraform", "-chdir=x", "plan"), "ask"),
        (["git *"], run("git", "--attr-source", "HEAD", "-C", "x", "status"), "ask"),
        (["git *"], run("git", "-c", "core.fsmonitor=./x", "status"), "ask"),
        (["git *"], run("git", "--exec-path=x", "status"), "ask"),
        (["git -c color.ui=never *"], run("git", "-c", "color.ui=never", "log"), "allow"),
        (["git -c color.ui=never *"], run("git", "-c", "color.ui=never", "-C", "x", "log"), "ask"),
        # The same applies if another program starts the one with these options.
        (["nice git *"], run("nice", "git", "log"), "allow"),
        (["nice git *"], run("nice", "git", "-C", "x", "log"), "ask"),
        (["timeout 60 git *"], run("timeout", "60", "git", "--git-dir=x", "log"), "ask"),
        (["timeout 60 git -C x *"], run("timeout", "60", "git", "-C", "x", "log"), "allow"),
        (["nice -n *"], run("nice", "-n", "5", "timeout", "9", "make", "-C", "x"), "ask"),
        (["nice -n *"], run("nice", "-n", "5", "timeout", "9", "make", "test"), "allow"),
        (["env *"], run("env", "LANG=C", "git", "-C", "x", "log"), "ask"),
        (["env *"], run("env", "-C", "x", "git", "status"), "ask"),
        (["env *"], run("env", "-u", "LANG", "--chdir=x", "git", "status"), "ask"),
        (["env *"], run("env", "LANG=C", "ls", "-C"), "allow"),
    ],
)
def test_an_allow_rule_counts_in_the_folder_it_was_written_for(
    allow: list[str], action: Action, expected: Decision
) -> None:
    assert ruled(action, {"commands": {"allow": allow}}) == expected


@pytest.mark.parametrize(
    "action",
    [
        placed("x", "rm", "y"),
        placed("x", "/bin/rm", "y"),
        placed("x", "env", "A=1", "rm", "y"),
        placed("x", "bash", "-c", "rm y"),
        bash("cd x && rm y"),
    ],
)
@pytest.mark.parametrize("deny", ["rm *", "cd x*", "*rm y*"])
def test_a_deny_rule_counts_in_every_folder(action: Action, deny: str) -> None:
    assert ruled(action, {"commands": {"allow": ["*"], "deny": [deny]}}) == "deny"


def test_an_override_names_its_folder() -> None:
    action = placed("x", "npm", "test", "-w")
    assert suggested(action) == ("cd x && npm test -w", "cd x && npm test*")
    assert suggested(bash("cd x && npm test -w")) == suggested(action)
    mine = policy({})
    for pattern in suggested(action):
        assert not problem_with("command", pattern)
        assert decide(action, [mine], [override(pattern, "command")]).decision == "allow"
        assert decide(run("npm", "test", "-w"), [mine], [override(pattern, "command")]).decision == "ask"
    for pattern in ("cd x && *", "cd x && bash *", "cd x && npm -*", "cd x && npm*", "cd *"):
        assert problem_with("command", pattern), pattern


# --- what is caught -----------------------------------------------------------------------------------

CAUGHT = [
    run("rm", "x"),
    run("/bin/rm", "x"),
    run("./rm", "x"),
    run("env", "rm", "x"),
    run("env", "-i", "FOO=1", "rm", "x"),
    run("env", "-", "rm", "x"),
    run("env", "-u", "HOME", "/bin/rm", "x"),
    run("env", "-S", "rm x"),
    run("env", "--split-string=rm x"),
    run("nice", "-n", "5", "rm", "x"),
    run("nice", "-10", "rm", "x"),
    run("nohup", "rm", "x"),
    run("timeout", "5", "rm", "x"),
    run("timeout", "-s", "KILL", "5", "rm", "x"),
    run("timeout", "--kill-after=1", "5", "rm", "x"),
    run("time", "-p", "rm", "x"),
    run("stdbuf", "-oL", "-e", "0", "rm", "x"),
    run("setsid", "-w", "rm", "x"),
    run("sudo", "rm", "x"),
    run("sudo", "-u", "root", "-n", "--", "rm", "x"),
    run("sudo", "FOO=1", "rm", "x"),
    run("doas", "rm", "x"),
    run("xargs", "rm", "x"),
    run("xargs", "-0", "-n1", "-I", "{}", "rm", "{}"),
    run("busybox", "rm", "x"),
    run("command", "rm", "x"),
    run("exec", "-a", "name", "rm", "x"),
    run("sudo", "env", "nice", "timeout", "5", "rm", "x"),
    run("find", ".", "-exec", "rm", "{}", ";"),
    run("find", ".", "-name", "x", "-execdir", "rm", "-f", "{}", "+"),
    run("watch", "-n1", "rm x"),
    run("eval", "rm x"),
    run("eval", "rm", "x"),
    run("su", "root", "-c", "rm x"),
    run("flock", "lock", "rm", "x"),
    run("flock", "lock", "-c", "rm x"),
    bash("rm -rf x"),
    run("/bin/bash", "-c", "rm x"),
    run("sh", "-lc", "rm x"),
    run("zsh", "-c", "rm x"),
    run("dash", "-ec", "rm x"),
    run("bash", "-x", "-c", "rm x"),
    run("bash", "-c", "-e", "rm x"),
    run("bash", "-o", "pipefail", "-c", "rm x"),
    run("bash", "--norc", "-c", "rm x", "name", "argument"),
    run("sudo", "bash", "-c", "rm x"),
    bash("bash -c 'rm x'"),
    bash("sudo sh -c 'env rm x'"),
    bash("echo a; rm x"),
    bash("echo a && rm x"),
    bash("false || rm x"),
    bash("echo a | xargs rm x"),
    bash("echo a\nrm x"),
    bash("echo a & rm x"),
    bash("(rm x)"),
    bash("{ rm x; }"),
    bash("! rm x"),
    bash("if true; then rm x; fi"),
    bash("if rm x; then true; fi"),
    bash("while true; do rm x; done"),
    bash("for f in a b; do rm $f; done"),
    bash("case a in a) rm x;; esac"),
    bash("f() { rm x; }; f"),
    bash("FOO=1 rm x"),
    bash("echo $(rm x)"),
    bash('echo "a $(rm x) b"'),
    bash("echo `rm x`"),
    bash("echo ${A:-$(rm x)}"),
    bash("echo $(echo $(rm x))"),
    bash("diff <(rm x) y"),
    bash("rm x > /dev/null 2>&1"),
    bash("> out rm x"),
    bash("2>&1 rm x"),
    bash("r'm' x"),
    bash("r\\m x"),
    bash('"rm" x'),
    bash("$'rm' x"),
    bash("$'\\x72\\155' x"),
    bash("rm \\\n x"),
    bash("/bin/rm x"),
    bash("bash <<EOF\nrm x\nEOF"),
    bash("sh <<-'EOF'\n\trm x\n\tEOF"),
    bash("bash <<< 'rm x'"),
    bash("cat <<EOF\n$(rm x)\nEOF"),
    bash("cat <<EOF && rm x\nEOF\n"),
    bash("trap 'rm x' EXIT"),
    bash("time rm x"),
    bash("eval 'rm x'"),
    bash("# a comment\nrm x"),
    bash("'unfinished; rm x\n' ; rm x"),
]


@pytest.mark.parametrize("action", CAUGHT, ids=lambda action: action.target)
def test_a_restriction_finds_the_command_within(action: Action) -> None:
    everything = {"commands": {"allow": ["*"], "default": "allow", "deny": ["rm *"]}}
    assert ruled(action, everything) == "deny"
    assert ruled(action, {"commands": {"default": "allow", "ask": ["rm *"]}}) == "ask"


NOT_CAUGHT = [
    run("echo", "rm x"),
    run("rmdir", "x"),
    run("grep", "-r", "rm x"),
    run("git", "rm", "x"),
    run("env", "echo", "rm x"),
    bash("echo 'rm x'"),
    bash('echo "; rm x"'),
    bash("echo rm x"),
    bash("# rm x"),
    bash("echo a # ; rm x"),
    bash("cat <<EOF\nrm x\nEOF"),
    bash("cat <<'EOF'\n$(rm x)\nEOF\necho done"),
    bash("echo a > rm"),
    bash("echo \\; rm x"),
    bash("for rm in a b; do echo; done"),
    bash("echo '$(rm x)'"),
]


@pytest.mark.parametrize("action", NOT_CAUGHT, ids=lambda action: action.target)
def test_a_restriction_leaves_words_alone(action: Action) -> None:
    assert ruled(action, {"commands": {"default": "allow", "deny": ["rm *"]}}) == "allow"


def test_a_restriction_may_be_written_as_the_words_stand_without_their_quotes() -> None:
    for denied in ("rm -rf $HOME", "rm -rf '$HOME'"):
        assert ruled(bash("rm -rf $HOME"), {"commands": {"deny": [denied]}}) == "deny"


def test_a_command_that_nests_too_much_is_at_least_asked_about() -> None:
    deep = "ls"
    for _ in range(20):
        deep = f"sudo {deep}"
    wide = "; ".join(f"a{number}" for number in range(1000))
    substituted = "echo " + "$(echo " * 30 + "x" + ")" * 30
    for target in (deep, shlex.join(["bash", "-c", wide]), shlex.join(["bash", "-c", substituted])):
        assert ruled(Action("command", target), {"commands": {"default": "allow"}}) == "ask"
        assert ruled(Action("command", target), {"commands": {"deny": ["*"]}}) == "deny"
        assert decide(Action("command", target), [], [override(target, "command")]).decision == "ask"
    shallow = shlex.join(["bash", "-c", "; ".join(f"a{number}" for number in range(100))])
    assert ruled(Action("command", shallow), {"commands": {"default": "allow"}}) == "allow"


@pytest.mark.parametrize(
    "script",
    [
        "$(" * 12_501,
        "`" * 12_501,
        "${" * 12_501,
        "'" * 12_501,
        '"' * 12_501,
        "(" * 25_001,
        "a " * 12_501,
        "a;" * 12_501,
        "<<a " * 5_001,
        '"$(' * 7_501,
        "\\" * 25_001,
        "$(a)" * 5_001,
        "<(" * 12_501,
        "sudo " * 5_001,
        "env -a " * 3_751,
        "bash -c " * 3_001,
        "find -exec " * 2_501,
        "env -S " * 3_751,
    ],
    ids=lambda script: script[:8],
)
def test_no_script_takes_long_to_read(script: str) -> None:
    simple_commands(script)
    assert ruled(bash(script), {"commands": {"deny": ["rm *"], "default": "allow"}}) in ("allow", "ask")
    assert decide(Action("command", script), [policy({})]).decision == "ask"
