"""Hands user names and passwords to git, for the hosts of one command, through a credential helper in its environment.

The password is in that environment and nowhere else: not in an argument, a URL or a file.
"""

from __future__ import annotations

from collections.abc import Mapping

from cuebook.formats.addresses import Place, parse_place
from cuebook.kernel.effects import RunCommand

AT = "credentials."
"""Begins the places of their secrets in an effect."""
_COUNT = "GIT_CONFIG_COUNT"
_LOOPBACK = ("127.0.0.1", "[::1]", "localhost")
_HELPER = '!f() { test "$1" = get && printf "username=%s\\npassword=%s\\n" "$CUEBOOK_USERNAME_{0}" "$CUEBOOK_PASSWORD_{0}"; }; f'


def environment(effect: RunCommand, secrets: Mapping[str, str], env: Mapping[str, str]) -> dict[str, str]:
    """The variables that configure git, after those that `env` has already."""
    known = env.get(_COUNT, "")
    first = int(known) if known.isascii() and known.isdigit() else 0
    made: dict[str, str] = {}
    for number, (host, username) in enumerate(effect.credentials.items(), first):
        made |= {
            f"CUEBOOK_USERNAME_{number}": username,
            f"CUEBOOK_PASSWORD_{number}": secrets.get(f"{AT}{host}", ""),
            f"GIT_CONFIG_KEY_{number}": f"credential.{_origin(parse_place(host))}.helper",
            f"GIT_CONFIG_VALUE_{number}": _HELPER.replace("{0}", str(number)),
            _COUNT: str(number + 1),
        }
    return made


def shown(effect: RunCommand) -> str:
    """Who git signs in as, with the handles of the passwords."""
    handles = {use.at: use.form.replace("{}", f"[secret {use.handle}]") for use in effect.secrets}
    return "\n".join(
        f"{host}: {username}, {handles.get(f'{AT}{host}', 'no password')}"
        for host, username in effect.credentials.items()
    )


def _origin(place: Place) -> str:
    """The beginning of the URLs that they are for: https, or on this machine http unless the port is that of https."""
    plain = place.host in _LOOPBACK and place.port != 443
    return f"{'http' if plain else 'https'}://{place}"
