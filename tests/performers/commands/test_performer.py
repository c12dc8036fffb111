"""Commands run in their sandbox, talk through their streams, and end within their limits."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
import pytest

from cuebook.gate.sandbox import choose
from cuebook.kernel.effects import RunCommand, SecretUse
from cuebook.kernel.errors import CuebookError
from cuebook.kernel.outcomes import CommandResult, Failed
from cuebook.kernel.ports import Action, Confined, Confinement, Description, Limits, SandboxName
from cuebook.kernel.run import Settings
from cuebook.performers.commands import CommandPerformer, folders
from tests.gate.sandbox.sandboxes import SANDBOXES, none_left, token, until, with_word
from tests.performers.commands.harness import call, described, exists, failed, names, python, refused, result, shell

SECRET = "correct-horse-battery"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    (folder / "sub").mkdir(parents=True)
    return folder


@pytest.fixture(params=[*SANDBOXES, "none"])
def performer(request: pytest.FixtureRequest, workspace: Path) -> CommandPerformer:
    return CommandPerformer(choose(request.param), workspace)


@pytest.fixture
def confining(workspace: Path) -> CommandPerformer:
    return CommandPerformer(choose(), workspace)


# --- running ---


async def test_a_command_runs_in_the_workspace_and_says_what_it_ran_in(
    performer: CommandPerformer, workspace: Path
) -> None:
    outcome = await result(performer, shell("pwd; echo oops >&2; exit 3"))
    assert (outcome.exit_code, str(outcome.stdout), str(outcome.stderr)) == (3, f"{workspace}\n", "oops\n")
    assert outcome.sandbox == performer._sandbox.name
    assert outcome.signal == ""
    assert outcome.seconds > 0
    assert not outcome.truncated
    assert not outcome.stderr_truncated


async def test_a_command_runs_in_a_folder_below(performer: CommandPerformer, workspace: Path) -> None:
    assert str((await result(performer, shell("pwd", cwd="sub"))).stdout) == f"{workspace}/sub\n"


async def test_what_it_writes_is_there_afterwards(performer: CommandPerformer, workspace: Path) -> None:
    await result(performer, shell("echo made > made; mkdir -p a/b"))
    assert (workspace / "made").read_text() == "made\n"
    assert (workspace / "a/b").is_dir()


async def test_a_signal_is_named(performer: CommandPerformer) -> None:
    outcome = await result(performer, shell("kill -SEGV $$"))
    assert (outcome.exit_code, outcome.signal) == (-11, "SIGSEGV")


async def test_a_program_of_the_workspace_is_run_by_its_path(performer: CommandPerformer, workspace: Path) -> None:
    program = workspace / "sub" / "hello"
    program.write_text("#!/bin/sh\necho hello $1\n")
    program.chmod(0o755)
    assert str((await result(performer, RunCommand(("sub/hello", "you")))).stdout) == "hello you\n"
    assert str((await result(performer, RunCommand(("./hello", "me"), cwd="sub"))).stdout) == "hello me\n"


async def test_its_environment_is_a_short_list(
    performer: CommandPerformer, monkeypatch: pytest.MonkeyPatch, workspace: Path
) -> None:
    monkeypatch.setenv("CUEBOOK_TEST_CANARY", "canary")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary")
    outcome = await result(performer, RunCommand(("env",), env={"EXTRA": "1"}))
    names = {line.partition("=")[0] for line in str(outcome.stdout).splitlines()}
    ours = {"PATH", "HOME", "TMPDIR", "LANG", "TERM", "CUEBOOK_IDEMPOTENCY_KEY", "EXTRA"}
    assert ours <= names
    assert names <= ours | {"TZ", "PWD", "OLDPWD", "SHLVL", "_", "CUEBOOK_PROCESS", "GIT_CONFIG_NOSYSTEM"}
    assert "CUEBOOK_IDEMPOTENCY_KEY=run:1:2\n" in str(outcome.stdout)


async def test_named_variables_are_passed_on(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANTED", "yes")
    performer = CommandPerformer(choose(), workspace, pass_env=["WANTED", "MISSING"])
    assert str((await result(performer, shell("echo $WANTED$MISSING"))).stdout) == "yes\n"


@pytest.mark.parametrize(
    "script",
    [
        "echo x > $HOME/file",
        "mkdir -p $TMPDIR/deep/er; echo y > $TMPDIR/deep/er/file; chmod 000 $TMPDIR/deep",
        "chmod 777 $HOME",
        "rmdir $HOME 2>/dev/null; true",
    ],
)
async def test_what_a_command_leaves_in_its_home_is_gone_and_never_another_ones(
    performer: CommandPerformer, script: str
) -> None:
    outcome = await result(performer, shell(f"echo $HOME; echo $TMPDIR; {script}"))
    (folder,) = set(str(outcome.stdout).split())
    await until(lambda: not exists(folder) or script.startswith("rmdir"))
    later = await result(performer, shell("ls -A $HOME; stat -c %a $HOME"))
    assert str(later.stdout) == "700\n"


@pytest.mark.parametrize(
    "change",
    [
        "os.setxattr(home, 'user.left', b'x')",
        "os.utime(home, (1, 1))",
        "open(home + '/x', 'w'); os.remove(home + '/x')",
    ],
)
async def test_a_home_that_was_changed_in_any_way_is_not_used_again(performer: CommandPerformer, change: str) -> None:
    code = f"import os; home = os.environ['HOME']; print(home)\ntry: {change}\nexcept OSError: print('cannot')"
    outcome = await result(performer, python(code))
    home, *cannot = str(outcome.stdout).split()
    if not cannot:  # not every file system supports them
        await until(lambda: not exists(home))


ENDING = """
import asyncio, sys, tempfile
from pathlib import Path
from cuebook.gate.sandbox import choose
from cuebook.performers.commands import CommandPerformer
from tests.performers.commands.harness import result, shell

async def main(number):
    performer = CommandPerformer(choose(), Path(sys.argv[1]))
    await result(performer, shell("echo x > $HOME/x; mkdir $HOME/d"))
    await asyncio.sleep(number * 0.0005)  # it may end before, while or after things are tidied up

for number in range(16):
    asyncio.run(main(number))
"""


def test_a_program_that_ends_at_once_leaves_no_home_and_no_trouble(workspace: Path, tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", ENDING, str(workspace)],
        cwd=Path(__file__).parents[3],
        env={**os.environ, "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert list(temporary.iterdir()) == []


async def test_commands_at_the_same_time_have_homes_of_their_own(performer: CommandPerformer) -> None:
    script = "echo $HOME; echo x > $HOME/x; sleep 0.2; ls -A $HOME | wc -l"
    outcomes = await asyncio.gather(*(result(performer, shell(script)) for _ in range(3)))
    homes = {str(outcome.stdout).split()[0] for outcome in outcomes}
    assert len(homes) == 3
    assert all(str(outcome.stdout).split()[1] == "1" for outcome in outcomes)


async def test_an_untouched_home_is_used_again_and_removed_with_the_performer(workspace: Path) -> None:
    performer = CommandPerformer(choose(), workspace)
    homes = set()
    for _ in range(6):
        homes.add(str((await result(performer, shell("echo $HOME"))).stdout).strip())
        await asyncio.sleep(0.02)  # a used one is checked a few milliseconds later
    assert len(homes) == 1
    assert all(map(exists, homes))
    del performer
    gc.collect()
    await until(lambda: not any(map(exists, homes)))


async def test_what_only_reads_changes_nothing(confining: CommandPerformer, workspace: Path) -> None:
    (workspace / "file").write_text("as it was")
    script = "cat file; echo changed > file; touch new; rm file; echo scratch > $TMPDIR/x && cat $TMPDIR/x"
    outcome = await result(confining, shell(script, reads_only=True))
    assert str(outcome.stdout) == "as it wasscratch\n"
    assert names(workspace) == ["file", "sub"]
    assert (workspace / "file").read_text() == "as it was"


async def test_the_network_is_reached_only_where_it_is_allowed(workspace: Path) -> None:
    hits: list[object] = []

    def hit(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hits.append(writer)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    def allowed(host: str, port: int) -> bool:
        return True

    server = await asyncio.start_server(hit, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    place = f"127.0.0.1:{port}"
    effect = python(f"import urllib.request as it; print(it.urlopen('http://{place}/', timeout=5).status)")
    online = CommandPerformer(choose(private=allowed), workspace, private=allowed)
    async with server:
        assert (await result(online, effect)).exit_code != 0
        assert hits == []
        assert str((await result(online, msgspec.structs.replace(effect, network=(place,)))).stdout) == "200\n"
        assert hits


async def test_running_without_a_sandbox_is_noted(workspace: Path) -> None:
    warnings: list[str] = []
    await result(CommandPerformer(choose("none"), workspace), RunCommand(("true",)), call(warnings=warnings))
    assert warnings == ["unsandboxed"]
    warnings.clear()
    await result(CommandPerformer(choose(), workspace), RunCommand(("true",)), call(warnings=warnings))
    assert warnings == []


async def test_a_sandbox_that_refuses_is_an_outcome(workspace: Path) -> None:
    class Refusing:
        name: SandboxName = "landlock"
        problem = "There is no sandbox here."

        async def spawn(self, confinement: Confinement) -> Confined:
            raise CuebookError("There is no sandbox here.", fix="Install one.")

    outcome = await CommandPerformer(Refusing(), workspace).perform(RunCommand(("true",)), call())
    assert outcome == Failed("error", "There is no sandbox here.", "Install one.")
    described = await CommandPerformer(Refusing(), workspace).describe(RunCommand(("true",)), Settings())
    assert isinstance(described, Failed)
    assert described.code == "no_sandbox"


async def test_a_command_that_needs_the_network_says_so(performer: CommandPerformer) -> None:
    effect = RunCommand(("true",), network=("GitHub.com", "registry.npmjs.org:8443", "github.com:443"), reads_only=True)
    described = await performer.describe(effect, Settings())
    assert isinstance(described, Description)
    assert described.actions == (
        Action("command", "true"),
        Action("egress", "CONNECT https://github.com/"),
        Action("egress", "CONNECT https://registry.npmjs.org:8443/"),
        Action("tool", "network", reads_only=True),
    )
    only = "only github.com, registry.npmjs.org:8443"
    assert described.preview["network"] in (only, "yes: it runs without a sandbox")
    assert described.bound["network"] == ["github.com", "registry.npmjs.org:8443"]


@pytest.mark.parametrize(
    ("host", "code"),
    [
        ("*.example.com", "bad_host"),
        ("https://example.com", "bad_host"),
        ("example.com/path", "bad_host"),
        ("user@example.com", "bad_host"),
        ("0x7f.1", "bad_host"),
        ("", "bad_host"),
        ("127.0.0.1:8080", "refused_address"),
        ("metadata.internal", "refused_address"),
    ],
)
async def test_a_host_that_is_no_host_or_not_public_is_refused(
    performer: CommandPerformer, host: str, code: str
) -> None:
    effect = RunCommand(("true",), network=(host,))
    described = await performer.describe(effect, Settings())
    assert isinstance(described, Failed)
    assert described.code == code
    assert await performer.perform(effect, call()) == described


# --- streams ---


async def test_megabytes_on_both_streams_and_of_input_do_not_hang_it(performer: CommandPerformer) -> None:
    code = """
import sys, threading
def flood(stream, letter):
    for _ in range(300):
        stream.write(letter * 10_000)
threads = [threading.Thread(target=flood, args=it) for it in ((sys.stdout, "o"), (sys.stderr, "e"))]
for it in threads: it.start()
got = len(sys.stdin.buffer.read())
for it in threads: it.join()
sys.exit(7 if got == 5_000_000 else 1)
"""
    outcome = await result(performer, python(code, stdin="i" * 5_000_000), call(Limits(output=1000)))
    assert outcome.exit_code == 7
    assert (str(outcome.stdout), str(outcome.stderr)) == ("o" * 1000, "e" * 1000)
    assert outcome.truncated
    assert outcome.stderr_truncated


async def test_of_a_long_error_output_the_last_lines_are_kept_whole(performer: CommandPerformer) -> None:
    code = "import sys; sys.stderr.write('a line that says little\\n' * 5000 + 'why\\n'); sys.exit(1)"
    outcome = await result(performer, python(code), call(Limits(output=110)))
    assert str(outcome.stderr) == "a line that says little\n" * 4 + "why\n"
    assert outcome.stderr_truncated


async def test_one_that_never_reads_its_input_does_not_hang_it(performer: CommandPerformer) -> None:
    code = "import sys; sys.stdout.write('x' * 3_000_000)"
    outcome = await result(performer, python(code, stdin="i" * 3_000_000), call(Limits(output=10)))
    assert (outcome.exit_code, str(outcome.stdout)) == (0, "x" * 10)


async def test_a_command_that_closes_its_streams_keeps_running(performer: CommandPerformer) -> None:
    outcome = await result(performer, shell("exec <&- >&- 2>&-; sleep 0.2; exit 4", stdin="x" * 1_000_000))
    assert outcome.exit_code == 4


async def test_all_of_the_input_arrives(performer: CommandPerformer) -> None:
    text = "".join(f"line {number} é\n" for number in range(20_000))
    outcome = await result(performer, RunCommand(("cat",), stdin=text), call(Limits(output=1 << 20)))
    assert str(outcome.stdout) == text
    assert not outcome.truncated


async def test_output_is_cut_between_characters(performer: CommandPerformer) -> None:
    effect = python("import sys; sys.stdout.buffer.write('a' .encode() + 'é'.encode() * 100)")
    for most, letters in ((100, 49), (101, 50)):
        outcome = await result(performer, effect, call(Limits(output=most)))
        assert (str(outcome.stdout), outcome.truncated) == ("a" + "é" * letters, True)
    outcome = await result(performer, effect, call(Limits(output=201)))
    assert (str(outcome.stdout), outcome.truncated) == ("a" + "é" * 100, False)


async def test_output_that_is_not_text_is_marked(performer: CommandPerformer) -> None:
    outcome = await result(performer, python("import sys; sys.stdout.buffer.write(b'a\\xff\\xc3')"))
    assert (str(outcome.stdout), outcome.truncated) == ("a\ufffd\ufffd", False)


async def test_a_grandchild_that_keeps_the_output_open_does_not_hang_it(performer: CommandPerformer) -> None:
    word = token()
    code = f"""
import subprocess, sys
subprocess.Popen([sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)", "{word}"], start_new_session=True)
print("done", flush=True)
"""
    outcome = await result(performer, RunCommand((sys.executable, "-I", "-c", code)))
    assert (outcome.exit_code, str(outcome.stdout)) == (0, "done\n")
    assert await none_left(word, 2.0) == []


# --- limits ---


async def test_what_takes_too_long_is_ended_with_all_it_started(performer: CommandPerformer, workspace: Path) -> None:
    word = token()
    script = """
    trap '' TERM INT HUP
    (trap '' TERM; sleep 600; sleep 600) &
    setsid sh -c 'trap "" TERM; echo $$ > grandchild; sleep 600; sleep 600' "$1" &
    while [ ! -s grandchild ]; do sleep 0.01; done
    echo begun; echo trouble >&2
    sleep 600; sleep 600
    """
    outcome = await failed(performer, shell(script, word), Limits(seconds=2.5, grace=0.3))
    assert outcome.code == "timeout"
    assert outcome.details["stdout"] == "begun\n"
    # A shell that sees its child killed a moment before itself may say so.
    assert outcome.details["stderr"].removesuffix("Killed\n") == "trouble\n"
    assert (workspace / "grandchild").exists()
    assert await none_left(word) == []


async def test_what_takes_too_long_is_first_asked(performer: CommandPerformer, workspace: Path) -> None:
    script = "trap 'echo asked > asked; exit 0' TERM; while true; do sleep 0.02; done"
    outcome = await failed(performer, shell(script), Limits(seconds=1.5, grace=10.0))
    assert outcome.code == "timeout"
    assert (workspace / "asked").read_text() == "asked\n"


async def test_partial_output_of_a_timeout_is_capped(confining: CommandPerformer) -> None:
    code = "import sys, time\nsys.stdout.write('x' * 100_000); sys.stdout.flush(); time.sleep(600)"
    outcome = await failed(confining, python(code), Limits(seconds=2.5, grace=0.3, output=100))
    assert outcome.details["stdout"] == "x" * 100
    assert outcome.details["truncated"] is True


async def test_too_much_memory_is_an_outcome_of_its_own(performer: CommandPerformer) -> None:
    code = "import time\nheld = []\nwhile True: held.append(b'x' * (1 << 20)); time.sleep(0.002)"
    outcome = await failed(performer, python(code), Limits(memory=80 << 20))
    assert outcome.code == "memory_limit"
    assert "80 MiB" in outcome.message


@pytest.mark.parametrize("effect", [python("while True: pass"), shell("python3 -c 'while True: pass'; exit $?")])
async def test_too_much_cpu_time_has_its_own_outcome(confining: CommandPerformer, effect: RunCommand) -> None:
    outcome = await failed(confining, effect, Limits(cpu_seconds=1))
    assert outcome.code == "cpu_limit"
    assert "1 s of CPU time" in outcome.message
    assert "CUEBOOK_LIMITS_CPU_SECONDS" in outcome.fix


async def test_a_program_may_end_with_the_code_that_shells_have_for_that_limit(performer: CommandPerformer) -> None:
    assert (await result(performer, shell("exit 152"))).exit_code != 0


@pytest.mark.parametrize(("seconds", "key"), [(None, "`seconds`"), (0.3, "CUEBOOK_LIMITS_MAX_SECONDS")])
async def test_a_timeout_names_the_setting_that_gives_more_time(
    performer: CommandPerformer, seconds: float | None, key: str
) -> None:
    effect = msgspec.structs.replace(shell("sleep 60"), timeout=seconds)
    outcome = await failed(performer, effect, Limits(seconds=0.3, grace=0.2))
    assert outcome.code == "timeout"
    assert key in outcome.fix


async def test_too_many_processes_are_an_outcome_of_their_own(workspace: Path) -> None:
    code = "import os, time\nfor _ in range(6): os.fork()\ntime.sleep(60)"
    performer = CommandPerformer(choose("none"), workspace)
    assert (await failed(performer, python(code), Limits(processes=20))).code == "process_limit"


async def test_a_cancelled_command_is_gone_before_the_cancellation_arrives(
    performer: CommandPerformer, workspace: Path
) -> None:
    word = token()
    script = "trap '' TERM; (trap '' TERM; sleep 600; sleep 600) & touch ready; sleep 600; sleep 600"
    running = asyncio.ensure_future(performer.perform(shell(script, word), call(Limits(grace=0.2))))
    await until((workspace / "ready").exists)
    assert with_word(word)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await none_left(word, 1.0) == []


async def test_a_cancelled_command_is_first_asked(performer: CommandPerformer, workspace: Path) -> None:
    script = "trap 'echo asked > asked; exit 0' TERM; touch ready; while true; do sleep 0.02; done"
    running = asyncio.ensure_future(performer.perform(shell(script), call(Limits(grace=10.0))))
    await until((workspace / "ready").exists)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (workspace / "asked").read_text() == "asked\n"


async def test_an_impatient_second_cancellation_leaves_nothing_either(
    performer: CommandPerformer, workspace: Path
) -> None:
    word = token()
    script = "trap '' TERM; touch ready; sleep 600; sleep 600"
    running = asyncio.ensure_future(performer.perform(shell(script, word), call(Limits(grace=30.0))))
    await until((workspace / "ready").exists)
    running.cancel()
    await asyncio.sleep(0.05)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await none_left(word) == []


# --- secrets ---


async def test_a_secret_reaches_the_environment_and_no_argument_of_anybody(
    performer: CommandPerformer, workspace: Path
) -> None:
    effect = shell(
        'echo "got $TOKEN"; touch ready; while [ ! -e go ]; do sleep 0.02; done',
        secrets=(SecretUse("env.TOKEN", "env:DEPLOY_TOKEN"),),
    )
    running = asyncio.ensure_future(performer.perform(effect, call(secrets={"env.TOKEN": SECRET})))
    await until((workspace / "ready").exists)
    assert with_word(SECRET) == []
    (workspace / "go").touch()
    outcome = await running
    assert isinstance(outcome, CommandResult)
    assert str(outcome.stdout) == f"got {SECRET}\n"


async def test_a_secret_reaches_stdin(performer: CommandPerformer, workspace: Path) -> None:
    effect = shell(
        "read line; echo got $line; touch ready; while [ ! -e go ]; do sleep 0.02; done",
        secrets=(SecretUse("stdin", "keyring:db"),),
    )
    running = asyncio.ensure_future(performer.perform(effect, call(secrets={"stdin": f"{SECRET}\n"})))
    await until((workspace / "ready").exists)
    assert with_word(SECRET) == []
    (workspace / "go").touch()
    outcome = await running
    assert isinstance(outcome, CommandResult)
    assert str(outcome.stdout) == f"got {SECRET}\n"


@pytest.mark.parametrize(
    "at", ["argv", "argv.1", "arguments.x", "env", "env.", "env.A B", "env.A=B", "cwd", "stdin.x", ""]
)
async def test_a_secret_anywhere_else_is_refused(confining: CommandPerformer, at: str) -> None:
    effect = RunCommand(("true",), secrets=(SecretUse(at, "env:DEPLOY_TOKEN"),))
    assert (await refused(confining, effect)).code == "secret_misplaced"


async def test_a_secret_and_a_text_cannot_both_be_stdin(confining: CommandPerformer) -> None:
    effect = RunCommand(("true",), stdin="text", secrets=(SecretUse("stdin", "env:DEPLOY_TOKEN"),))
    assert (await refused(confining, effect)).code == "secret_misplaced"


async def test_secrets_are_described_by_their_handles(confining: CommandPerformer) -> None:
    effect = RunCommand(
        ("true",),
        secrets=(SecretUse("env.AUTH", "env:DEPLOY_TOKEN", form="Bearer {}"), SecretUse("stdin", "keyring:db")),
    )
    preview = (await described(confining, effect)).preview
    assert preview["environment"] == "AUTH=Bearer [secret env:DEPLOY_TOKEN]"
    assert preview["stdin"] == "[secret keyring:db]"


async def test_cleaning_up_after_a_command_follows_no_link(performer: CommandPerformer, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o750)
    script = f'mkdir "$HOME/l"; ln -s {outside} "$HOME/l/a"; chmod 000 "$HOME/l"'
    await result(performer, RunCommand(("sh", "-c", script)))
    assert outside.stat().st_mode & 0o777 == 0o750


async def test_variables_are_part_of_what_a_policy_decides_about(performer: CommandPerformer) -> None:
    described = await performer.describe(RunCommand(("git", "status"), env={"GIT_PAGER": "touch x"}), Settings())
    assert isinstance(described, Description)
    assert described.actions[0].target == "env 'GIT_PAGER=touch x' git status"


async def test_files_that_an_approval_is_bound_to_are_shown(performer: CommandPerformer, workspace: Path) -> None:
    (workspace / "deploy.sh").write_text("true")
    described = await performer.describe(RunCommand(("sh", "deploy.sh")), Settings())
    assert isinstance(described, Description)
    assert described.preview["files as they are now"].startswith("deploy.sh (")


async def test_a_variable_that_steers_loading_takes_no_secret(performer: CommandPerformer) -> None:
    effect = RunCommand(("true",), secrets=(SecretUse("env.LD_PRELOAD", "env:TOKEN"),))
    described = await performer.describe(effect, Settings())
    assert isinstance(described, Failed)
    assert described.code == "secret_misplaced"


# As a user who cannot enter locked folders, unlike root.
REMOVING = """
import os, sys, tempfile
from cuebook.performers.commands import folders as private
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
base = tempfile.mkdtemp(dir="/tmp")
outside, home = f"{base}/outside", f"{base}/home"
os.mkdir(outside, 0o500)
os.makedirs(f"{home}/l/deep/er")
os.symlink(outside, f"{home}/l/a")
os.symlink(outside, f"{home}/b")
os.chmod(f"{home}/l/deep", 0)
os.chmod(f"{home}/l", 0)
os.chmod(home, 0)
private.remove(home)
print(os.path.lexists(home), oct(os.stat(outside).st_mode & 0o777))
private.remove(base)
print(os.path.lexists(base))
"""


def test_a_locked_folder_is_removed_and_what_its_links_lead_to_is_left_alone() -> None:
    done = subprocess.run([sys.executable, "-c", REMOVING], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "0o500", "False"]


def test_no_folder_is_too_deep_to_be_removed() -> None:
    top = tempfile.mkdtemp()  # separate, because the cleanup after tests cannot remove one this deep
    try:
        here = os.open(top, os.O_RDONLY)
        for _ in range(2_100):  # more than the limits for nested calls, open files and the length of a path
            os.mkdir("d", dir_fd=here)
            below = os.open("d", os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = below
        os.close(here)
        folders.remove(top)
        assert not exists(top)
    finally:
        subprocess.run(["rm", "-rf", top], check=True)


MAKING = "import time; from cuebook.performers.commands import folders as private; print(private.make(), flush=True); time.sleep(600)"


def test_what_a_killed_one_left_is_removed_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    killed, living = (
        subprocess.Popen([sys.executable, "-c", MAKING], env=env, stdout=subprocess.PIPE, text=True) for _ in range(2)
    )
    try:
        assert killed.stdout is not None
        assert living.stdout is not None
        left, used = Path(killed.stdout.readline().strip()), Path(living.stdout.readline().strip())
        (left / "file").write_text("x")
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        outside = tmp_path / "outside"
        outside.mkdir()
        (outside / "file").write_text("x")
        link = left.with_name(f"{left.name}x")
        link.symlink_to(outside)
        others = [tmp_path / "cuebook-abc", tmp_path / f"cuebook-1.{killed.pid}-abc", tmp_path / "cuebook-x.1-abc"]
        for other in others:
            other.mkdir()
        folders.sweep()
        assert not exists(str(left))
        assert used.is_dir()
        assert all(other.is_dir() for other in others)
        assert link.is_symlink()
        assert (outside / "file").exists()
    finally:
        for process in (killed, living):
            process.kill()
            process.communicate()


@pytest.mark.parametrize("name", ["BASH_FUNC_ls%%", "a/b", "-S", "with space", "", "a=b"])
async def test_what_only_looks_like_a_variable_is_refused(confining: CommandPerformer, name: str) -> None:
    assert (await refused(confining, RunCommand(("true",), env={name: "x"}))).code == "bad_command"


async def test_cuebooks_own_folder_in_the_workspace_is_kept_from_commands(tmp_path: Path, workspace: Path) -> None:
    (workspace / "env").mkdir()
    performer = CommandPerformer(choose(), workspace, fixed=[workspace / "env"])
    outcome = await performer.perform(shell("echo owned > env/evil.pth; echo mine > file"), call())
    assert not (workspace / "env" / "evil.pth").exists()
    if choose().name == "bubblewrap":
        assert (workspace / "file").read_text() == "mine\n"
    else:
        assert isinstance(outcome, Failed)


async def test_invalid_bytes_are_replaced_with_a_warning(confining: CommandPerformer) -> None:
    outcome = await result(confining, shell(r"printf 'a\377b'; printf '\377' >&2"))
    assert (str(outcome.stdout), outcome.replaced) == ("a\ufffdb", True)
    assert not (await result(confining, shell(r"printf 'a\357\277\275b'; printf '\377' >&2"))).replaced
    cut = await result(confining, shell("printf 'aü'"), call(Limits(output=2)))
    assert (str(cut.stdout), cut.truncated, cut.replaced) == ("a", True, False)


# --- how much a program can be given ---


@pytest.mark.parametrize(
    ("effect", "says"),
    [
        (RunCommand(("true", "x" * 131_072)), "Argument 1 of the command has 131,072 bytes"),
        (RunCommand(("true", "ü" * 65_536)), "Argument 1 of the command has 131,072 bytes"),
        (RunCommand(("true",), env={"LONG": "x" * 131_067}), "The variable LONG has 131,072 bytes"),
        (RunCommand(("true", *["x" * 100_000] * 40)), "The arguments and variables of the command have 4,000,"),
    ],
)
async def test_arguments_that_are_too_long_are_refused_with_a_fix(
    performer: CommandPerformer, effect: RunCommand, says: str
) -> None:
    failure = await refused(performer, effect)
    assert failure.code == "too_long"
    assert failure.message.startswith(says)
    assert "stdin" in failure.fix


async def test_as_much_as_a_program_can_be_given_is_given(performer: CommandPerformer) -> None:
    effect = shell("echo ${#1} ${#LONG}", "x" * 131_071, *["y" * 100_000] * 10, env={"LONG": "x" * 131_066})
    assert str((await result(performer, effect)).stdout) == "131071 131066\n"


async def test_a_secret_that_is_too_long_for_a_variable_is_refused_and_not_quoted(confining: CommandPerformer) -> None:
    effect = RunCommand(("true",), secrets=(SecretUse("env.T", "env:T"),))
    outcome = await confining.perform(effect, call(secrets={"env.T": SECRET * 10_000}))
    assert isinstance(outcome, Failed)
    assert outcome.code == "too_long"
    assert SECRET not in str(outcome)
