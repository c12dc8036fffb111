"""Valid URLs, and the addresses that may be connected to.

There is only one parser: a URL is parsed once, and everything that is shown, checked and sent is built from its parts.
Nothing here looks up a name or opens a connection.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from ipaddress import AddressValueError, IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import NamedTuple, NoReturn

import msgspec

from cuebook.kernel.errors import BadInput

Address = IPv4Address | IPv6Address

Private = Callable[[str, int], bool]
"""Whether a rule allows exactly this host and port, although the host is not public."""

MOST_CHARACTERS = 8_000

_DEFAULT_PORTS = {"http": 80, "https": 443}
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
# Hosts that the C library and browsers would read as a number and turn into an address.
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_UNENCODED = re.compile(r"[^!#$%&'()*+,\-./0-9:;=?@A-Z\[\]_a-z~]")


class BadUrl(BadInput):
    """The URL cannot be used."""

    code = "bad_url"


class BadHost(BadInput):
    """The host cannot be used."""

    code = "bad_host"


class RefusedAddress(BadInput):
    """The address is not public."""

    code = "refused_address"


class Url(msgspec.Struct, frozen=True):
    """A parsed URL. Every part is ASCII and in normal form."""

    scheme: str
    host: str
    """A name in lower case without a final dot, or an address; IPv6 without brackets."""
    port: int
    path: str
    """Begins with `/` and contains no `.` or `..`."""
    query: str = ""
    """With its `?`; empty if there is none."""

    @property
    def authority(self) -> str:
        """The value of the `Host` header: the host, and the port unless it is the scheme's default."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def origin(self) -> str:
        return f"{self.scheme}://{self.authority}"

    @property
    def address(self) -> Address | None:
        """The host as an address; None if it is a name."""
        return _address(self.host)

    @property
    def place(self) -> str:
        """The target of a policy rule: everything except the query."""
        return f"{self.origin}{self.path}"

    @property
    def target(self) -> str:
        return f"{self.path}{self.query}"

    def __str__(self) -> str:
        return f"{self.origin}{self.target}"


# --- parsing ----------------------------------------------------------------------------------------


def parse_url(given: str) -> Url:
    """Parses an absolute URL. Raises `BadUrl` for anything that two parsers could interpret differently."""
    _check_characters(given)
    found = _SCHEME.match(given)
    if found is None:
        _refuse(given, "has no scheme", "Begin it with https://.")
    scheme = found[1].lower()
    if scheme not in _DEFAULT_PORTS:
        _refuse(given, f"has the scheme '{scheme}'", "Use http or https.")
    rest = given[found.end() :]
    if not rest.startswith("//"):
        _refuse(given, "has no // after its scheme", f"Begin it with {scheme}://.")
    rest = rest[2:].partition("#")[0]
    end = min((at for at in (rest.find("/"), rest.find("?")) if at >= 0), default=len(rest))
    host, port = _host_and_port(given, rest[:end], _DEFAULT_PORTS[scheme])
    path, mark, query = rest[end:].partition("?")
    return Url(scheme, host, port, _normal_path(given, path), _encoded(mark + query))


def resolve_url(origin: Url, given: str) -> Url:
    """The URL of a `Location` header in a response from `origin`."""
    _check_characters(given, empty=True)
    if _SCHEME.match(given):
        return parse_url(given)
    if given.startswith("//"):
        return parse_url(f"{origin.scheme}:{given}")
    reference, _, _ = given.partition("#")
    path, mark, query = reference.partition("?")
    if not path:
        return msgspec.structs.replace(origin, query=_encoded(mark + query) if mark else origin.query)
    if not path.startswith("/"):
        path = origin.path[: origin.path.rfind("/") + 1] + path
    return msgspec.structs.replace(origin, path=_normal_path(given, path), query=_encoded(mark + query))


def _check_characters(given: str, *, empty: bool = False) -> None:
    if not given and not empty:
        raise BadUrl("The URL is empty.", fix="Use a URL that begins with https://.")
    if len(given) > MOST_CHARACTERS:
        raise BadUrl(f"The URL has {len(given)} characters.", fix=f"Use at most {MOST_CHARACTERS}.")
    for character in given:
        if character.isspace() or character == "\\" or ord(character) < 0x20 or 0x7F <= ord(character) < 0xA0:
            _refuse(given, f"contains the character {character!a}", "Percent-encode it.")
    try:
        given.encode()
    except UnicodeEncodeError:
        _refuse(given, "contains an unpaired surrogate", "Percent-encode complete characters.")


def _host_and_port(given: str, authority: str, default: int) -> tuple[str, int]:
    if "@" in authority:
        _refuse(
            given, "contains credentials before an '@'", "Send them as a header, from a secret; encode an '@' as %40."
        )
    if "%" in authority:
        _refuse(given, "has an encoded host or a zone", "Write the host without encoding or zone.")
    if authority.startswith("["):
        inner, bracket, port = authority[1:].partition("]")
        if not bracket or (port and not port.startswith(":")):
            _refuse(given, "has a malformed IPv6 host", "Write it like http://[2001:4860::1]:80/.")
        return _ipv6(given, inner), _port(given, port[1:], default, bool(port))
    name, colon, port = authority.partition(":")
    return _host(given, name), _port(given, port, default, bool(colon))


def _port(given: str, text: str, default: int, stated: bool) -> int:
    if not stated:
        return default
    port = int(text) if re.fullmatch(r"[0-9]{1,5}", text, re.ASCII) else 0
    if not 0 < port < 65536:
        _refuse(given, "has an invalid port", "Use a port from 1 to 65535, or none.")
    return port


def _ipv6(given: str, text: str) -> str:
    try:
        return str(IPv6Address(text))
    except AddressValueError:
        _refuse(given, "has a malformed IPv6 host", "Write it like http://[2001:4860::1]/.")


def _host(given: str, text: str) -> str:
    if not text:
        _refuse(given, "has no host", "Write it like https://example.com/.")
    name = text.lower() if text.isascii() else _idna(given, text)
    name = name.removesuffix(".")
    labels = name.split(".")
    if len(name) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        _refuse(given, "has a malformed host", "Write it like https://example.com/.")
    if not _NUMBER.fullmatch(labels[-1]):
        return name
    plain = _address(name)
    if plain is None or text != name:
        _refuse(
            given,
            "has an address in an unusual form as its host",
            "Write it like http://192.0.2.1/, with four numbers.",
        )
    return name


def _idna(given: str, text: str) -> str:
    idna = importlib.import_module("idna")
    try:
        return str(idna.encode(text, uts46=True).decode("ascii")).lower()
    except UnicodeError:
        _refuse(given, "has an invalid international domain name", "Check its spelling.")


def _address(host: str) -> Address | None:
    try:
        return IPv6Address(host) if ":" in host else IPv4Address(host)
    except AddressValueError:
        return None


def _normal_path(given: str, path: str) -> str:
    """The path without `.` and `..`, even if encoded: servers resolve them, but a policy would not."""
    kept: list[str] = []
    segments = path.split("/")[1:]
    for index, segment in enumerate(segments):
        plain = re.sub("%2e", ".", segment, flags=re.IGNORECASE)
        last = index == len(segments) - 1
        if plain in (".", ".."):
            if plain == ".." and kept:
                kept.pop()
            if last:
                kept.append("")
        elif {".", ".."} & set(re.split("%2f|%5c", plain, flags=re.IGNORECASE)):
            _refuse(given, "hides a '..' in its path behind an encoded slash", "Write the path without it.")
        else:
            kept.append(segment)
    return _encoded("/" + "/".join(kept))


def _encoded(text: str) -> str:
    return _UNENCODED.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), text)


def _refuse(given: str, what: str, fix: str) -> NoReturn:
    # The part before an '@' may be a password.
    open_part = re.sub(r"//[^/?#]*@", "//***@", given)
    shown = ascii(open_part if len(open_part) <= 200 else open_part[:200] + "...")
    raise BadUrl(f"The URL {shown} {what}.", fix=fix)


class Place(NamedTuple):
    """A host and a port, as a command that needs the network lists them."""

    host: str
    """In normal form, as in `Url`."""
    port: int

    @property
    def url(self) -> Url:
        """Its root, with the scheme that is usual on the port."""
        return Url("http" if self.port == _DEFAULT_PORTS["http"] else "https", self.host, self.port, "/")

    def __str__(self) -> str:
        return Url("https", self.host, self.port, "/").authority


def parse_place(given: str) -> Place:
    """Parses `HOST` or `HOST:PORT`; without a port, it is 443. Raises `BadHost`."""
    try:
        if not given or any(mark in given for mark in "/?#"):
            raise BadUrl(given)
        url = parse_url(f"https://{given}")
    except BadUrl:
        raise BadHost(
            f"{given[:200]!a} is not a host.",
            fix="Write a host's full name, as in api.example.com or api.example.com:8443, without wildcards.",
        ) from None
    return Place(url.host, url.port)


# --- addresses --------------------------------------------------------------------------------------

_V4 = {
    "0.0.0.0/8": "unspecified",
    "10.0.0.0/8": "private",
    "100.64.0.0/10": "shared",
    "127.0.0.0/8": "loopback",
    "168.63.129.16/32": "metadata",  # looks public, but every Azure machine reaches its host there
    "169.254.0.0/16": "link-local",
    "172.16.0.0/12": "private",
    "192.0.0.0/24": "reserved",
    "192.0.2.0/24": "documentation",
    "192.88.99.0/24": "6to4",
    "192.168.0.0/16": "private",
    "198.18.0.0/15": "benchmark",
    "198.51.100.0/24": "documentation",
    "203.0.113.0/24": "documentation",
    "224.0.0.0/4": "multicast",
    "240.0.0.0/4": "reserved",
}

_V6 = {
    "::/128": "unspecified",
    "::1/128": "loopback",
    "::/96": "IPv4-compatible",
    "::ffff:0:0/96": "IPv4-mapped",
    "2001::/32": "Teredo",
    "2001::/23": "reserved",
    "2001:db8::/32": "documentation",
    "2002::/16": "6to4",
    "3fff::/20": "documentation",
    "fd00:ec2::/32": "metadata",
    "fc00::/7": "private",
    "fe80::/10": "link-local",
    "fec0::/10": "site-local",
    "ff00::/8": "multicast",
}

_FORBIDDEN_V4 = [(IPv4Network(network), kind) for network, kind in _V4.items()]
_FORBIDDEN_V6 = [(IPv6Network(network), kind) for network, kind in _V6.items()]
_PUBLIC_V6 = IPv6Network("2000::/3")
_NAT64 = IPv6Network("64:ff9b::/96")

_LOCAL_NAMES = ("localhost", "ip6-localhost", "ip6-loopback", "localhost.localdomain")
_LOCAL_DOMAINS = (".localhost", ".localdomain", ".local", ".internal", ".intranet", ".lan", ".home.arpa")

# A rule that allows a host refers to machines on the local network; a name that suddenly resolves to a cloud metadata
# service is an attack.
_MEANT_BY_A_NAME = ("private", "shared", "loopback")


def kind_of(address: Address) -> str:
    """Why an address is not public, in one word; empty if it is public."""
    if isinstance(address, IPv4Address):
        return next((kind for network, kind in _FORBIDDEN_V4 if address in network), "")
    if address.scope_id is not None:
        return "link-local"
    if address in _NAT64:
        # Networks without IPv4 reach it through this prefix, so the embedded address counts.
        inner = kind_of(IPv4Address(int(address) & 0xFFFF_FFFF))
        return f"NAT64 {inner}" if inner else ""
    found = next((kind for network, kind in _FORBIDDEN_V6 if address in network), "")
    return found or ("" if address in _PUBLIC_V6 else "reserved")


def is_local_name(host: str) -> bool:
    return host in _LOCAL_NAMES or host.endswith(_LOCAL_DOMAINS)


def check_host(url: Url, private: Private) -> None:
    """Raises `RefusedAddress` if the host can be refused without looking up its name."""
    address = url.address
    kind = kind_of(address) if address is not None else "local" if is_local_name(url.host) else ""
    if kind and not private(url.host, url.port):
        _refuse_address(url, f"{url.host} is {_article(kind)} {'address' if address else 'name'}")


def check_addresses(url: Url, found: list[str], private: Private) -> list[str]:
    """The addresses of a name, if connecting to all of them is allowed. Raises `RefusedAddress` otherwise."""
    permitted = None
    for text in found:
        address = _address(text)
        kind = kind_of(address) if address is not None else "unreadable"
        if not kind:
            continue
        if permitted is None:
            permitted = private(url.host, url.port)
        if not permitted or kind not in _MEANT_BY_A_NAME:
            _refuse_address(url, f"{url.host} resolves to {text}, {_article(kind)} address")
    return found


def _refuse_address(url: Url, why: str) -> NoReturn:
    raise RefusedAddress(
        f"{url.origin} was not contacted: {why}.",
        fix=f'To allow it, list its full name and port in your policy.toml: [egress] allow = ["{url.origin}/*"].'
        " `cuebook policy show` shows where that file is.",
    )


def _article(kind: str) -> str:
    return f"{'an' if kind[0] in 'aeiouAEIOU' else 'a'} {kind}"
