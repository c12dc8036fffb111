"""The variables that lead the programs of a confined process to its proxy, instead of those that lead elsewhere."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

import msgspec

from cuebook.kernel.ports import Confinement

PORT = 3128
"""The port of the proxy, as the process sees it."""
URL = f"http://127.0.0.1:{PORT}"

_ABOUT_PROXIES = re.compile(r"(npm_config_|yarn_|pip_|ws_|wss_)?(http|https|ftp|all|no|socks)?_?(proxy|noproxy)", re.I)
_LED = (
    *("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"),
    *("npm_config_proxy", "npm_config_https_proxy", "YARN_HTTP_PROXY", "YARN_HTTPS_PROXY", "PIP_PROXY"),
)
_COUNT = "GIT_CONFIG_COUNT"
_CERTIFICATES = "SSL_CERT_FILE"
_SAME_CERTIFICATES = ("CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "REQUESTS_CA_BUNDLE", "PIP_CERT", "NODE_EXTRA_CA_CERTS")


def proxied(confinement: Confinement) -> Confinement:
    """The confinement with the variables that lead to the proxy, and with the certificates that we trust ourselves."""
    env, readable = led_to_proxy(confinement.env), confinement.readable
    ours = os.environ.get(_CERTIFICATES, "")
    if os.path.isfile(ours):  # the system's own are always readable
        env = {**dict.fromkeys((_CERTIFICATES, *_SAME_CERTIFICATES), ours), **env}
        readable = (*readable, ours)
    return msgspec.structs.replace(confinement, env=env, readable=readable)


def led_to_proxy(env: Mapping[str, str]) -> dict[str, str]:
    """The environment with its proxy settings replaced. git gets its own, because a repository's would take precedence."""
    kept = {name: value for name, value in env.items() if not _ABOUT_PROXIES.fullmatch(name)}
    known = kept.get(_COUNT, "")
    number = int(known) if known.isascii() and known.isdigit() else 0
    return {
        **kept,
        **dict.fromkeys(_LED, URL),
        "no_proxy": "",
        "NO_PROXY": "",
        "npm_config_noproxy": "",
        "NODE_USE_ENV_PROXY": "1",
        _COUNT: str(number + 1),
        f"GIT_CONFIG_KEY_{number}": "http.proxy",
        f"GIT_CONFIG_VALUE_{number}": URL,
    }
