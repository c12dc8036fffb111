"""`cuebook audit`: actions, approvals and results of a run, and an export that proves them elsewhere."""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import CommandLine, Ran, finished
from tests.support.model_server import ModelServer
from tests.surfaces.cli.commands.test_runtime import until

WRITE = """\
# Tea

## STEP 1: Choose

Choose a tea.

## STEP 2: Write

@tool(builtin, Write, {"path": "tea.txt", "content": "Sencha"})
"""
GRAPH = """\
id: two
name: Two
entry: a
nodes:
  a: {name: First, instruction: Begin.}
  b: {name: Second, instruction: Go on.}
edges:
  - {from: a, to: b}
"""


def audited(cli: CommandLine, run: str) -> dict[str, Any]:
    ran = cli.call("audit", run, "--json")
    assert (ran.code, ran.err) == (0, "")
    made: dict[str, Any] = ran.object
    return made


def exported(cli: CommandLine, run: str, name: str = "proof.json") -> Path:
    ran = cli.call("audit", run, "--export", name)
    assert (ran.code, ran.err) == (0, "")
    return cli.work / name


@pytest.fixture
def approved(cli: CommandLine) -> str:
    """A run whose second step was approved by a person."""
    cli.write("book.md", WRITE)
    run = cli.call("run", "book.md", "--json").object["run"]
    assert cli.call("decide", run, "approve", "--reason", "good tea").code == 0
    return str(run)


def test_a_step_shows_its_actions_approvals_and_results(cli: CommandLine, approved: str) -> None:
    evidence = audited(cli, approved)
    assert (evidence["status"], evidence["dialect"], evidence["owner"]) == ("completed", "markdown", "local")
    assert evidence["playbook"] == hashlib.sha256(WRITE.encode()).hexdigest()
    choose, write = evidence["steps"]
    asked = choose["acts"][0]
    assert (asked["kind"], asked["model"], asked["usage"]["input"]) == ("AskModel", "test/echo-1", 10)
    assert asked["outcome"]["reply"]["sha256"] == hashlib.sha256(b"Reply number 1.").hexdigest()
    assert choose["cost"]["calls"] == 1
    done, decision = write["acts"][-1], write["decisions"][0]
    assert done["action"] == {"tool": "Write", "arguments": {"path": "tea.txt", "content": "Sencha"}}
    assert (done["ruling"]["decision"], done["ruling"]["approved"]) == ("ask", decision["digest"])
    assert done["ruling"]["rules"] == decision["rules"]
    assert (decision["decision"], decision["by"], decision["reason"]) == ("approved", "local", "good tea")
    assert done["began"] <= done["ended"]
    assert "cost" not in write
    assert evidence["totals"]["calls"] == 1
    assert (evidence["chain"]["unbroken"], evidence["chain"]["purged"]) == (True, 0)
    assert evidence["chain"]["head"] == cli.call("verify", approved, "--json").object["head"]


def test_people_read_it_as_lines(cli: CommandLine, approved: str) -> None:
    words = cli.call("audit", approved).out
    assert "✓ 2  Write" in words
    assert "did:           call Write" in words
    assert "decided:       approved by local, after" in words
    assert ": good tea" in words
    assert "unbroken" in words
    assert "broken: " not in words
    assert cli.call("verify", approved, "--json").object["head"] in words


VOTED = """\
name: Announce
steps:
  - id: draft
    command: cli echo hello
    effect: read
  - id: publish
    command: cli touch announced
    approval: {votes: 2, by: [ada, bob], changes: draft}
"""


def test_every_vote_is_named_where_a_decision_is_shown(cli: CommandLine) -> None:
    cli.write("announce.yml", VOTED)
    for name in ("ada", "bob"):
        assert cli.call("users", "add", name, "--role", "approver").code == 0
    run = cli.call("run", "announce.yml", "--json").object["run"]
    assert cli.call("decide", run, "changes", "--reason", "Shorter", "--as", "bob").code == 3
    open_still = cli.call("decide", run, "approve", "--reason", "Looks right", "--as", "ada")
    assert (open_still.code, "votes: 1 of 2 approved: ada" in open_still.err) == (3, True)
    assert "who decides: 2 of: ada, bob" in open_still.err
    assert cli.call("decide", run, "approve", "--as", "bob").code == 0
    decided = audited(cli, run)["steps"][-1]["decisions"][0]
    assert [(one["by"], one.get("reason", "")) for one in decided["votes"]] == [("ada", "Looks right"), ("bob", "")]
    words = cli.call("audit", run).out
    assert "vote:          approve by ada" in words
    assert ": Looks right" in words
    shown = cli.call("show", run).out
    assert "approved by ada and bob" in shown
    assert "changes requested by bob: Shorter" in shown


def test_what_a_retry_supersedes_is_still_shown(cli: CommandLine, server: ModelServer) -> None:
    server.replies = [400]
    run = cli.call("run", "tea.md", "--json").object["run"]
    assert cli.call("retry", run).code == 0
    evidence = audited(cli, run)
    first = evidence["steps"][0]["acts"]
    assert [act.get("voided", False) for act in first] == [True, False]
    assert "failed" in first[0]["outcome"]
    assert evidence["interventions"][0]["what"] == "retry"
    assert evidence["status"] == "completed"
    assert "error" not in evidence
    printed = cli.call("audit", run).out
    assert "(superseded by a retry)" in printed
    assert re.search(r"  retry by local, from record \d+\n", printed)


def test_a_fork_shows_its_parents_part_and_what_was_changed(cli: CommandLine) -> None:
    run = cli.call("run", "tea.md", "--json").object["run"]
    fork = cli.call("fork", run, "2", "--set", "kind=white", "--json").object["run"]
    evidence = audited(cli, fork)
    assert (evidence["run"], evidence["parent"]) == (fork, run)
    assert [step["step"] for step in evidence["steps"]] == ["1", "2", "3"]
    assert evidence["interventions"][0]["details"] == {"values": {"kind": "white"}}
    assert ", with kind = white\n" in cli.call("audit", fork).out
    ran = cli.call("audit", "--file", exported(cli, fork), "--json")
    assert (ran.code, ran.object) == (0, evidence)


def test_a_run_that_waits_says_what_is_not_decided_yet(cli: CommandLine) -> None:
    cli.write("book.md", WRITE)
    run = cli.call("run", "book.md", "--json").object["run"]
    decision = audited(cli, run)["steps"][1]["decisions"][0]
    assert "decision" not in decision
    assert "Sencha" in json.dumps(decision["preview"])
    assert audited(cli, run)["steps"][1]["status"] == "awaiting_approval"
    assert "decided:       not yet" in cli.call("audit", run).out


def test_what_was_denied_is_not_said_to_have_been_done(cli: CommandLine) -> None:
    cli.write("x.yml", "name: X\nsteps:\n  - {id: a, command: cli touch it}\n")
    run = cli.call("run", "x.yml", "--json").object["run"]
    cli.call("decide", run, "deny")
    printed = cli.call("audit", run).out
    assert "  requested:     run touch\n" in printed
    assert "did:" not in printed
    assert "awaiting" not in printed


@pytest.mark.parametrize(
    ("policy", "ruling"),
    [
        ("", {"decision": "allow", "rules": ["a model is allowed (default)"]}),
        ('[models]\nallow = ["test/*"]\n', {"decision": "allow", "rules": ["models.allow 'test/*' (POLICY:2)"]}),
    ],
)
def test_a_model_call_shows_what_allowed_it(cli: CommandLine, policy: str, ruling: dict[str, Any]) -> None:
    where = cli.config.with_name("policy.toml")
    where.write_text(policy)
    run = cli.call("run", "tea.md", "--json").object["run"]
    found = audited(cli, run)["steps"][0]["acts"][0]["ruling"]
    assert json.loads(json.dumps(found).replace(str(where), "POLICY")) == ruling
    assert f"policy:        allow: {found['rules'][0]}\n" in cli.call("audit", run).out


def test_what_a_cancellation_cut_into_is_in_doubt(cli: CommandLine) -> None:
    cli.config.with_name("policy.toml").write_text('[commands]\nallow = ["*"]\n')
    cli.write("x.yml", "name: X\nsteps:\n  - {id: a, command: 'cli sh -c \"touch begun; sleep 600\"'}\n")
    process = cli.begin("run", "x.yml", "--json")
    until((cli.work / "begun").exists)
    ((run,),) = _in_store(cli, "SELECT id FROM runs")
    assert cli.call("cancel", run).code == 5
    assert finished(process).code == 5
    assert cli.call("show", run, "--json").object["steps"][0]["status"] == "in_doubt"
    (step,) = audited(cli, run)["steps"]
    assert (step["status"], step["acts"][0]["outcome"]["in_doubt"]["code"]) == ("in_doubt", "cancelled")
    printed = cli.call("audit", run).out
    assert "? a\n  in doubt: cancelled, " in printed
    assert "outcome:       in doubt (cancelled): Cancelled while it was under way, " in printed
    assert "failed" not in printed


def test_a_graph_is_audited_as_a_playbook_is(cli: CommandLine) -> None:
    cli.write("two.yml", GRAPH)
    run = cli.call("run", "two.yml", "--json").object["run"]
    evidence = audited(cli, run)
    assert evidence["dialect"] == "graph"
    assert [(step["step"], step["status"]) for step in evidence["steps"] if step["step"]] == [
        ("a", "completed"),
        ("b", "completed"),
    ]
    assert [len(step["acts"]) for step in evidence["steps"] if step["step"]] == [1, 1]
    routes = [route for step in evidence["steps"] for route in step.get("notes", {}).get("route", [])]
    assert [route["to"] for route in routes] == ["b"]
    assert "route:         continues with b" in cli.call("audit", run).out


# --- as a file ----------------------------------------------------------------------------------------------


def test_an_exported_run_is_verified_where_there_is_no_store(cli: CommandLine, approved: str, tmp_path: Path) -> None:
    proof = exported(cli, approved)
    assert proof.stat().st_mode & 0o777 == 0o600
    here = audited(cli, approved)
    for file in cli.store.parent.iterdir():
        file.unlink()
    ran = cli.call("audit", "--file", proof, "--json")
    assert (ran.code, ran.object) == (0, here)
    assert not cli.store.exists()


def test_the_file_can_be_checked_with_sha_256_alone(cli: CommandLine, approved: str) -> None:
    export = json.loads(exported(cli, approved).read_text())
    chain = b"\0" * 32
    for record in export["records"]:
        body = hashlib.sha256(record["body"].encode()).digest()
        chain = hashlib.sha256(chain + record["head"].encode() + body).digest()
        assert chain.hex() == record["chain"]
    assert chain.hex() == export["head"]


def _changed(proof: Path, old: str, new: str) -> None:
    text = proof.read_text()
    assert old in text
    proof.write_text(text.replace(old, new, 1))


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("good tea", "bad tea", "the chain does not match"),
        ("# Tea", "# Coffee", "the playbook it started from was changed"),
    ],
)
def test_a_changed_file_shows(cli: CommandLine, approved: str, old: str, new: str, problem: str) -> None:
    proof = exported(cli, approved)
    _changed(proof, old, new)
    ran = cli.call("audit", "--file", proof)
    assert ran.code == 1
    assert f"run {approved} is broken at record" in ran.err
    assert problem in ran.err


def test_a_changed_text_shows(cli: CommandLine, server: ModelServer) -> None:
    server.replies = ["tea " * 1000]
    run = cli.call("run", "tea.md", "--json").object["run"]
    proof = exported(cli, run)
    _changed(proof, "tea tea tea", "tea tee tea")
    ran = cli.call("audit", "--file", proof)
    assert (ran.code, "a text that it refers to was changed" in ran.err) == (1, True)


TALK = """\
name: Talk
steps:
  - id: say
    command: llm
    llm: {model: default, prompt: Say it as JSON.}
    output: {type: json, schema: {type: object}}
"""


@pytest.fixture
def talked(cli: CommandLine, server: ModelServer) -> str:
    """A run whose model was asked again, with its earlier reply in the context."""
    cli.write("talk.yml", TALK)
    server.replies = ["no JSON", '{"a": 1}']
    run = cli.call("run", "talk.yml", "--json").object
    assert (run["status"], len(server.requests)) == ("completed", 2)
    return str(run["run"])


def test_every_text_of_a_conversation_is_checked_in_the_file(cli: CommandLine, talked: str) -> None:
    proof = exported(cli, talked)
    export = json.loads(proof.read_text())
    assert len(export["texts"]) == 4, (
        "the prompt and the reply that it was asked about, and their places in the context"
    )
    for digest, text in export["texts"].items():
        proof.write_text(json.dumps({**export, "texts": {**export["texts"], digest: f"{text} "}}))
        ran = cli.call("audit", "--file", proof)
        assert (ran.code, "a text that it refers to was changed" in ran.err) == (1, True), text


def test_every_text_of_a_conversation_is_checked_in_the_store(cli: CommandLine, talked: str) -> None:
    for (digest,) in _in_store(cli, "SELECT digest FROM texts"):
        ((text,),) = _in_store(cli, "SELECT body FROM texts WHERE digest = ?", digest)
        _in_store(cli, "UPDATE texts SET body = 'FORGED' WHERE digest = ?", digest)
        for command in ("audit", "verify"):
            ran = cli.call(command, talked)
            assert (ran.code, "a text that it refers to was changed" in ran.err) == (1, True), text
        _in_store(cli, "UPDATE texts SET body = ? WHERE digest = ?", text, digest)
    assert cli.call("verify", talked).code == 0


def _in_store(cli: CommandLine, statement: str, *given: str) -> list[Any]:
    with sqlite3.connect(cli.store) as db:
        return db.execute(statement, given).fetchall()


def test_a_text_that_was_taken_out_of_the_file_is_named(cli: CommandLine, talked: str) -> None:
    proof = exported(cli, talked)
    export = json.loads(proof.read_text())
    gone = hashlib.sha256(b"no JSON").hexdigest()
    del export["texts"][gone]
    proof.write_text(json.dumps(export))
    ran = cli.call("audit", "--file", proof)
    assert ran.code == 0, "it may have been purged"
    assert f"missing:       1 referenced text, purged or removed (sha256 {gone[:12]})\n" in ran.out
    assert cli.call("audit", "--file", proof, "--json").object["chain"]["missing"] == [gone]


@pytest.mark.parametrize(
    ("where", "digest", "problem"),
    [
        ("texts", "0" * 64, "a text that no record refers to does not match its digest"),
        ("playbooks", "0" * 64, "a playbook that no record refers to does not match its digest"),
        ("playbooks", "", "the playbook it started from is missing"),
    ],
)
def test_what_is_put_into_the_file_under_a_false_digest_shows(
    cli: CommandLine, approved: str, where: str, digest: str, problem: str
) -> None:
    proof = exported(cli, approved)
    export = json.loads(proof.read_text())
    export[where] = {**export[where], digest: "FORGED"} if digest else {}
    proof.write_text(json.dumps(export))
    ran = cli.call("audit", "--file", proof)
    assert (ran.code, problem in ran.err) == (1, True)


def test_a_break_is_shown_first_and_earlier_records_as_of_there(cli: CommandLine, approved: str) -> None:
    proof = exported(cli, approved)
    export = json.loads(proof.read_text())
    closed = next(number for number, one in enumerate(export["records"], start=1) if '"WaitClosed"' in one["body"])
    _changed(proof, "good tea", "bad tea")
    words = cli.call("audit", "--file", proof).out
    first, second = words.splitlines()[1:3]
    assert first.startswith(
        f"broken:        at record {closed}: the chain does not match: it was changed. The following is based"
    )
    assert f"based on the {closed - 1} records before it" in first
    assert second.endswith(f", as of record {closed - 1}")
    assert f"decided:       not yet, as of record {closed - 1}\n" in words


def test_nothing_is_shown_if_no_record_precedes_the_break(cli: CommandLine, approved: str) -> None:
    proof = exported(cli, approved)
    _changed(proof, "# Tea", "# Coffee")
    words = cli.call("audit", "--file", proof).out
    assert "There is no valid record before it." in words
    assert ("status:" in words, "chain:" in words) == (False, True)


def test_a_file_that_was_cut_shows(cli: CommandLine, approved: str) -> None:
    proof = exported(cli, approved)
    export = json.loads(proof.read_text())
    export["records"] = export["records"][:-2]
    proof.write_text(json.dumps(export))
    ran = cli.call("audit", "--file", proof, "--json")
    assert (ran.code, ran.object["chain"]["unbroken"]) == (1, False)
    assert "records are missing at the end" in ran.object["chain"]["problem"]


def test_a_changed_store_shows_and_is_not_exported(cli: CommandLine, approved: str) -> None:
    with sqlite3.connect(cli.store) as db:
        changed = db.execute(
            "update records set body = cast(replace(cast(body as text), 'good tea', 'evil tea') as blob)"
            " where instr(body, 'good tea')"
        ).rowcount
    assert changed
    ran = cli.call("audit", approved)
    assert (ran.code, "is broken at record" in ran.err) == (1, True)
    assert "✓ 1  Choose" in ran.out
    refused = cli.call("audit", approved, "--export", "proof.json")
    assert (refused.code != 0, (cli.work / "proof.json").exists()) == (True, False)


@pytest.mark.parametrize(
    "change",
    [
        lambda export: export.update(owner="mallory"),
        lambda export: export.update(name="other.md"),
        lambda export: export.update(run="other"),
        lambda export: export["records"][3].update(run="other"),
        lambda export: export.update(records=[], head=""),
        lambda export: export.update(records=[], head="0" * 64),
    ],
)
def test_a_file_that_is_passed_off_as_another_run_shows(cli: CommandLine, approved: str, change: Any) -> None:
    proof = exported(cli, approved)
    export = json.loads(proof.read_text())
    change(export)
    proof.write_text(json.dumps(export))
    ran = cli.call("audit", "--file", proof, "--json")
    assert (ran.code, ran.object["chain"]["unbroken"]) == (1, False)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("UPDATE runs SET owner = 'mallory'", "owner 'local', not 'mallory'"),
        ("DELETE FROM records", "the beginning of the run is missing"),
        ("DELETE FROM records WHERE seq > 6", "records are missing at the end of the journal"),
    ],
)
def test_a_store_that_was_changed_beside_the_chain_shows(
    cli: CommandLine, approved: str, change: str, problem: str
) -> None:
    with sqlite3.connect(cli.store) as db:
        assert db.execute(change).rowcount
    for command in ("audit", "verify"):
        ran = cli.call(command, approved)
        assert (ran.code, problem in ran.err) == (1, True), ran.err


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((), "The argument RUN is missing."),
        (("--file", "tea.md"), "tea.md is not an exported run"),
        (("--file", "nothing.json"), "Cannot read"),
        (("--file", "x", "--export", "y"), "--file cannot be combined with RUN"),
    ],
)
def test_what_cannot_be_audited_is_said(cli: CommandLine, args: tuple[str, ...], words: str) -> None:
    ran: Ran = cli.call("audit", *args)
    assert (ran.code, words in ran.err) == (2, True)


def test_a_file_that_is_there_is_not_written_over(cli: CommandLine, approved: str) -> None:
    cli.write("proof.json", "mine")
    ran = cli.call("audit", approved, "--export", "proof.json")
    assert (ran.code, "already exists" in ran.err) == (2, True)
    assert (cli.work / "proof.json").read_text() == "mine"


# --- secrets --------------------------------------------------------------------------------------------------


class Hook:
    """A local server that records its requests."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
                outer.seen.append((str(self.headers["Authorization"]), body))
                self.send_response(201)
                self.end_headers()
                self.wfile.write(f"thanks, {self.headers['Authorization']}".encode())

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def hook() -> Iterator[Hook]:
    made = Hook()
    yield made
    made.close()


def test_secrets_are_shown_by_their_handles_and_responses_are_masked(cli: CommandLine, hook: Hook) -> None:
    cli.environ["HOOK_TOKEN"] = "hunter2-hunter2"
    cli.config.with_name("policy.toml").write_text(f'[egress]\nallow = ["{hook.url}/*"]\n[secrets]\nallow = ["*"]\n')
    cli.write(
        "post.yml",
        "name: Post\nargs: {token: {secret: true}}\nsteps:\n  - id: post\n"
        f"    command: http POST {hook.url}/hook\n"
        '    with: {headers: {Authorization: "Bearer ${token}"}, json: {a: 1}}\n'
        "    postcondition: {type: http_status, equals: 201}\n",
    )
    run = cli.call("run", "post.yml", "--token", "env:HOOK_TOKEN", "--json").object
    assert run["status"] == "completed", run
    assert hook.seen == [("Bearer hunter2-hunter2", '{"a":1}')]
    step = audited(cli, run["run"])["steps"][0]
    act = step["acts"][0]
    use = {"at": "headers.Authorization", "handle": "env:HOOK_TOKEN", "form": "Bearer {}"}
    assert act["action"]["secrets"] == [use]
    assert (act["action"]["method"], act["action"]["url"], act["outcome"]["status"]) == (
        "POST",
        f"{hook.url}/hook",
        201,
    )
    assert act["ruling"]["decision"] == "allow"
    assert step["notes"]["postcondition"][0]["verdict"] == "passed"
    proof = exported(cli, run["run"])
    words = cli.call("audit", run["run"])
    assert "secrets:       headers.Authorization from env:HOOK_TOKEN" in words.out
    assert "hunter2" not in proof.read_text() + words.out


def test_what_was_never_begun_is_not_said_to_have_been_done(cli: CommandLine, hook: Hook) -> None:
    """No server is listening: the intent is on record, and nothing was sent."""
    cli.environ["HOOK_TOKEN"] = "hunter2-hunter2"
    hook.close()
    cli.config.with_name("policy.toml").write_text(f'[egress]\nallow = ["{hook.url}/*"]\n[secrets]\nallow = ["*"]\n')
    cli.write(
        "post.yml",
        "name: Post\nargs: {token: {secret: true}}\nsteps:\n  - id: post\n"
        f"    command: http POST {hook.url}/hook\n"
        '    with: {headers: {Authorization: "Bearer ${token}"}}\n',
    )
    run = cli.call("run", "post.yml", "--token", "env:HOOK_TOKEN", "--json").object["run"]
    (act,) = audited(cli, run)["steps"][0]["acts"]
    assert ("began" in act, act["begun"]) == (True, False)
    printed = cli.call("audit", run).out
    assert f"  requested:     send POST {hook.url}/hook\n" in printed
    assert "did:" not in printed


def test_data_that_looks_like_a_reference_is_none(cli: CommandLine) -> None:
    """Such data is not reported as missing, and no text of another run is exported."""
    cli.write("long.yml", "name: Long\nsteps:\n  - {id: a, command: cli seq 2000, effect: read, output: text}\n")
    other = exported(cli, cli.call("run", "long.yml", "--json").object["run"])
    (digest, text), *_ = json.loads(other.read_text())["texts"].items()
    cli.write(
        "odd.yml",
        'name: Odd\nargs: {x: {type: object}}\nsteps:\n  - {id: a, command: cli cat, stdin: "${x}", effect: read}\n',
    )
    for named in (digest, "0" * 64):
        run = cli.call("run", "odd.yml", "--x", json.dumps({"digest": named, "length": 5}), "--json").object["run"]
        assert "missing" not in cli.call("verify", run).out
        assert text not in json.loads(exported(cli, run, f"{run}.json").read_text())["texts"].values()
