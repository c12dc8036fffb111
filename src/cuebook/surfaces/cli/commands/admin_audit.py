"""`cuebook audit --admin` and `cuebook audit --export FILE`: administrative acts, and the audit of many runs as one file."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from typing import IO, Any

import msgspec

from cuebook.formats.moments import EXPECTED, moment_of
from cuebook.kernel.errors import BadInput
from cuebook.kernel.ports.admin_acts import ActRecord
from cuebook.service.audit.admin_audit import act_object
from cuebook.service.audit.collection import Written, read_collection, write_collection
from cuebook.service.audit.export import Audited
from cuebook.service.audit.signature import SignedFile
from cuebook.service.service import Service
from cuebook.surfaces import display
from cuebook.surfaces.cli import session
from cuebook.surfaces.cli.commands.evidence import signature_words, unchecked_words
from cuebook.surfaces.cli.options import Given, configuration
from cuebook.surfaces.cli.terminal import views
from cuebook.surfaces.cli.terminal.output import complain, say
from cuebook.wiring.evidence import signer_of

_SHOWN = 100
"""Acts that are listed; --json and --export have all of them."""


def since_of(given: Given, now: float) -> float:
    """The moment that `--since` names: how long ago, or a date in local time."""
    text = given["since"]
    try:
        return 0.0 if text is None else moment_of(text, now)
    except ValueError:
        raise BadInput(f"--since: cannot read '{text}'.", fix=f"Write {EXPECTED}.") from None


def admin_audit(given: Given) -> int:
    """Lists the administrative acts and verifies their chain."""

    async def look(service: Service) -> int:
        who, since = await session.acting(service, given), since_of(given, service.clock())
        found: list[ActRecord] = []
        if not given["verify"]:
            if given["as_json"]:
                found = [one async for page in service.admin_audit.pages(who, since) for one in page]
            else:
                found = await service.admin_audit.acts(who, since=since, newest=True, limit=_SHOWN)
        check = await service.admin_audit.verify(who)
        broken = None if check.broken is None else msgspec.to_builtins(check.broken)
        if given["as_json"]:
            chain = {"acts": check.count, "head": check.head, "broken": broken}
            listed = {} if given["verify"] else {"acts": [act_object(one) for one in found]}
            sys.stdout.write(views.json_line({**listed, "chain": chain}))
        else:
            if len(found) == _SHOWN and found[0].seq > 1:
                say(f"The last {_SHOWN}; --since, --json or --export FILE has the others.")
            for one in found:
                say(act_words(one))
            if not check.count:
                say("Nothing was recorded yet.")
            elif check.broken is None:
                say(f"{display.counted(check.count, 'act')}, unbroken, head {check.head}")
        if check.broken is not None:
            complain(f"cuebook: the audit is broken at act {check.broken.seq}: {check.broken.problem}.")
        return 1 if check.broken is not None else 0

    return session.look(given, look)


def export_collection(given: Given) -> int:
    """Writes the audit of many runs, and of administrative acts, to a file."""
    path, signer = given["export"], signer_of(configuration(given))

    async def write(service: Service) -> int:
        who, since = await session.acting(service, given), since_of(given, service.clock())
        with _created(path) as file:
            signed = SignedFile(file, signer)
            written = await write_collection(service, signed, who, since=since, runs=not given["admin"])
        if given["as_json"]:
            sys.stdout.write(views.json_line({"file": path, **msgspec.to_builtins(written)}))
        else:
            say(f"{_counts(written)} in {path}{_head(written)}")
            say(signature_words(path, written.key))
        return _complain(written)

    return session.look(given, write)


def show_collection(given: Given, file: IO[bytes]) -> int:
    """Verifies everything in such a file, and lists its runs."""
    runs: list[dict[str, Any]] = []

    def see(found: Audited) -> None:
        verdict = found.verdict
        whole = "unbroken" if verdict.broken_at is None else f"broken at record {verdict.broken_at}"
        if given["as_json"]:
            runs.append({"run": found.run, "name": found.name, "owner": found.owner, **msgspec.to_builtins(verdict)})
        else:
            records = display.counted(verdict.records, "record")
            say(f"{found.run}  {found.name}  {found.evidence.status}  {records}, {whole}, head {verdict.head}")

    read = read_collection(file, given["file"], see)
    if given["as_json"]:
        sys.stdout.write(views.json_line({**msgspec.to_builtins(read), "runs": runs}))
    else:
        say(f"{_counts(read)}{'' if read.broken else ', unbroken'}{_head(read)}")
        if read.key:
            say(unchecked_words(given["file"], read.key))
    return _complain(read)


def act_words(record: ActRecord) -> str:
    """An act in one line."""
    act = record.act
    words = f"{act.what} {act.subject}".strip()
    refused = " (refused)" if act.refused else ""
    details = "; ".join(_detail_words(dict(act.details)))
    return (
        f"{display.moment(act.at)}  {words}{refused} by {act.by or 'nobody'} ({act.surface}, {act.address})"
        f"{f': {details}' if details else ''}"
    )


def _detail_words(details: dict[str, Any]) -> Iterator[str]:
    before, after = details.get("before"), details.get("after")
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        yield from (f"{name} {_value(before.get(name))}, now {_value(value)}" for name, value in after.items())
        details = {name: value for name, value in details.items() if name not in ("before", "after")}
    yield from (f"{name} {_value(value)}" for name, value in details.items())


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_value(one)}" for name, one in value.items())
    if isinstance(value, list):
        return ", ".join(_value(one) for one in value) or "none"
    return display.short(str(value))


def _counts(written: Written) -> str:
    return f"{display.counted(written.runs, 'run')} and {display.counted(written.acts, 'administrative act')}"


def _head(written: Written) -> str:
    return f", head of the acts {written.head}" if written.head else ""


def _complain(written: Written) -> int:
    for one in written.broken:
        complain(f"cuebook: {one}.".replace("..", "."))
    return 1 if written.broken else 0


def _created(path: str) -> IO[bytes]:
    try:  # only the owner may read the file, because it contains everything the runs did
        return os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb")
    except FileExistsError:
        raise BadInput(f"--export: {path} already exists.", fix="Choose a new file name.") from None
    except OSError as error:
        raise BadInput(f"--export: Cannot write {path}: {error.strerror}.", fix="Check the path.") from None
