"""What each person wants to be notified of, and the Slack accounts that are theirs."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from cuebook.config.notifications import Notifications, is_mail_address
from cuebook.formats.quiet_hours import EXPECTED, QuietHours
from cuebook.gate.roles import Principal
from cuebook.kernel.errors import BadInput, NotFound
from cuebook.kernel.notices import WHAT
from cuebook.kernel.ports import Job, Store
from cuebook.kernel.ports.admin_acts import KeptChange
from cuebook.kernel.short_ids import LETTERS

if TYPE_CHECKING:
    from cuebook.service.admin import Administration

PREFERENCES, LINK, CODE = "notify_preferences", "slack_link", "slack_code"
"""The kinds of the records of preferences and links, and of the jobs that are one-time codes."""
CODE_LIVES = 600.0
"""Seconds for which a code links an account."""
_CODE_LENGTH = 10


class Preferences(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a person wants to be notified of. By default, nothing."""

    events: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()
    """The channels over which they get messages of their own: e-mail, or Slack with an app's token."""
    address: str = ""
    """Their e-mail address."""
    runs: Literal["mine", "all"] = "mine"
    """Whose runs. Of the runs of others, they are only notified of what they may see and, of waits, what they may end."""
    playbooks: tuple[str, ...] = ()
    """Names or patterns of the only playbooks that count; all of them if there are none."""
    quiet_hours: str = ""
    """In the time zone; `none` to get everything at once, empty for the usual ones."""
    time_zone: str = ""

    def wants(self, what: str, playbook: str) -> bool:
        fits = not self.playbooks or any(fnmatchcase(playbook, one) for one in self.playbooks)
        return what in self.events and fits


class SlackLink(msgspec.Struct, frozen=True):
    """A Slack account, and the person who decides with it."""

    account: str
    """The team and the user, as in `T0123.U0456`."""
    person: str
    channel: str
    """The configured channel whose app saw the account."""
    at: float
    name: str = ""
    """What Slack called them."""

    @property
    def user(self) -> str:
        return self.account.partition(".")[2]


class People:
    """Preferences and links, for the people who set them. Changes are administrative acts."""

    def __init__(self, store: Store, records: Administration, settings: Notifications) -> None:
        self._store = store
        self._records = records
        self._settings = settings

    # --- preferences ---

    async def preferences(self, who: Principal) -> Preferences:
        who.require("viewer", "have preferences")
        return read_preferences((await self._store.kept(who.tenant, PREFERENCES)).get(who.name))

    async def all_preferences(self, tenant: str) -> dict[str, Preferences]:
        kept = await self._store.kept(tenant, PREFERENCES)
        return {name: read_preferences(body) for name, body in kept.items()}

    async def change(self, who: Principal, changes: Mapping[str, Any]) -> Preferences:
        """Changes some of a person's own preferences; the others stay."""
        who.require("viewer", "have preferences")
        before = (await self._store.kept(who.tenant, PREFERENCES)).get(who.name)
        try:
            after = msgspec.convert({**(before or {}), **changes}, Preferences)
        except msgspec.ValidationError as error:
            raise BadInput(f"Invalid preferences: {error}.", fix="Correct or leave it out.") from None
        after = self._checked(after, changes)
        body = msgspec.to_builtins(after)
        if body != (before or {}):
            change = KeptChange(who.tenant, PREFERENCES, who.name, before, body)
            await self._records.record_act(
                "notify.preferences", who.name, who, {"changed": sorted(changes)}, changes=[change]
            )
        return after

    def _checked(self, made: Preferences, changed: Mapping[str, Any]) -> Preferences:
        unknown = [one for one in made.events if one not in WHAT]
        if unknown:
            raise BadInput(f"There is no event '{unknown[0]}'.", fix=f"The events are {', '.join(WHAT)}.")
        personal = {name: one for name, one in self._settings.channels.items() if one.is_personal}
        for name in made.channels if "channels" in changed else ():
            if name not in personal:
                fix = f"Channels that reach one person: {', '.join(personal) or 'none are configured'}."
                raise BadInput(f"'{name}' is not a channel for messages to one person.", fix=fix)
        if made.address and "address" in changed:
            domains = {one for channel in personal.values() for one in channel.domains}
            if not is_mail_address(made.address):
                raise BadInput("This is not an e-mail address.", fix="Write it as ana@example.com.")
            if made.address.rpartition("@")[2].lower() not in domains:
                words = ", ".join(sorted(domains)) or "none are configured"
                raise BadInput("Messages may not go to this domain.", fix=f"Allowed domains: {words}.")
        hours, zone = made.quiet_hours, made.time_zone
        if hours and hours != "none":
            try:
                found = QuietHours.parse(hours)
            except ValueError:
                raise BadInput(f"Quiet hours {EXPECTED}.", fix="Correct it.") from None
            made = msgspec.structs.replace(made, quiet_hours="none" if found is None else str(found))
        if zone:
            from cuebook.service.triggers.cron import zone_of

            zone_of(zone)
        return made

    # --- Slack accounts ---

    async def new_code(self, account: str, channel: str, name: str, now: float) -> str:
        """A code with which a person who is signed in makes this Slack account theirs, once."""
        code = "".join(secrets.choice(LETTERS) for _ in range(_CODE_LENGTH))
        body = {"account": account, "channel": channel, "name": _printable(name), "until": now + CODE_LIVES}
        await self._store.put_job(Job(tenant="", kind=CODE, name=_digest(code), due=now + CODE_LIVES, body=body))
        return code

    async def link(self, code: str, who: Principal) -> SlackLink:
        """Links the Slack account that was given this code to this person."""
        who.require("viewer", "link accounts")
        job = await self._store.job("", CODE, _digest(code.strip().lower().replace("-", "")))
        now = self._store.now()
        if job is None or job.body["until"] <= now or not await self._store.drop_job(job):
            await self._records.record_act("notify.link", who.name, who, refused=True)
            fix = "Press a button of a message in Slack again, or type /cuebook link there, to get a new code."
            raise BadInput("This code is wrong, was used, or is older than ten minutes.", fix=fix)
        said = job.body
        made = SlackLink(said["account"], who.name, said["channel"], now, said["name"])
        before = (await self._store.kept(who.tenant, LINK)).get(made.account)
        if before is not None and before["person"] != who.name:
            raise BadInput(
                f"The Slack account {made.user} belongs to {before['person']}.",
                fix=f"They, or an admin, can remove it with `cuebook notify unlink {made.account}`.",
            )
        change = KeptChange(who.tenant, LINK, made.account, before, msgspec.to_builtins(made))
        await self._records.record_act("notify.link", made.account, who, {"name": made.name}, changes=[change])
        return made

    async def links(self, who: Principal, *, everyone: bool = False) -> Sequence[SlackLink]:
        """The Slack accounts of a person, or of everyone."""
        who.require("admin" if everyone else "viewer", "see linked accounts")
        found = [msgspec.convert(one, SlackLink) for one in (await self._store.kept(who.tenant, LINK)).values()]
        return [one for one in found if everyone or one.person == who.name]

    async def unlink(self, account: str, who: Principal) -> SlackLink:
        """Removes a person's own Slack account, or for an admin anyone's."""
        who.require("viewer", "link accounts")
        before = (await self._store.kept(who.tenant, LINK)).get(account)
        if before is None or (before["person"] != who.name and not who.may("admin")):
            raise NotFound(f"No Slack account '{account[:60]}' is linked.", fix="`cuebook notify link` lists yours.")
        change = KeptChange(who.tenant, LINK, account, before, None)
        await self._records.record_act("notify.unlink", account, who, {"person": before["person"]}, changes=[change])
        return msgspec.convert(before, SlackLink)

    async def linked(self, tenant: str, account: str) -> SlackLink | None:
        """Who decides with a Slack account."""
        found = (await self._store.kept(tenant, LINK)).get(account)
        return None if found is None else msgspec.convert(found, SlackLink)

    async def account_of(self, tenant: str, person: str, channel: str) -> str:
        """The Slack user to whom messages for a person go; empty if there is none."""
        kept = (await self._store.kept(tenant, LINK)).values()
        mine = [one for one in kept if one["person"] == person and one["channel"] == channel]
        return msgspec.convert(mine[-1], SlackLink).user if mine else ""

    async def principal(self, name: str, tenant: str) -> Principal:
        """A person with their current roles. Raises if they are gone."""
        local = Principal(tenant=tenant)
        return local if name == local.name else await self._records.principal(name, tenant)


def read_preferences(body: Mapping[str, Any] | None) -> Preferences:
    return Preferences() if body is None else msgspec.convert(body, Preferences)


def _printable(name: str) -> str:
    return "".join(one for one in name if one.isprintable())[:80]


def _digest(code: str) -> str:
    return sha256(code.encode()).hexdigest()
