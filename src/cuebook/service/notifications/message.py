"""A message about a notice, as every channel gets it. Nothing here sends anything."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import msgspec

from cuebook.kernel.engine.waits import WHOLE
from cuebook.kernel.ports import Job
from cuebook.kernel.run import RunRow, WaitRow, id_from
from cuebook.kernel.short_ids import short_id
from cuebook.kernel.votes import APPROVE, DENY

MESSAGE = "message"
"""The kind of the jobs that are messages."""

_WAITS = {
    "approval": "asks for an approval",
    "question": "asks a question",
    "breakpoint": "is paused at a breakpoint",
    "in_doubt": "does not know whether an effect took place",
    "budget": "has reached its budget",
    "secret": "waits for a secret",
}
_EVENTS = {
    "waiting": "waits",
    "failed": "failed",
    "ended": "ended",
    "budget": "passed a spending mark",
    "schedule": "needs attention",
}
_NEXT = {
    "approval": "cuebook decide {} approve",
    "question": "cuebook answer {} VALUE",
    "breakpoint": "cuebook resume {}",
    "in_doubt": "cuebook decide {} repeat",
    "budget": "cuebook resume {}",
    "secret": "cuebook resume {}",
}


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """A message for one channel or one person."""

    id: str
    """The same for each attempt to deliver it, so that receivers can recognise a repetition."""
    event: str
    at: float
    title: str
    text: str = ""
    short_id: str = ""
    """What a person can type: of the wait, or of the run."""
    link: str = ""
    """The page on which people decide, once they have signed in; empty if no public address is configured."""
    command: str = ""
    """The command that looks at it or decides."""
    run: str = ""
    wait: str = ""
    playbook: str = ""
    owner: str = ""
    to: str = ""
    """The person whom it is for; empty in a channel for many."""
    expires: float | None = None
    """When a wait expires, if it does."""
    reminder: int = 0
    """Which reminder it is; 0 for the first message."""
    escalated: bool = False
    preview: Mapping[str, str] = {}
    """Everything that an approval is about, if it can be shown in a message; otherwise empty."""
    digest: str = ""
    """Of what an approval is about, if the preview shows all of it: only then can it be decided from a message."""

    @property
    def heading(self) -> str:
        """The title, with why it comes again."""
        if self.escalated:
            return f"Escalated: {self.title}"
        return f"Reminder: {self.title}" if self.reminder else self.title

    def plain(self) -> dict[str, Any]:
        """The message for programs. Names are part of the documented format."""
        said = {
            "id": self.id,
            "type": f"run.{self.event}" if self.run else self.event,
            "at": _written(self.at),
            "title": self.title,
            "text": self.text,
            "short_id": self.short_id,
            "link": self.link,
            "run": self.run,
            "wait": self.wait,
            "playbook": self.playbook,
            "owner": self.owner,
            "to": self.to,
            "expires": "" if self.expires is None else _written(self.expires),
            "reminder": self.reminder,
            "escalated": self.escalated,
        }
        return {name: value for name, value in said.items() if value not in ("", 0, False)}


def _written(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def minutes(at: float) -> str:
    """A moment for people, whose time zone is not known here."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"


def composed(job: Job, public_url: str, run: RunRow | None, wait: WaitRow | None, *, texts: bool) -> Message:
    """The message of a job. `texts` says whether it may contain texts of the run."""
    said = job.body
    what, name = str(said["what"]), str(said.get("playbook", ""))
    row, kind = str(said.get("run", "")), "" if wait is None else wait.kind
    title = _title(what, name, kind, run)
    preview = _whole_preview(wait) if wait is not None and texts else {}
    short = short_id(wait.id) if wait is not None else row
    return Message(
        id=message_id(job),
        event=what,
        at=float(said["at"]),
        title=title,
        text=str(said.get("text", "")) if texts else "",
        short_id=short,
        link=_link(public_url, row, "" if wait is None else wait.id),
        command=_NEXT[kind].format(short) if kind else (f"cuebook show {row}" if row else ""),
        run=row,
        wait=str(said.get("wait", "")),
        playbook=name,
        owner=str(said.get("owner", "")),
        to=str(said.get("to", "")),
        expires=None if wait is None else wait.expires,
        reminder=int(said.get("reminder", 0)),
        escalated=bool(said.get("escalated", False)),
        preview=preview,
        digest=str(wait.details.get("digest", "")) if wait is not None and preview else "",
    )


def message_id(job: Job) -> str:
    return f"msg_{id_from(f'{job.tenant} {job.name}')}"


def _title(what: str, playbook: str, kind: str, run: RunRow | None) -> str:
    if not playbook:
        return {"budget": "A budget has passed a mark", "schedule": "A trigger needs attention"}.get(
            what, f"A run {_EVENTS[what]}"
        )
    if kind:
        return f"{playbook} {_WAITS[kind]}"
    if what == "schedule":
        return f"A trigger of {playbook} needs attention"
    if what == "ended" and run is not None and run.status in ("completed", "cancelled"):
        return f"{playbook} is {run.status}" if run.status == "completed" else f"{playbook} was {run.status}"
    return f"{playbook} {_EVENTS[what]}"


def _link(public_url: str, run: str, wait: str) -> str:
    if not public_url or not run:
        return public_url
    return f"{public_url}/runs/{quote(run, safe='')}" + (f"#wait-{quote(wait, safe='')}" if wait else "")


_PARTS, _PART, _ALL = 10, 2_500, 8_000


def _whole_preview(wait: WaitRow) -> dict[str, str]:
    """Everything that an approval is about; empty if a message cannot show all of it."""
    found = wait.details.get("preview")
    if wait.kind != "approval" or not isinstance(found, Mapping) or WHOLE in wait.details:
        return {}
    parts = {str(name): str(text) for name, text in found.items()}
    if not parts or len(parts) > _PARTS or "left out" in parts or sum(map(len, parts.values())) > _ALL:
        return {}
    return parts if all(0 < len(text) <= _PART for text in parts.values()) else {}


DECISIONS = (APPROVE, DENY)
"""What can be decided from a message; a request for changes needs feedback, so it is made on the page."""
