"""`cuebook notify`: the channels for messages about runs, what becomes of messages, and what each person wants to get."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import Any

import click
import msgspec

from cuebook.kernel.errors import BadInput
from cuebook.kernel.notices import WHAT
from cuebook.service.notifications.notifier import ChannelState, MessageState, Notifier, Status
from cuebook.service.notifications.people import Preferences, SlackLink
from cuebook.service.service import Service
from cuebook.surfaces import display
from cuebook.surfaces.cli import options, session
from cuebook.surfaces.cli.options import Given, command
from cuebook.surfaces.cli.terminal import views
from cuebook.surfaces.cli.terminal.output import say

_NONE = (
    "No channels are configured. Add a table [notifications.channels.NAME] to your cuebook.toml; `cuebook doctor` shows"
    " where that is."
)
_COMMON = [options.AS_USER, options.STORE, options.AS_JSON]
Act = Callable[[Service, Notifier], Awaitable[int]]


@click.group("notify", help="Notify people when runs wait, fail, end or pass a spending mark.")
def notify_command() -> None:
    pass


def _with_notifier(given: Given, act: Act, *, looking: bool = False) -> int:
    wiring = session.wiring_of(given)

    async def work(service: Service) -> int:
        return await act(service, wiring.notifier(service))

    return session.with_service(given, work, looking=looking, wiring=wiring)


@command(
    "test",
    [
        click.Argument(["channel"], required=False, default=""),
        click.Option(["--to"], metavar="NAME", default="", help="Send it to this user, as a message of their own."),
        *_COMMON,
    ],
)
def _test(given: Given) -> int:
    """Send a test message over a channel, or over all of them.

    Exit code 1 means that a channel failed; its error says why. Nothing is tried again.

    Examples:

    \b
    cuebook notify test mail --to ada
    """

    async def act(service: Service, notifier: Notifier) -> int:
        if not notifier.channels:
            raise BadInput("No channels are configured.", fix=_NONE.partition(". ")[2])
        who = await session.acting(service, given)
        results = await notifier.test(given["channel"], who, given["to"])
        if given["as_json"]:
            found = [{"channel": name, "sent": not problem, "error": problem} for name, problem in results.items()]
            sys.stdout.write(views.json_line(found))
        else:
            for name, problem in results.items():
                say(f"{name:<16}{problem or 'sent'}")
        return 1 if any(results.values()) else 0

    return _with_notifier(given, act, looking=True)


@command("status", _COMMON)
def _status(given: Given) -> int:
    """Show the channels, and the messages that are pending, held back or failed, with the last error.

    Messages are delivered by `cuebook serve`, `cuebook worker` and `cuebook mcp`, at the end of `cuebook run`, and by `cuebook
    notify send`.
    """

    async def act(service: Service, notifier: Notifier) -> int:
        return _print_status(given, notifier, await notifier.status(await session.acting(service, given)))

    return _with_notifier(given, act, looking=True)


@command(
    "send",
    [
        click.Option(
            ["--seconds"], type=click.FloatRange(1, 3600), default=30.0, show_default=True, help="How long to try."
        ),
        *_COMMON,
    ],
)
def _send(given: Given) -> int:
    """Deliver what is due now, where no `cuebook serve` or `cuebook worker` runs; for cron, after `cuebook run`."""

    async def act(service: Service, notifier: Notifier) -> int:
        (await session.acting(service, given)).require("admin", "deliver messages")
        return _print_status(given, notifier, await notifier.send_now(given["seconds"]))

    return _with_notifier(given, act, looking=True)


@command("retry", [click.Argument(["channel"], required=False, default=""), *_COMMON])
def _retry(given: Given) -> int:
    """Send failed messages again, for example after a receiver has moved: those of one channel, or of all.

    They become pending, and are delivered like new ones.
    """

    async def act(service: Service, notifier: Notifier) -> int:
        count = await notifier.retry(given["channel"], await session.acting(service, given))
        if given["as_json"]:
            sys.stdout.write(views.json_line({"messages": count}))
        else:
            say(f"{display.counted(count, 'message')} pending again." if count else "There are no failed messages.")
        return 0

    return _with_notifier(given, act, looking=True)


def _print_status(given: Given, notifier: Notifier, status: Status) -> int:
    if given["as_json"]:
        sys.stdout.write(views.json_line(status_object(status)))
        return 0
    for one in status.channels:
        say("  ".join(_channel_words(one)).rstrip())
    if not notifier.channels:
        say(_NONE)
    if status.planned:
        say(f"{display.counted(status.planned, 'notice')} waiting for a process, or for the next reminder")
    for message in status.messages:
        say(f"  {_message_words(message)}")
    if status.overdue:
        say("Nothing has been delivered for minutes: is `cuebook serve` or `cuebook worker` running?")
    return 0


def status_object(status: Status) -> dict[str, Any]:
    made: dict[str, Any] = msgspec.to_builtins(status)
    return made


def _channel_words(one: ChannelState) -> tuple[str, ...]:
    counts = ", ".join(f"{number} {state}" for state, number in one.counts.items() if number and state != "moot")
    since = f"oldest since {display.moment(one.oldest)}" if one.oldest is not None else ""
    kind = one.kind or "not configured here"
    return (f"{one.name:<16}", f"{kind:<8}", counts or "no messages", since, one.error)


def _message_words(one: MessageState) -> str:
    to = f" to {one.to}" if one.to else ""
    due = f", again {display.moment(one.due)}" if one.state in ("pending", "held") and one.due is not None else ""
    tried = f", {display.counted(one.attempts, 'attempt')}" if one.attempts else ""
    what = f"{one.event} {one.playbook or one.run}".rstrip()
    return f"{one.id}  {one.channel}{to}: {what}, {one.state}{tried}{due}{f'. {one.error}' if one.error else ''}"


def _several(name: str, about: str) -> click.Option:
    return click.Option([f"--{name}", f"{name}s"], multiple=True, metavar="NAME", help=f"{about}; repeatable.")


@command(
    "preferences",
    [
        click.Option(
            ["--event", "events"],
            multiple=True,
            type=click.Choice([*WHAT, "none"]),
            help="An event to be notified of; repeatable. `none` turns all off.",
        ),
        _several("channel", "A channel for messages of your own"),
        click.Option(["--address"], metavar="EMAIL", help="Your e-mail address."),
        click.Option(
            ["--runs"], type=click.Choice(["mine", "all"]), help="Only your own runs, or all that you may see."
        ),
        click.Option(
            ["--playbook", "playbooks"],
            multiple=True,
            metavar="NAME",
            help="Only this playbook, or those that fit a pattern; repeatable. '*' means all.",
        ),
        click.Option(["--quiet-hours"], metavar="HOURS", help="Hold messages back, as in 22:00-07:00; or none."),
        click.Option(["--time-zone"], metavar="ZONE", help="The time zone of the quiet hours, as in Europe/Berlin."),
        *_COMMON,
    ],
)
def _preferences(given: Given) -> int:
    """Show what you are notified of, or change it. What is not given stays as it is."""
    names = ("events", "channels", "address", "runs", "playbooks", "quiet_hours", "time_zone")
    changes: dict[str, Any] = {name: given[name] for name in names if given[name] not in (None, ())}
    if "none" in changes.get("events", ()):
        changes["events"] = ()
    if "*" in changes.get("playbooks", ()):
        changes["playbooks"] = ()

    async def act(service: Service, notifier: Notifier) -> int:
        who = await session.acting(service, given)
        people = notifier.people
        found = await people.change(who, changes) if changes else await people.preferences(who)
        links = await people.links(who)
        if given["as_json"]:
            sys.stdout.write(views.json_line(preferences_object(found, links)))
        else:
            say(f"{who.name}\n{_preference_words(found, links)}")
        return 0

    return _with_notifier(given, act, looking=not changes)


def preferences_object(found: Preferences, links: Any) -> dict[str, Any]:
    made = {name: getattr(found, name) for name in Preferences.__struct_fields__}
    return {**msgspec.to_builtins(made), "slack": [msgspec.to_builtins(one) for one in links]}


def _preference_words(found: Preferences, links: Any) -> str:
    rows = {
        "events": ", ".join(found.events) or "none",
        "channels": ", ".join(found.channels) or "none",
        "address": found.address or "none",
        "runs": found.runs,
        "playbooks": ", ".join(found.playbooks) or "all",
        "quiet hours": found.quiet_hours or "the general ones",
        "time zone": found.time_zone or "the general one",
        "slack": ", ".join(one.account for one in links) or "not linked",
    }
    return "\n".join(f"  {name:<12}{value}" for name, value in rows.items())


@command("link", [click.Argument(["code"], required=False, default=""), *_COMMON])
def _link(given: Given) -> int:
    """Link your Slack account with the code that Slack showed you; without a code, list what is linked.

    Press a button of a message in Slack, or type the command of the app there: an account that is not linked gets a code,
    which is valid once and for ten minutes. From then on, what you decide in Slack is decided by you, with your roles.
    """

    async def act(service: Service, notifier: Notifier) -> int:
        who = await session.acting(service, given)
        if given["code"]:
            found = [await notifier.people.link(given["code"], who)]
        else:
            found = list(await notifier.people.links(who, everyone=who.may("admin")))
        if given["as_json"]:
            sys.stdout.write(views.json_line([msgspec.to_builtins(one) for one in found]))
            return 0
        for one in found:
            say(_link_words(one))
        if not found:
            say("No Slack account is linked.")
        return 0

    return _with_notifier(given, act, looking=not given["code"])


def _link_words(one: SlackLink) -> str:
    return f"{one.person}: Slack account {one.account}{f' ({one.name})' if one.name else ''}, since {display.moment(one.at)}"


@command("unlink", [click.Argument(["account"]), options.AS_USER, options.STORE])
def _unlink(given: Given) -> int:
    """Remove a Slack account: your own, or anyone's for an admin. It can no longer decide anything."""

    async def act(service: Service, notifier: Notifier) -> int:
        gone = await notifier.people.unlink(given["account"], await session.acting(service, given))
        say(f"Removed the Slack account {gone.account} of {gone.person}.")
        return 0

    return _with_notifier(given, act, looking=True)


for _command in (_link, _preferences, _retry, _send, _status, _test, _unlink):
    notify_command.add_command(_command)
