"""Text comes from files below their root, from the prompt library, from URLs and from tools, and from nowhere else."""

from __future__ import annotations

import json
import os
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from cuebook.kernel.effects import ReadSource, ToolSpec
from cuebook.kernel.outcomes import Failed, Source
from cuebook.kernel.ports import Action, Description
from cuebook.kernel.run import Settings
from cuebook.performers.http.performer import HttpPerformer
from cuebook.performers.sources import SourcePerformer
from tests.support.http_servers import LOOPBACK, Asking, Server, answer, names, redirect


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "workspace"
    (made / "docs").mkdir(parents=True)
    (made / "docs" / "notes.md").write_text("Grüße", encoding="utf-8")
    (made / "readme.txt").write_text("Read me.")
    (tmp_path / "canary.txt").write_text("canary")
    return made


@pytest.fixture
def library(tmp_path: Path) -> Path:
    made = tmp_path / "prompts"
    (made / "support").mkdir(parents=True)
    (made / "greeting.md").write_text("Say hello.")
    (made / "greeting.txt").write_text("the other one")
    (made / "farewell.txt").write_text("Say goodbye.")
    (made / "support" / "apology.md").write_text("Say sorry.")
    (made / "notes.json").write_text("{}")
    (made / ".hidden.md").write_text("hidden")
    return made


def performer(*roots: Path, **options: Any) -> SourcePerformer:
    return SourcePerformer(roots, **{"http": LOOPBACK, **options})


async def read(performer: SourcePerformer, source: str, asking: Asking | None = None) -> Source | Failed:
    return await performer.perform(ReadSource(source), (asking or Asking()).call())


async def text(performer: SourcePerformer, source: str, asking: Asking | None = None) -> str:
    outcome = await read(performer, source, asking)
    assert isinstance(outcome, Source), outcome
    return str(outcome.content)


async def failure(performer: SourcePerformer, source: str, asking: Asking | None = None) -> Failed:
    outcome = await read(performer, source, asking)
    assert isinstance(outcome, Failed), outcome
    return outcome


async def described(performer: SourcePerformer, source: str) -> Description | Failed:
    return await performer.describe(ReadSource(source), Settings())


# --- files ----------------------------------------------------------------------------------------------


async def test_a_file_is_read_with_its_digest(root: Path) -> None:
    outcome = await read(performer(root), "file:docs/notes.md")
    assert isinstance(outcome, Source)
    assert str(outcome.content) == "Grüße"
    assert outcome.digest == sha256("Grüße".encode()).hexdigest()


async def test_a_file_is_described_by_its_path_below_the_root(root: Path) -> None:
    description = await described(performer(root), "file:./docs//notes.md")
    assert isinstance(description, Description)
    assert description.actions == (Action("file", "read:docs/notes.md", reads_only=True),)
    assert description.preview == {"file": str(root / "docs" / "notes.md")}


async def test_the_first_root_that_has_the_file_counts(root: Path, tmp_path: Path) -> None:
    second = tmp_path / "second"
    second.mkdir()
    (second / "readme.txt").write_text("not this one")
    (second / "only.txt").write_text("this one")
    both = performer(root, second)
    assert await text(both, "file:readme.txt") == "Read me."
    assert await text(both, "file:only.txt") == "this one"
    description = await described(both, "file:only.txt")
    assert isinstance(description, Description)
    assert description.bound == {"root": str(second), "file": "only.txt"}


@pytest.mark.parametrize(
    "path", ["../canary.txt", "/etc/passwd", "///etc/passwd", "docs/../../canary.txt", "~/x", "", "a\0b", "leads-out"]
)
async def test_no_file_outside_is_read_or_described(root: Path, path: str) -> None:
    (root / "leads-out").symlink_to("../canary.txt")
    assert (await failure(performer(root), f"file:{path}")).code == "outside_root"
    description = await described(performer(root), f"file:{path}")
    assert isinstance(description, Failed)
    assert description.code == "outside_root"


async def test_the_error_for_a_missing_file_suggests_similar_names(root: Path) -> None:
    for outcome in (
        await failure(performer(root), "file:docs/note.md"),
        await described(performer(root), "file:docs/note.md"),
    ):
        assert isinstance(outcome, Failed)
        assert outcome.code == "not_found"
        assert str(root) in outcome.message
        assert outcome.fix == "Did you mean docs/notes.md?"
    by_case = await failure(performer(root), "file:README.TXT")
    assert by_case.fix == "Did you mean readme.txt?"
    nothing = await failure(performer(), "file:a.txt")
    assert "none is configured" in nothing.message


async def test_a_file_that_is_too_large_or_not_text_is_reported(root: Path) -> None:
    (root / "large.txt").write_text("x" * 101)
    (root / "binary").write_bytes(b"\xff\xfe\x00")
    (root / "latin.txt").write_bytes("Grüße".encode("latin-1"))
    small = performer(root, max_bytes=100)
    assert (await failure(small, "file:large.txt")).code == "too_large"
    assert (await failure(small, "file:binary")).code == "not_text"
    assert "UTF-8" in (await failure(small, "file:latin.txt")).message
    assert (await failure(small, "file:docs")).code == "unusable"


async def test_a_byte_order_mark_is_not_part_of_the_text(root: Path) -> None:
    (root / "marked.txt").write_bytes(b"\xef\xbb\xbfabc")
    assert await text(performer(root), "file:marked.txt") == "abc"


async def test_what_a_link_leads_to_is_what_policy_decides_about(root: Path) -> None:
    (root / "alias").symlink_to("docs/notes.md")
    description = await described(performer(root), "file:alias")
    assert isinstance(description, Description)
    assert description.actions[0].target == "read:docs/notes.md"
    asking = Asking(refuse=lambda action: Failed("refused_by_policy", "No."))
    assert (await failure(performer(root), "file:alias", asking)).code == "refused_by_policy"
    assert [action.target for action in asking.asked] == ["read:docs/notes.md"]
    assert await text(performer(root), "file:docs/notes.md", asking) == "Grüße"


async def test_a_pipe_is_not_waited_for(root: Path) -> None:
    os.mkfifo(root / "pipe")
    assert (await failure(performer(root), "file:pipe")).code == "unusable"


# --- prompts ----------------------------------------------------------------------------------------------


async def test_prompts_are_found_by_name(library: Path) -> None:
    prompts = performer(prompts=[library])
    assert await text(prompts, "prompt:greeting") == "Say hello."
    assert await text(prompts, "prompt:farewell") == "Say goodbye."
    assert await text(prompts, "prompt:support/apology") == "Say sorry."


async def test_the_first_folder_that_has_the_prompt_counts(library: Path, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "greeting.txt").write_text("my own")
    both = performer(prompts=[own, tmp_path / "missing", library])
    assert await text(both, "prompt:greeting") == "my own"
    assert await text(both, "prompt:farewell") == "Say goodbye."


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("greting", "Did you mean greeting?"),
        ("Greeting", "Did you mean greeting?"),
        ("greeting.md", "Did you mean greeting?"),
        ("support/apologi", "Did you mean support/apology?"),
        ("Support/apology", "Did you mean support/apology?"),
        ("zzz", "Save it as zzz.md in the prompt library."),
        ("notes", "Save it as notes.md in the prompt library."),
        (".hidden", "Save it as .hidden.md in the prompt library."),
    ],
)
async def test_the_error_for_an_unknown_prompt_suggests_similar_names(library: Path, name: str, fix: str) -> None:
    failed = await failure(performer(prompts=[library]), f"prompt:{name}")
    assert (failed.code, failed.fix) == ("not_found", fix)
    assert str(library) in failed.message


@pytest.mark.parametrize("name", ["../canary", "/etc/passwd", "support/../../canary", "~", "", "leads-out", "a\0"])
async def test_no_prompt_leads_out_of_the_library(library: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "canary.md").write_text("canary")
    (library / "leads-out.md").symlink_to("../canary.md")
    assert (await failure(performer(prompts=[library]), f"prompt:{name}")).code == "outside_root"


async def test_a_prompt_is_described_by_its_name(library: Path) -> None:
    description = await described(performer(prompts=[library]), "prompt:support/apology")
    assert isinstance(description, Description)
    assert description.actions == (Action("file", "read:prompts/support/apology.md", reads_only=True),)
    assert isinstance(await described(performer(prompts=[library]), "prompt:../x"), Failed)


async def test_a_prompt_in_the_workspace_is_known_to_policies_as_the_file_it_is(root: Path) -> None:
    (root / "prompts").mkdir()
    (root / "prompts" / "a.md").write_text("A")
    (root / "prompts" / "b.txt").symlink_to("a.md")
    both = performer(root, prompts=[root / "prompts"])
    for name in ("a", "b"):
        description = await described(both, f"prompt:{name}")
        assert isinstance(description, Description)
        assert [action.target for action in description.actions] == ["read:prompts/a.md"]
        assert description.preview == {"file": str(root / "prompts" / "a.md")}


async def test_a_prompt_is_asked_about_again_when_it_is_read(root: Path, library: Path) -> None:
    asking = Asking(refuse=lambda action: Failed("refused_by_policy", "No."))
    outside = performer(root, prompts=[library])
    assert (await failure(outside, "prompt:greeting", asking)).code == "refused_by_policy"
    assert [action.target for action in asking.asked] == ["read:prompts/greeting.md"]


# --- URLs -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["text/html; charset=utf-8", "application/json", "image/svg+xml", ""])
async def test_a_text_is_fetched(kind: str) -> None:
    headers = [("Content-Type", kind)] if kind else []
    async with Server(answer("Grüße", headers=headers)) as server:
        outcome = await read(performer(), server.url("/page"))
    assert isinstance(outcome, Source)
    assert str(outcome.content) == "Grüße"
    assert outcome.digest == sha256("Grüße".encode()).hexdigest()
    assert (server.requests[0].method, server.requests[0].target) == ("GET", "/page")


async def test_a_url_may_be_longer_than_a_response_that_is_kept() -> None:
    async with Server(answer("x" * 100_000)) as server:
        assert len(await text(performer(), server.url())) == 100_000
        assert (await failure(performer(max_bytes=99_999), server.url())).code == "too_large"


@pytest.mark.parametrize(("status", "retryable"), [(204, False), (404, False), (401, False), (429, True), (503, True)])
async def test_only_a_good_answer_is_a_source(status: int, retryable: bool) -> None:
    async with Server(answer(b"", status)) as server:
        failed = await failure(performer(pauses=()), server.url())
    assert (failed.code, failed.retryable, failed.details) == ("http_status", retryable, {"status": status})


async def test_a_server_that_failed_is_asked_again_and_then_no_more() -> None:
    async with Server(answer(b"", 503), answer(b"", 500), answer("late")) as server:
        assert await text(performer(pauses=(0, 0)), server.url()) == "late"
        assert len(server.requests) == 3
    for status, times in ((502, 3), (404, 1), (429, 1)):
        async with Server(answer(b"", status)) as server:
            failed = await failure(performer(pauses=(0, 0)), server.url())
            assert (failed.details, len(server.requests)) == ({"status": status}, times)


@pytest.mark.parametrize(
    ("kind", "body"), [("image/png", b"png"), ("application/octet-stream", b"x"), ("text/plain", b"\xff\xfe")]
)
async def test_a_response_that_is_not_text_is_refused(kind: str, body: bytes) -> None:
    async with Server(answer(body, headers=[("Content-Type", kind)])) as server:
        assert (await failure(performer(), server.url())).code == "not_text"


async def test_a_url_goes_the_way_of_every_request(root: Path) -> None:
    async with Server() as server:
        closed = performer(http=HttpPerformer(resolve=names()))
        assert (await failure(closed, server.url())).code == "refused_address"
        assert (await failure(closed, "https://2130706433/")).code == "bad_url"
        assert (await failure(closed, "https://nowhere.example/")).code == "unreachable"
        description = await described(performer(), server.url("/a?b"))
        assert isinstance(await described(closed, server.url()), Failed)
    assert isinstance(description, Description)
    assert description.actions == (Action("egress", f"GET {server.url('/a')}", reads_only=True),)
    assert server.connections == 0


async def test_a_redirect_of_a_source_is_asked_about() -> None:
    asking = Asking(refuse=lambda action: Failed("refused_by_policy", "No."))
    async with Server(redirect("/there")) as server:
        assert (await failure(performer(), server.url(), asking)).code == "refused_by_policy"
    assert [action.target for action in asking.asked] == [f"GET {server.url('/there')}"]


# --- tools and the rest -----------------------------------------------------------------------------------


async def test_tools_are_listed_by_the_configured_function() -> None:
    async def listed(pattern: str) -> list[ToolSpec] | Failed:
        if pattern == "broken":
            return Failed("tool_server", "It is down.")
        return [ToolSpec("github.search", "Searches.", {"type": "object"})]

    tools = performer(tools=listed)
    assert json.loads(await text(tools, "tools:github.*")) == [
        {"name": "github.search", "description": "Searches.", "parameters": {"type": "object"}}
    ]
    assert (await failure(tools, "tools:broken")).code == "tool_server"
    assert (await failure(performer(), "tools:github.*")).code == "no_tools"
    description = await described(tools, "tools:github.*")
    assert isinstance(description, Description)
    assert description.actions == (Action("tool", "github.*", reads_only=True),)


@pytest.mark.parametrize("source", ["readme.txt", "", "ftp://a.example/", "data:,x", "env:HOME", ":", "javascript:x"])
async def test_there_is_no_other_kind_of_source(root: Path, source: str) -> None:
    failed = await failure(performer(root), source)
    assert failed.code == "bad_source"
    assert "file:PATH" in failed.fix
    assert await described(performer(root), source) == failed
