"""Requests that Slack makes: clicks on the buttons of messages, and the command that links an account.

A request counts only if the app's signing secret signed it, if it is at most five minutes old, and once. A click decides
for the person who linked the account, with the roles that they have at that moment, and is bound to the digest of what
the message showed.
"""

from __future__ import annotations

import hmac
import json
import logging
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal, cast
from urllib.parse import parse_qs

import msgspec

from cuebook.config.notifications import ChannelSettings
from cuebook.gate.roles import NotAllowed, Origin, Principal
from cuebook.kernel.errors import CuebookError, NotFound, StoreError
from cuebook.kernel.ports import Job, Store
from cuebook.kernel.run import WaitRow
from cuebook.kernel.short_ids import short_id
from cuebook.service.notifications.channels import Undelivered
from cuebook.service.notifications.channels.channel import revealed
from cuebook.service.notifications.channels.slack import Slack, decided, quoted
from cuebook.service.notifications.message import DECISIONS
from cuebook.system.logs import log_event

if TYPE_CHECKING:
    from cuebook.service.notifications.notifier import Notifier


log = logging.getLogger("cuebook.people")

SEEN, UPDATE = "slack_request", "slack_update"
"""The kinds of the jobs that remember requests, and of the changes of messages that Slack is asked for."""
OLDEST = 300.0
"""Seconds after which a request is too old, as Slack recommends."""
_UPDATED_FOR = 3600.0
_WORDS = {"approve": "Approved", "deny": "Denied"}


class BadSlackRequest(NotAllowed):
    """A request that does not come from Slack, or not now."""

    code = "bad_signature"


class Click(msgspec.Struct, frozen=True):
    """A click on a button that decides."""

    account: str
    name: str
    action: str
    wait: str
    digest: str
    place: str
    """The Slack channel of the message."""
    ts: str
    """Which message it is."""
    user: str


class SlackRequests:
    """Verifies requests and does what they ask for."""

    def __init__(self, notifier: Notifier, store: Store) -> None:
        self._notifier = notifier
        self._store = store
        self._people = notifier.people

    async def handle(self, name: str, body: bytes, timestamp: str, signature: str, address: str) -> dict[str, Any]:
        """Returns the response. Raises `BadSlackRequest` for a request that does not count."""
        channel = self._notifier.channels.get(name)
        if not isinstance(channel, Slack) or not channel.settings.signing_secret:
            raise NotFound("There is no such Slack channel.", fix="Configure its signing_secret.")
        try:
            await self._verify(channel.settings, body, timestamp, signature)
        except BadSlackRequest as refused:
            log_event(log, "slack.refused", logging.WARNING, channel=name, why=refused.message, client=address)
            raise
        fields = {key: values[-1] for key, values in parse_qs(body.decode("utf-8", "replace")).items()}
        if "payload" in fields:
            click = _click(fields["payload"])
            if click is not None:
                await self._decide(name, click, address)
            return {}
        account = f"{fields.get('team_id', '')}.{fields.get('user_id', '')}"
        if not _is_account(account):
            return {}
        text = await self._invitation(name, account, fields.get("user_name", ""))
        return {"response_type": "ephemeral", "text": quoted(text)}

    async def _verify(self, settings: ChannelSettings, body: bytes, timestamp: str, signature: str) -> None:
        now = self._store.now()
        number = timestamp if timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= 12 else "0"
        if abs(now - int(number)) > OLDEST:
            raise BadSlackRequest(
                "This request is too old, or its time is wrong.", fix="Check the clock of this machine."
            )
        try:
            secret = await revealed(self._notifier.reveal, settings.signing_secret)
        except Undelivered as problem:
            raise BadSlackRequest("The request cannot be verified now.") from problem
        expected = "v0=" + hmac.new(secret.encode(), b"v0:" + timestamp.encode() + b":" + body, sha256).hexdigest()
        if not hmac.compare_digest(expected.encode(), signature.encode("utf-8", "replace")):
            raise BadSlackRequest("The signature of this request is wrong.", fix="Check the signing secret of the app.")
        seen = Job(tenant="", kind=SEEN, name=f"{settings.name}.{expected[3:]}", due=now + 2 * OLDEST)
        if await self._store.put_job(seen) is None:
            raise BadSlackRequest("This request was already handled.")

    async def _decide(self, name: str, click: Click, address: str) -> None:
        """Decides as the linked person, and says in Slack what became of it."""
        service = self._notifier.service
        try:
            wait = await self._store.wait(click.wait)
        except NotFound:
            await self._tell(name, click, "This is no longer there.")
            return
        link = await self._people.linked(wait.tenant, click.account)
        if link is None:
            await self._tell(name, click, await self._invitation(name, click.account, click.name))
            return
        who = Principal(link.person, wait.tenant, frozenset())
        try:
            who = await self._people.principal(link.person, wait.tenant)
            who = msgspec.structs.replace(
                who, through=f"Slack account {click.account}", origin=Origin("slack", address)
            )
            if click.digest != str(wait.details.get("digest", "")) or not click.digest:
                raise NotAllowed("The message shows something else than what is to be decided.", fix="Open its page.")
            decision = cast(Literal["approve", "deny"], click.action)
            done = await service.decide(wait.id, decision, who)
        except StoreError:
            raise
        except CuebookError as error:
            details = {"decision": click.action, "why": error.code, "account": click.account}
            await service.record_act("notify.slack", wait.id, who, details, refused=True)
            await self._tell(name, click, str(error))
            return
        await self._replace(name, click, wait, done, who)

    async def _invitation(self, name: str, account: str, called: str) -> str:
        code = await self._people.new_code(account, name, called, self._store.now())
        url = self._notifier.public_url
        where = f"{url}/settings/notifications, or on the command line with " if url else ""
        return (
            "This Slack account is not linked to anyone in Cuebook yet. If it is yours, sign in to Cuebook and enter the code"
            f" {code} at {where}`cuebook notify link {code}`. It is valid for ten minutes; show it to nobody."
        )

    # --- messages to Slack ---

    async def _tell(self, name: str, click: Click, words: str) -> None:
        said = {"channel": click.place, "user": click.user, "text": quoted(words), "parse": "none"}
        await self._ask(name, click, "chat.postEphemeral", said)

    async def _replace(self, name: str, click: Click, wait: WaitRow, done: WaitRow, who: Principal) -> None:
        """Replaces the buttons of the message by what was decided, or tells the person that their vote was counted."""
        if done.state == "open":
            await self._tell(name, click, "Your vote was counted. More votes are needed.")
            return
        row = await self._store.run(wait.run)
        words = f"{_WORDS[click.action]} by {who.name}. Id {short_id(wait.id)}"
        title = self._notifier.service.masked(f"{row.name}: {wait.prompt}")[:2_000]
        said = {"channel": click.place, "ts": click.ts, **decided(title, words)}
        await self._ask(name, click, "chat.update", said)

    async def _ask(self, name: str, click: Click, method: str, said: dict[str, Any]) -> None:
        now = self._store.now()
        key = sha256(f"{click.wait} {click.account} {click.ts} {method} {now!r}".encode()).hexdigest()[:24]
        body = {"channel": name, "method": method, "said": said, "since": now, "attempts": 0}
        await self._store.put_job(Job(tenant="", kind=UPDATE, name=key, due=now, body=body))

    async def update(self, job: Job) -> Job | None:
        """Does what Slack is to be asked for; for an hour, if it cannot be reached."""
        body, now = job.body, self._store.now()
        channel = self._notifier.channels.get(str(body["channel"]))
        if not isinstance(channel, Slack) or now - float(body["since"]) > _UPDATED_FOR:
            return None
        try:
            await channel.call(str(body["method"]), dict(body["said"]))
        except Undelivered as problem:
            attempts = int(body["attempts"]) + 1
            if problem.final or attempts > 10:
                return None
            pause = max(problem.after or 0.0, min(2.0**attempts, 300.0))
            return msgspec.structs.replace(job, due=now + pause, body={**body, "attempts": attempts})
        return None


def _click(payload: str) -> Click | None:
    """The click in a payload; None if it is something else, such as a button that is only a link."""
    try:
        said = json.loads(payload)
        if said["type"] != "block_actions":
            return None
        action = next((one for one in said["actions"] if one.get("action_id") in DECISIONS), None)
        if action is None:
            return None
        wait, _, digest = str(action["value"]).partition(".")
        place, user = said["container"], said["user"]
        team = (said.get("team") or {}).get("id") or user["team_id"]  # an app of a whole organisation has no team
        account = f"{team}.{user['id']}"
        made = Click(
            account,
            str(user.get("username") or user.get("name") or "")[:80],
            str(action["action_id"]),
            wait[:64],
            digest[:128],
            str(place["channel_id"])[:64],
            str(place["message_ts"])[:64],
            str(user["id"])[:64],
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return made if _is_account(account) else None


def _is_account(account: str) -> bool:
    team, dot, user = account.partition(".")
    return all(one.isascii() and one.isalnum() and len(one) <= 40 for one in (team, user)) and bool(dot)
