"""Builds the channels of notifications from the configuration. A secret is looked up when a message is sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuebook.config.notifications import ChannelSettings, Notifications
from cuebook.service.notifications.channels import Channel
from cuebook.service.notifications.notifier import Notifier
from cuebook.service.service import Service

if TYPE_CHECKING:
    from cuebook.wiring.wiring import Wiring


def notifier_of(wiring: Wiring, service: Service) -> Notifier:
    """The notifications of a service. Without a table [notifications], there are no channels."""
    settings = wiring.config.notifications or Notifications()
    channels = {name: _channel(wiring, one) for name, one in settings.channels.items()}
    reveal, url = wiring.factory.vault.revealed, wiring.config.get("serve.public_url") or ""
    return service.notifier(settings, channels, reveal, url)


def _channel(wiring: Wiring, settings: ChannelSettings) -> Channel:
    reveal = wiring.factory.vault.revealed
    match settings.kind:
        case "webhook":
            from cuebook.service.notifications.channels.webhook import Webhook

            return Webhook(settings, reveal)
        case "slack":
            from cuebook.service.notifications.channels.slack import Slack

            return Slack(settings, reveal)
        case "email":
            from cuebook.service.notifications.channels.email import Email

            return Email(settings, reveal)
        case "command":
            from cuebook.service.notifications.channels.command import Command

            return Command(settings, wiring.factory.environ)


def problems_of(wiring: Wiring) -> dict[str, str]:
    """Why channels cannot be used, as far as that shows without sending anything; empty for those that can."""
    import shutil
    from pathlib import Path

    from cuebook.kernel.errors import CuebookError

    def problem(one: ChannelSettings) -> str:
        for handle in one.handles:
            try:
                wiring.factory.vault.resolve(handle)
            except CuebookError as error:
                return str(error)
        if one.kind == "command" and shutil.which(one.command[0], path=wiring.factory.environ.get("PATH")) is None:
            return f"The program {one.command[0]} was not found. Install it, or correct the path."
        if one.ca and not Path(one.ca).is_file():
            return f"There is no file {one.ca}. Correct or remove 'ca'."
        return ""

    settings = wiring.config.notifications or Notifications()
    return {name: problem(one) for name, one in settings.channels.items()}
