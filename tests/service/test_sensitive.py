"""The values of sensitive inputs in every store: kept for their runs, and purged when those have ended."""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec
import pytest

from cuebook.dialects.playbook import Playbook
from cuebook.gate.sensitive import RunSensitive, SensitiveGone, SensitiveInShell, mark_of, marks_in
from cuebook.kernel.context import Context
from cuebook.kernel.effects import AskModel, CallTool, RunCommand, SendHttp
from cuebook.kernel.engine.engine import Unmasked
from cuebook.kernel.errors import BadInput
from cuebook.kernel.ports import Store
from cuebook.kernel.run import Settings
from cuebook.service.service import Service
from cuebook.stores.memory import MemoryStore
from cuebook.stores.sqlite import SqliteStore
from tests.support.programs import begin, performers, service_on

VALUE = "o'hara & sons"
MARK = mark_of("customer", "0123456789ab")


def sensitive(value: str = VALUE) -> RunSensitive:
    return RunSensitive({"0123456789ab": ("customer", value)}, Unmasked())


async def test_values_are_kept_until_their_runs_have_ended_or_are_gone(store: Store, tmp_path: Path) -> None:
    service = service_on(store, tmp_path)
    kept = service.sensitive
    shown, hidden = kept.hide({"customer": VALUE, "topic": "tea"}, ["customer", "missing"])
    assert shown["topic"] == "tea"
    assert [name for name, _ in marks_in(shown["customer"])] == ["customer"]
    await begin(service._engine, "counting", run="one")
    for run in ("one", "gone"):
        await kept.keep("local", run, hidden)
    assert (await kept.redactor_of(await store.run("one"))).value(f"Dear {VALUE}") == f"Dear {shown['customer']}"
    assert await kept.sweep(0.0) == 0  # one has not ended, and the other may be about to be created
    await service._engine.drive("one")
    assert await kept.sweep() == 1
    assert list(await store.kept("local", "sensitive")) == ["gone"]
    assert await store.kept("local", "sensitive:one") == {}
    await service.close()


async def test_a_purged_value_is_not_in_the_file_of_a_store_in_use(file_store: SqliteStore, tmp_path: Path) -> None:
    service = service_on(file_store, tmp_path)
    files = [file_store.path, Path(f"{file_store.path}-wal")]
    await service.sensitive.keep("local", "one", {"0123456789ab": ("customer", VALUE)})
    assert any(VALUE.encode() in one.read_bytes() for one in files)
    assert await service.sensitive.forget("local", "one")
    assert not any(VALUE.encode() in one.read_bytes() for one in files)
    await service.close()


async def test_a_deleted_run_takes_its_values_with_it(store: Store, tmp_path: Path) -> None:
    service = service_on(store, tmp_path)
    await begin(service._engine, "counting", run="one")
    await service.sensitive.keep("local", "one", service.sensitive.hide({"customer": VALUE}, ["customer"])[1])
    await service.retention.delete("one", force=True)
    assert await store.kept("local", "sensitive") == {}
    assert await store.kept("local", "sensitive:one") == {}
    await service.close()


def test_an_effect_gets_the_value_in_the_form_of_its_place() -> None:
    reveal = sensitive().reveal
    asked = reveal(AskModel(f"Write to {MARK}.", Context().add("system", f"About {MARK}")))
    assert (asked.prompt, str(next(iter(asked.context)).text)) == (f"Write to {VALUE}.", f"About {VALUE}")
    sent = reveal(
        SendHttp(
            "post",
            f"https://x.example/?q={MARK}&r=%5Bsensitive%20customer%200123456789ab%5D",
            body=f'{{"to": "{MARK}"}}',
        )
    )
    assert sent.url == f"https://x.example/?q={VALUE}&r=o%27hara%20%26%20sons"
    assert sent.body == f'{{"to": "{VALUE}"}}'
    quoted = sensitive('a "friend"').reveal(SendHttp("post", "https://x.example", body=f'{{"to": "{MARK}"}}'))
    assert quoted.body == '{"to": "a \\"friend\\""}'
    nothing = RunCommand(("ls",))
    assert reveal(nothing) is nothing
    with pytest.raises(SensitiveGone, match="'customer' is not available"):
        reveal(AskModel(mark_of("customer", "ffffffffffff")))


def test_a_value_never_becomes_code_of_a_shell() -> None:
    for reveal in (sensitive("x; rm -rf /").reveal, sensitive("$(rm -rf /)").reveal):
        assert reveal(RunCommand(("touch", MARK))).argv[1] in ("x; rm -rf /", "$(rm -rf /)")
        assert reveal(RunCommand(("tee",), stdin=f"to {MARK}", env={"TO": f"<{MARK}>"})).stdin.startswith("to ")
        assert reveal(RunCommand(("sh", "-c", 'touch "$1"', "_", MARK))).argv[4].endswith(("/", ")"))
        for effect in (
            RunCommand(("sh", "-c", f"touch {MARK}")),
            RunCommand(("/bin/sh",), stdin=MARK),
            RunCommand(("bash", "-lc", MARK)),
            CallTool("Bash", {"command": f'echo "{MARK}"'}),
        ):
            with pytest.raises(SensitiveInShell):
                reveal(effect)
    quoted = sensitive().reveal(CallTool("Bash", {"command": f"echo '{MARK}'"}))
    assert quoted.arguments["command"] == "echo 'o'\"'\"'hara & sons'"
    plain = sensitive("ann@example.com").reveal(RunCommand(("sh", "-c", f"touch {MARK}")))
    assert plain.argv[2] == "touch ann@example.com"


def test_what_streams_and_what_is_logged_is_masked(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    stream = sensitive().redactor.stream()
    assert "".join([*map(stream.feed, f"Dear {VALUE}, hello"), stream.finish()]) == f"Dear {MARK}, hello"
    service = service_on(MemoryStore(), tmp_path)
    used = service.sensitive._used({"0123456789ab": ("customer", VALUE)})
    with caplog.at_level(logging.WARNING):
        logging.getLogger("anything").warning("sent to %s", VALUE)
    assert caplog.messages == [f"sent to {MARK}"]
    assert used.own.known


@pytest.mark.parametrize("value", [12345678, ["a"], "short", {"a": "b"}])
def test_what_cannot_be_masked_is_refused(value: object, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="customer") as raised:
        service_on(MemoryStore(), tmp_path).sensitive.hide({"customer": value}, ["customer"])
    assert "short" not in str(raised.value).replace("shorter", "")


MAIL = """\
# Mail

## INPUTS

- `email` (string, sensitive): Whom to write to

## STEP 1: Write

Write to {{email}}.

## STEP 2: Ask

@elicit(confirm, "Is it for {{email}}?")

## STEP 3: Thank

Thank {{email}}.
"""


def service_of(store: Store, folder: Path, sees: list[object]) -> Service:
    """A process that drives runs of playbooks."""
    service = Service(store, performers(folder), listen_every=0.02)
    service._engine.observe(sees.append)
    return service


async def test_no_record_row_or_event_has_a_value_in_any_store(store: Store, tmp_path: Path) -> None:
    events: list[object] = []
    service = service_of(store, tmp_path, events)
    row = await service.start(Playbook.from_text(MAIL, "mail.md"), {"email": VALUE}, Settings(model="test/echo"))
    row = await service.drive(row.id)
    assert row.status == "awaiting_input"
    await service._engine.close()

    service = service_of(store, tmp_path, events)  # another process continues it
    (wait,) = await service.waits(row.id)
    await service.answer(wait.id, "yes")
    row = await service.drive(row.id)
    assert row.status == "completed"
    assert (tmp_path / "asked").read_text().splitlines()[0] == f"Write to {VALUE}."
    assert f"Thank {VALUE}." in (tmp_path / "asked").read_text()
    whole = await store.whole(row.id)
    shown = [msgspec.json.encode(whole.row), *(record.body for record in whole.records), str(events).encode()]
    shown += [str(whole.steps).encode(), str(whole.waits).encode()]
    assert not any(b"hara" in one for one in shown)
    assert any(b"[sensitive email " in one for one in shown)
    assert await store.kept("local", "sensitive") == await store.kept("local", f"sensitive:{row.id}") == {}
    verdict = await service.verify(row.id)
    assert (verdict.broken_at, verdict.missing) == (None, ())
    assert (await service.replay(row.id)).complete
    await service.close()
