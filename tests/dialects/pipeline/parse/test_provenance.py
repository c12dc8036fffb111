"""Commands that depend on outside text: found when the pipeline is parsed, and shown to a person."""

from __future__ import annotations

from pathlib import Path

import pytest

from cuebook.gate.policy import Layer, Policy, bundle_from
from tests.dialects.pipeline.harness import ANYTHING, PipelineHarness, cli
from tests.dialects.pipeline.samples import pipeline as written

SERVED = """
name: Served
steps:
  - {id: page, command: http http://127.0.0.1/page}
  - {id: plain, command: cli echo hello}
  - {id: named, command: 'cli echo "${page.stdout}"'}
  - {id: fed, command: cli cat, stdin: $page.stdout}
  - {id: script, command: cli bash, stdin: $page.stdout}
  - {id: carried, command: 'cli echo "${fed.stdout}"'}
  - {id: own, command: 'cli echo "${plain.stdout}"'}
  - {id: status, command: 'cli echo "${page.status}"'}
  - {id: set, command: cli env, env: {PAGE: $page.stdout}}
"""


def test_text_from_a_server_is_traced_through_the_steps() -> None:
    found = {step.id for step in written(SERVED).steps if step.from_outside}
    assert found == {"named", "script", "carried", "set"}


@pytest.mark.parametrize(
    ("step", "obeys"),
    [
        ("command: cli /usr/bin/python3 -", True),
        ("command: cli xargs rm", True),
        ("command: cli env sh", True),
        ("command: cli timeout 5 sh", True),
        ("command: cli nice -n 5 /bin/bash -s", True),
        ("command: cli busybox ash", True),
        ("command: cli python3.11 -", True),
        ("command: cli sqlite3 my.db", True),
        ("command: 'cli bash${plain.status}'", True),
        ("command: 'cli nice ${plain.status}'", True),
        ("command: cli docker exec -i c sh", True),
        ("command: cli docker run -i python:3.11", True),
        ("command: cli kubectl exec -i p -- sh", True),
        ("command: cli su -c sh", True),
        ("command: cli runuser -c 'sh -s'", True),
        ("command: cli fakeroot sh", True),
        ("command: cli poetry run python -", True),
        ("command: cli uv run -", True),
        ("command: cli rbash", True),
        ("command: cli R --no-save", True),
        ("command: cli irb", True),
        ("command: cli expect -", True),
        ("command: cli ex -s", True),
        ("command: cli find . -exec sh ;", True),
        ("command: cli timeout 5 sort", False),
        ("command: cli git commit -F -", False),
        ("command: cli grep at", False),
        ("command: cli tee node", False),
        ("command: 'cli grep ${plain.status}'", False),
        ("command: cli sha256sum -", False),
        ("command: 'cli ${plain.stdout}'", True),
        ("command: cli sort", False),
        ("command: cli /usr/bin/sort", False),
        ("command: cli python3 to_csv.py", False),
        ("command: cli /usr/bin/python3.11 -u -X utf8 -W error to_csv.py --all", False),
        ("command: 'cli python3 to_csv.py ${plain.status}'", False),
        ("command: cli python3 -c 'import sys; print(len(sys.stdin.read()))'", False),
        ("command: cli python3", True),
        ("command: cli python3 -u -", True),
        ("command: cli python3 -i to_csv.py", True),
        ("command: cli python3 -m code", True),
        ("command: cli python3 -- -", True),
        ("command: cli python3 /dev/stdin", True),
        ("command: cli python3 ../../../dev/fd/0", True),
        ("command: cli python3 /proc/self/fd/0", True),
        ("command: 'cli python3 ${plain.status}'", True),
        ("command: 'cli python3 to_${plain.status}.py'", True),
        ("command: cli python3 to_csv.py, env: {PYTHONINSPECT: 1}", True),
        ("command: cli python3 to_csv.py, env: {PYTHONPATH: src}", False),
        ("command: cli bash import.sh", False),
        ("command: cli bash -eu -o pipefail import.sh", False),
        ("command: cli bash -s import.sh", True),
        ("command: cli bash /dev/stdin", True),
        ("command: cli bash --rcfile x", True),
        ("command: cli sh -c 'cat | sh'", True),
        ("command: cli bash import.sh, env: {BASH_ENV: /dev/stdin}", True),
        ("command: cli node", True),
        ("command: cli node load.js", False),
        ("command: cli node --require ./x.js load.js", False),
        ("command: cli node inspect load.js", True),
        ("command: cli node -i load.js", True),
        ("command: cli perl", True),
        ("command: cli perl -w load.pl", False),
        ("command: \"cli perl -lane 'print $$F[0]'\"", False),
        ("command: cli perl -d load.pl", True),
        ("command: cli ruby -rjson load.rb", False),
        ("command: cli ruby -", True),
        ("command: cli php load.php", False),
        ("command: cli php -a", True),
        ("command: cli lua load.lua", False),
        ("command: cli lua -i load.lua", True),
        ("command: cli deno run --allow-read load.ts", False),
        ("command: cli deno run -", True),
        ("command: cli deno", True),
        ("command: cli bun load.ts", False),
        ("command: \"cli awk '{print $$1}'\"", False),
        ("command: \"cli awk -F ';' '{print $$1}'\"", False),
        ("command: cli awk -f sum.awk", False),
        ("command: cli awk -f -", True),
        ("command: cli awk -f /dev/stdin", True),
        ("command: cli timeout 5 python3 to_csv.py", False),
        ("command: cli timeout 5 python3", True),
        ("command: cli su -c 'python3 to_csv.py'", True),
        ("command: cli docker exec -i c python3 to_csv.py", False),
        ("command: cli docker run -i python:3.11 to_csv.py", True),
        ("command: cli docker run -i python sh", True),
        ("command: 'cli find . -exec sh {} ;'", True),
        ("command: cli psql -f load.sql", True),
        ("command: cli tclsh load.tcl", False),
        ("command: cli jshell load.jsh", True),
    ],
)
def test_commands_that_execute_their_input_are_recognised(step: str, obeys: bool) -> None:
    text = f"{SERVED}  - {{id: it, {step}, stdin: $page.stdout}}\n"
    assert written(text).steps[-1].from_outside is obeys


def test_the_error_message_of_a_server_counts_as_outside_text() -> None:
    text = f"{SERVED}  - {{id: it, command: 'cli echo \"${{page.errorMessage}}\"'}}\n"
    assert written(text).steps[-1].from_outside


def layers(*said: tuple[str, bool]) -> Policy:
    return Policy(tuple(Layer("user", "p.toml", bundle_from({"from_outside": one}), may) for one, may in said))


@pytest.mark.parametrize(
    ("policy", "asks"),
    [
        (Policy(), True),
        (layers(("allow", True)), False),
        (layers(("allow", False)), True),
        (layers(("allow", True), ("ask", False)), True),
        (layers(("allow", True), ("ask", True)), True),
    ],
)
def test_whether_a_policy_asks_about_outside_text(policy: Policy, asks: bool) -> None:
    assert policy.asks_from_outside is asks


@pytest.mark.parametrize("said", ["ask", "allow"])
async def test_an_allowed_command_with_outside_text_is_shown_first(tmp_path: Path, said: str) -> None:
    harness = PipelineHarness(tmp_path, {**ANYTHING, "from_outside": said})
    fed = next(step for step in written(SERVED).steps if step.id == "script")
    row = await harness.do(cli("page", "echo", "touch made"), fed)
    if said == "ask":
        assert row.status == "awaiting_approval"
        (wait,) = await harness.store.waits(run=row.id)
        assert wait.details["rules"] == ["it depends on the output of a model, a server or a tool"]
        assert not (harness.workspace / "made").exists()
        await harness.service.decide(wait.id, "approve")
        row = await harness.service.drive(row.id)
    assert row.status == "completed", row.error
    assert (harness.workspace / "made").exists()
    await harness.close()
