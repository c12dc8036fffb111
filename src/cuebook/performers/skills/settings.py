"""The settings of the built-in skills: their names, and their values from the configuration and the environment.

They can be read without the tools, which are loaded only when one of them is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from string import Formatter

import msgspec

from cuebook.kernel.errors import BadInput


class Setting(msgspec.Struct, frozen=True):
    """A setting of a skill, from the user's configuration or the environment, with the same name in both."""

    name: str
    what: str
    """A description for the user who sets it."""
    secret: bool = False
    default: str = ""
    """The default; it may refer to other settings, as in `https://api.{DD_SITE}`."""


SETTINGS: dict[str, tuple[Setting, ...]] = {
    "github": (
        Setting("GITHUB_TOKEN", "A token with the permissions that the tools need.", secret=True),
        Setting(
            "GITHUB_API_URL", "The URL of the REST API of your own installation.", default="https://api.github.com"
        ),
    ),
    "linear": (
        Setting("LINEAR_API_KEY", "A personal API key.", secret=True),
        Setting("LINEAR_API_URL", "The URL of the GraphQL API.", default="https://api.linear.app/graphql"),
    ),
    "sentry": (
        Setting("SENTRY_AUTH_TOKEN", "A token that may read events.", secret=True),
        Setting("SENTRY_ORG", "The short name of the organization."),
        Setting("SENTRY_BASE_URL", "The URL of your own installation.", default="https://sentry.io"),
    ),
    "datadog": (
        Setting("DD_API_KEY", "An API key.", secret=True),
        Setting("DD_APP_KEY", "An application key with read access.", secret=True),
        Setting("DD_SITE", "The site of your account.", default="datadoghq.com"),
        Setting("DD_API_URL", "The URL of the API, if it is not the site's.", default="https://api.{DD_SITE}"),
    ),
    "betterstack": (
        Setting("BETTERSTACK_API_TOKEN", "A token for the Telemetry API.", secret=True),
        Setting("BETTERSTACK_API_URL", "The URL of the Telemetry API.", default="https://telemetry.betterstack.com"),
        Setting("BETTERSTACK_QUERY_ENDPOINT", "The URL for SQL, as in https://eu-nbg-2-connect.betterstackdata.com."),
        Setting("BETTERSTACK_QUERY_USERNAME", "The user of the SQL connection."),
        Setting("BETTERSTACK_QUERY_PASSWORD", "The password of the SQL connection.", secret=True),
    ),
    "slack": (
        Setting("SLACK_BOT_TOKEN", "A bot token that may write messages.", secret=True),
        Setting("SLACK_WEBHOOK_URL", "The URL of an incoming webhook.", secret=True),
        Setting("SLACK_API_URL", "The URL of the Web API.", default="https://slack.com/api"),
    ),
    "notification": (
        Setting("NOTIFICATION_WEBHOOK_URL", "The URL that notifications are posted to as JSON.", secret=True),
        Setting("DISCORD_WEBHOOK_URL", "The URL of a Discord webhook.", secret=True),
        Setting("TEAMS_WEBHOOK_URL", "The URL of a Microsoft Teams webhook.", secret=True),
    ),
}
"""The settings of each built-in skill."""


class Configured(msgspec.Struct, frozen=True):
    """The settings of a skill in the user's configuration."""

    values: Mapping[str, str]
    """By the names of its settings; a secret is given by its handle."""
    where: str = ""
    """The file and line, for messages."""


class SkillSettings(msgspec.Struct, frozen=True):
    """The settings of a skill from configuration and environment."""

    values: dict[str, str]
    handles: dict[str, str]
    """The handles of the secrets among its settings."""

    def has(self, setting: str) -> bool:
        return setting in self.values or setting in self.handles


def settings_of(environ: Mapping[str, str], configured: Mapping[str, Configured]) -> dict[str, SkillSettings]:
    """The settings of every built-in skill. The configuration takes precedence over the environment.

    Raises `BadInput` for an unknown setting, or for a secret that is not given by its handle.
    """
    return {skill: _settings(skill, environ, configured.get(skill, Configured({}))) for skill in SETTINGS}


def _settings(skill: str, environ: Mapping[str, str], given: Configured) -> SkillSettings:
    known = [setting.name for setting in SETTINGS[skill]]
    for name in given.values:
        if name not in known:
            raise BadInput(
                f"{given.where}: the skill '{skill}' has no setting '{name}'.",
                fix=f"It has {', '.join(known)}.",
            )
    values: dict[str, str] = {}
    handles: dict[str, str] = {}
    for setting in SETTINGS[skill]:
        own, around = given.values.get(setting.name, ""), environ.get(setting.name, "").strip()
        if setting.secret and own and own.partition(":")[0] not in ("env", "keyring", "file", "secret"):
            raise BadInput(
                f"{given.where}: {setting.name} must be the handle of a secret; a secret is never written into a file.",
                fix='Write it like "env:NAME", "keyring:NAME", "file:/path", or "secret:NAME" for one of [secrets].',
            )
        if setting.secret and (own or around):
            handles[setting.name] = own or f"env:{setting.name}"
        elif own or around:
            values[setting.name] = own or around
        elif setting.default:
            values[setting.name] = Formatter().vformat(setting.default, (), values)
    return SkillSettings(values, handles)


def secret_handles(settings: Mapping[str, SkillSettings]) -> list[str]:
    """The handles of the secrets that the skills use."""
    return [handle for one in settings.values() for handle in one.handles.values()]
