"""Targets of rules: URLs as `egress` rules see them, and paths as `files` rules see them. No file is read here."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from functools import lru_cache
from posixpath import normpath
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from cuebook.gate.policy.model import Decision
from cuebook.gate.policy.patterns import fits, fits_path, is_literal

PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}

_METHOD = re.compile(r"[A-Za-z-]+", re.ASCII)
_METHOD_PATTERN = re.compile(r"[A-Za-z*?-]+", re.ASCII)
_SCHEME = re.compile(r"([A-Za-z*][A-Za-z0-9+.*-]*)://", re.ASCII)
_HOST = re.compile(r"(?!-)[a-z0-9_-]{1,63}(\.(?!-)[a-z0-9_-]{1,63})*", re.ASCII)
_HOST_PATTERN = re.compile(r"[a-z0-9_.*?:-]+", re.ASCII)
_NUMERIC = re.compile(r"(.*\.)?(\d+|0x[0-9a-f]*)", re.ASCII)
_WHOLE_LABELS = re.compile(r"\*|\*\.[^*?]+|[^*?]+")
_UNFIT = re.compile(r"[\x00-\x20\x7f-\xa0\\]")
_DISPUTED = re.compile("[\u00df\u1e9e\u03c2\u200c\u200d]")
"""Letters that the two standards for internationalized domain names map to different hosts."""


TUNNEL = "CONNECT"
"""The method of a command that may reach a host. What it requests there cannot be seen."""


class Address(NamedTuple):
    method: str
    scheme: str
    host: str
    port: int
    path: str
    """As written, with `.` and `..` resolved."""
    meant: str
    """As a server may read it: decoded, and with single slashes."""


class AddressPattern(NamedTuple):
    """A field that is None matches anything, except for the port: see `allows`."""

    method: str | None
    scheme: str | None
    host: str
    port: int | str | None
    path: str | None

    def allows(self, address: Address) -> bool:
        """For rules that permit: without a port, only the default port matches; every reading of the path must match. A
        command may reach a host only by a rule for everything on it.
        """
        if address.method == TUNNEL:
            return self._allows_tunnel(address)
        if not self._fits_place(address.method, address.scheme, address.host):
            return False
        return self._opens_port(address) and (
            self.path is None or (fits(self.path, address.path) and fits(unquote(self.path), address.meant))
        )

    def catches(self, address: Address) -> bool:
        """For rules that restrict: without a port, every port matches; one matching reading of the path is enough. A rule
        for a part of a host matches a command that may reach the host.
        """
        if address.method == TUNNEL:
            usual = PORTS.get(self.scheme or "") == PORTS[address.scheme]  # wss:// restricts https://, too
            same = usual or self._fits_scheme(address)
            return fits(self.host, address.host) and self._fits_port(address.port) and same
        if not self._fits_place(address.method, address.scheme, address.host) or not self._fits_port(address.port):
            return False
        return self.path is None or fits(self.path, address.path) or fits(self.path, address.meant)

    def names(self, host: str, port: int) -> bool:
        """Whether it names exactly this host and port."""
        if not is_literal(self.host) or self.host != host:
            return False
        if self.port is None:
            return port in (PORTS.values() if self.scheme is None else (PORTS.get(self.scheme),))
        return self._fits_port(port)

    def covers(self, host: str, port: int) -> bool:
        """Whether it covers everything on this host."""
        everything = self.method in (None, "*") and self.path in (None, "*", "/*")
        return everything and fits(self.host, host) and self._fits_port(port)

    def _allows_tunnel(self, address: Address) -> bool:
        whole = self.path in (None, "/*") or (self.method == TUNNEL and self.path == "/")
        methods = self.method is None or fits(self.method, TUNNEL)
        place = fits(self.host, address.host) and self._opens_port(address) and self._fits_scheme(address)
        return whole and methods and place

    def _fits_scheme(self, address: Address) -> bool:
        """For tunnels. A port that is not a default has one protocol, with TLS or without, so any scheme fits."""
        return self.scheme is None or fits(self.scheme, address.scheme) or address.port not in PORTS.values()

    def _opens_port(self, address: Address) -> bool:
        usual = address.port == PORTS.get(address.scheme)
        return self._fits_port(address.port) if self.port is not None else self.host == "*" or usual

    def _fits_place(self, method: str, scheme: str, host: str) -> bool:
        return (
            fits(self.host, host)
            and (self.scheme is None or fits(self.scheme, scheme))
            and (self.method is None or fits(self.method, method))
        )

    def _fits_port(self, port: int) -> bool:
        return self.port in (None, "*", port)


@lru_cache(maxsize=1024)
def address_of(target: str) -> Address | None:
    """The parts of `METHOD URL`, or None if programs could interpret it differently."""
    method, _, url = target.partition(" ")
    if not _METHOD.fullmatch(method) or _UNFIT.search(url):
        return None
    try:
        parts = urlsplit(url)
        host = canonical_host(parts.hostname or "")
        port = parts.port
    except ValueError:
        return None
    if host is None or not parts.scheme:
        return None
    scheme = parts.scheme.lower()
    port = PORTS.get(scheme) if port is None else port
    if port is None:
        return None
    path = parts.path or "/"
    meant = re.sub("/+", "/", unquote(path))
    return Address(method.upper(), scheme, host, port, _without_dots(path), _without_dots(meant))


def canonical_host(host: str) -> str | None:
    """One spelling for each host; None if it is not a host name, such as a number that hides an address."""
    host = host.removeprefix("[").removesuffix("]").lower().removesuffix(".")
    if "%" in host or _DISPUTED.search(host):
        return None
    try:
        address = ipaddress.ip_address(host)
        return str(getattr(address, "ipv4_mapped", None) or address)
    except ValueError:
        pass
    if _NUMERIC.fullmatch(host):
        return None
    if not host.isascii():
        try:
            host = host.encode("idna").decode()
        except UnicodeError:
            return None
    return host if _HOST.fullmatch(host) else None


@lru_cache(maxsize=4096)
def parsed(pattern: str) -> AddressPattern:
    """Parses `[METHOD ][SCHEME://]HOST[:PORT][/PATH]`. Raises `ValueError` with a message for the user."""
    method, rest = _method_of(pattern)
    if _UNFIT.search(rest) or not rest:
        raise ValueError("must be a URL pattern")
    found = _SCHEME.match(rest)
    scheme = found[1].lower() if found and found[1] != "*" else None
    rest = rest[found.end() :] if found else rest
    place, slash, path = rest.partition("/")
    if "@" in place:
        raise ValueError("must not contain a user or password")
    host, port = _port_of(place)
    return AddressPattern(method, scheme, host, port, f"/{path}" if slash else None)


def whole_labels(pattern: str) -> bool:
    """Whether a wildcard in its host matches whole leading labels, or any host."""
    return bool(_WHOLE_LABELS.fullmatch(parsed(pattern).host))


def _method_of(pattern: str) -> tuple[str | None, str]:
    method, blank, rest = pattern.partition(" ")
    if not blank:
        return None, pattern
    if not _METHOD_PATTERN.fullmatch(method):
        raise ValueError("must begin with a method or a URL, as in GET https://example.com/*")
    return method.upper(), rest.strip(" ")


def _port_of(place: str) -> tuple[str, int | str | None]:
    bracketed = re.fullmatch(r"\[([^\[\]]*)\](?::(.*))?", place)
    if bracketed:
        host, port = bracketed[1], bracketed[2]
    else:
        host, colon, after = place.partition(":")
        port = after if colon else None
    if port is not None and port != "*" and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ValueError("must have a number or * as its port, and brackets around an IPv6 address")
    host = host.lower()
    if is_literal(host):
        known = canonical_host(host)
        if known is None:
            raise ValueError("must name a host, as in api.example.com")
        host = known
    elif not _HOST_PATTERN.fullmatch(host):
        raise ValueError("must name a host, as in *.example.com")
    return host.removesuffix("."), int(port) if port is not None and port != "*" else port


def _without_dots(path: str) -> str:
    kept: list[str] = []
    parts = path.split("/")[1:]
    for part in parts:
        if part == "..":
            del kept[-1:]
        elif part != ".":
            kept.append(part)
    if parts[-1:] and parts[-1] in (".", ".."):
        kept.append("")
    return "/" + "/".join(kept)


MODES = ("read", "write")


class FileTarget:
    def __init__(self, target: str) -> None:
        self.mode, _, self.path = target.partition(":")
        parts = self.path.split("/")
        self.flawed = self.mode not in MODES or not self.path or "\0" in self.path or ".." in parts
        self.outside = self.path.startswith("/")
        self._meant = normpath(self.path).replace("//", "/") if self.path else ""

    def caught_by(self, pattern: str) -> bool:
        mode, path = mode_and_path(pattern)
        return mode in (None, self.mode) and (fits_path(path, self.path) or fits_path(path, self._meant))

    def allowed_by(self, patterns: Sequence[str]) -> tuple[int, ...]:
        return next(((number,) for number, pattern in enumerate(patterns) if self._allowed(pattern)), ())

    @property
    def built_in(self) -> tuple[Decision, str]:
        if self.flawed or self.outside:
            return "deny", "paths outside the workspace are denied"
        if self.mode == "read":
            return "allow", "reading in the workspace is allowed"
        return "ask", "writing in the workspace needs approval"

    def _allowed(self, pattern: str) -> bool:
        mode, path = mode_and_path(pattern)
        # `**` means the workspace: a path outside it must be written out.
        if self.flawed or mode not in (None, self.mode) or self.outside != path.startswith("/"):
            return False
        return fits_path(path, self._meant)


def mode_and_path(pattern: str) -> tuple[str | None, str]:
    """The mode of a pattern, or None for both, and its path."""
    mode, colon, path = pattern.partition(":")
    if colon and mode in (*MODES, "*"):
        return (None if mode == "*" else mode), path
    return None, pattern
