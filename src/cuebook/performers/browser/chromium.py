"""A Chromium in a sandbox, driven by Playwright over a pipe.

In bubblewrap, its network namespace contains nothing but our proxy. Under Landlock, it makes no socket itself: each that it
gets is a connection to our proxy. So in both, neither a page nor the browser itself reaches anything else: no name is
looked up, and there is no UDP.
"""

from __future__ import annotations

import asyncio
import base64
import importlib.util
import json
import os
import shutil
import socket
import ssl
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from cuebook.formats.words import with_extra
from cuebook.kernel.errors import CuebookError
from cuebook.kernel.ports import Confined, Confinement, Limits, Sandbox

if TYPE_CHECKING:
    from playwright.async_api import Browser, Playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PROGRAM = "CHROMIUM"
"""The variable that names another program."""

_BRIDGE = str(Path(__file__).with_name("bridge.py"))
_PROXY = "http://127.0.0.1:3128"
_FLAGS = (
    *(
        "--headless=new",
        "--remote-debugging-pipe",
        "--no-startup-window",
        "--no-first-run",
        "--no-default-browser-check",
    ),
    # Everything runs in our sandbox, which forbids what Chromium's own needs. Its process for graphics would try anyway.
    *("--no-sandbox", "--no-zygote", "--in-process-gpu"),
    *(f"--proxy-server={_PROXY}", "--proxy-bypass-list=<-loopback>", "--disable-quic", "--dns-prefetch-disable"),
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    *(
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--disable-domain-reliability",
    ),
    *("--disable-client-side-phishing-detection", "--disable-default-apps", "--disable-extensions", "--no-pings"),
    *("--disable-gpu", "--disable-dev-shm-usage", "--disable-breakpad", "--disable-crash-reporter"),
    *("--disable-hang-monitor", "--disable-prompt-on-repost", "--disable-renderer-backgrounding"),
    *("--disable-background-timer-throttling", "--disable-backgrounding-occluded-windows"),
    *("--disable-search-engine-choice-screen", "--disable-infobars", "--metrics-recording-only", "--mute-audio"),
    *("--password-store=basic", "--use-mock-keychain", "--force-color-profile=srgb", "--hide-scrollbars"),
    "--webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--disable-features=Translate,MediaRouter,OptimizationHints,AutofillServerCommunication,InterestFeedContentSuggestions",
)
_POLICY = {
    # The proxy must see which host a handshake is for, and Chromium encrypts a made-up name even without the real one.
    "EncryptedClientHelloEnabled": False,
    "DnsOverHttpsMode": "off",
    "QuicAllowed": False,
    "WebRtcIPHandling": "disable_non_proxied_udp",
    "NetworkPredictionOptions": 2,
    "SafeBrowsingProtectionLevel": 0,
    "SearchSuggestEnabled": False,
    "AutofillAddressEnabled": False,
    "AutofillCreditCardEnabled": False,
    "PasswordManagerEnabled": False,
}
_STATE = {"ssl": {"ech_enabled": False}, "dns_over_https": {"mode": "off"}}
"""What our proxy needs of this policy, as settings of the profile: under Landlock there is only the administrator's."""
_POLICY_PLACES = ("/etc/chromium/policies/managed/cuebook.json", "/etc/opt/chrome/policies/managed/cuebook.json")
_POLICIES = ("/etc/chromium/policies", "/etc/opt/chrome/policies")
"""The administrator's, which apply under Landlock."""
_READABLE = ("/etc/fonts", "/etc/chromium.d", "/opt/google/chrome", "/opt/chromium")
_TO_START = 30.0
_SAID = 2_000
"""How many bytes of its last messages are kept."""


class NoBrowser(CuebookError):
    """There is no browser that can be used here."""

    code = "no_browser"


def program(environ: Mapping[str, str]) -> str:
    """The path of Chromium; empty if there is none."""
    named = environ.get(PROGRAM, "")
    if named:
        return named if os.access(named, os.X_OK) else ""
    return next(filter(None, map(shutil.which, NAMES)), "")


def problem(sandbox: Sandbox, environ: Mapping[str, str]) -> NoBrowser | None:
    """Why no browser can be used here, if so."""
    if importlib.util.find_spec("playwright") is None:
        return NoBrowser("Web steps need the package playwright, which is not installed.", fix=with_extra("browser"))
    if not program(environ):
        named = environ.get(PROGRAM, "")
        where = f" ({PROGRAM} is {named}, which cannot be run)" if named else ""
        return NoBrowser(
            f"Web steps need Chromium, which was not found{where}.",
            fix=f"Install it, as in `apt install chromium`, or set {PROGRAM}=/path/to/chromium.",
        )
    if sandbox.problem:
        return NoBrowser(f"Web steps run Chromium in a sandbox. {sandbox.problem}", fix=_CONFINE)
    if sandbox.name == "none":
        return NoBrowser("Web steps run Chromium in a sandbox only, and the sandbox is switched off.", fix=_CONFINE)
    return None


_CONFINE = (
    'Leave `sandbox` at "auto", and install bubblewrap, as in `apt install bubblewrap`, or use a kernel with Landlock;'
    " `cuebook doctor` shows what works."
)


class Chromium:
    """One browser process with its own profile, which is deleted when it is closed."""

    def __init__(self, browser: Browser, process: Confined, folder: str) -> None:
        self.browser = browser
        self._process = process
        self.folder = folder
        """Everything that it can write to. Whatever is there may be a link."""
        self.downloads = os.path.join(folder, "downloads")

    @property
    def refused(self) -> list[str]:
        """The hosts that it asked for in vain."""
        return list(self._process.refused)

    async def close(self) -> None:
        """Ends it at once. May be called more than once."""
        await _ended(self._process)
        with suppress(Exception):
            async with asyncio.timeout(5):
                await self.browser.close()
        await asyncio.to_thread(shutil.rmtree, self.folder, ignore_errors=True)


async def start(
    playwright: Playwright, sandbox: Sandbox, hosts: tuple[str, ...], environ: Mapping[str, str], limits: Limits
) -> Chromium:
    """Starts a browser that can reach these hosts and no others. Raises `CuebookError`."""
    folder = tempfile.mkdtemp(prefix="cuebook-browser-", dir="/tmp")  # the path of a socket has at most 107 bytes
    try:
        process = await sandbox.spawn(_confinement(folder, hosts, environ, limits, places=sandbox.name == "bubblewrap"))
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    said = _Said(process.stderr)
    try:
        browser = await _connected(playwright, process, folder)
    except BaseException as error:
        await _ended(process)
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, asyncio.CancelledError | CuebookError) or not isinstance(error, Exception):
            raise
        last = said.last or str(error).splitlines()[0]
        raise NoBrowser(
            f"Chromium could not be started: {last}", fix="`cuebook doctor` shows what works here."
        ) from None
    return Chromium(browser, process, folder)


def _confinement(
    folder: str, hosts: tuple[str, ...], environ: Mapping[str, str], limits: Limits, *, places: bool
) -> Confinement:
    """`places` says whether the sandbox can give it files of its own."""
    home = os.path.join(folder, "home")
    for name in ("home", "profile", "downloads"):
        os.mkdir(os.path.join(folder, name), 0o700)
    Path(folder, "profile", "Local State").write_text(json.dumps(_STATE))
    # Its pipe for commands has the descriptors 3 and 4, and a confined process has no others than the standard ones.
    piped = ("/bin/sh", "-c", 'exec "$@" 3<&0 4>&1 1>&2 </dev/null', "sh")
    policy = json.dumps({**_POLICY, **_certificates(environ)})
    return Confinement(
        argv=(*piped, program(environ), *_FLAGS, f"--user-data-dir={folder}/profile"),
        cwd=home,
        env={
            "HOME": home,
            "TMPDIR": folder,
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "LANG": environ.get("LANG", "C.UTF-8"),
            "DBUS_SESSION_BUS_ADDRESS": "disabled:",
        },
        writable=(folder,),
        readable=(program(environ), *_READABLE, *(() if places else _POLICIES)),
        placed=dict.fromkeys(_POLICY_PLACES, policy) if places else {},
        reads_only=True,
        idle_sockets=True,
        network=hosts,
        limits=limits,
    )


def _certificates(environ: Mapping[str, str]) -> dict[str, list[str]]:
    """The certificates that we trust ourselves, if they are not the system's."""
    path = environ.get("SSL_CERT_FILE", "")
    if not os.path.isfile(path):
        return {}
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with suppress(OSError, ssl.SSLError):
        context.load_verify_locations(path)
    return {"CACertificates": [base64.b64encode(one).decode() for one in context.get_ca_certs(binary_form=True)]}


async def _connected(playwright: Playwright, process: Confined, folder: str) -> Browser:
    path = os.path.join(folder, "link")
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen(1)
        listening.setblocking(False)

        async def hand_over() -> None:
            link, _ = await loop.sock_accept(listening)
            with link:
                link.setblocking(True)
                socket.send_fds(link, [b"pipe"], [process.stdin, process.stdout])
            for one in (process.stdin, process.stdout):  # the browser must see that Playwright is gone
                os.close(one)

        handing = asyncio.ensure_future(hand_over())
        try:
            return await playwright.chromium.launch(
                executable_path=sys.executable,
                args=["-I", "-S", _BRIDGE, path],
                ignore_default_args=True,
                downloads_path=os.path.join(folder, "downloads"),
                timeout=_TO_START * 1000,
                handle_sigint=False,
                handle_sigterm=False,
                handle_sighup=False,
            )
        finally:
            if not handing.done():
                handing.cancel()
                for one in (process.stdin, process.stdout):
                    os.close(one)


async def _ended(process: Confined) -> None:
    process.kill()
    await process.wait()


class _Said:
    """Reads what the browser says, and keeps the end of it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._kept = b""
        os.set_blocking(descriptor, False)
        asyncio.get_running_loop().add_reader(descriptor, self._read)

    @property
    def last(self) -> str:
        lines = self._kept.decode("utf-8", "replace").strip().splitlines()
        return next((line for line in reversed(lines) if "FATAL" in line), lines[-1] if lines else "")

    def _read(self) -> None:
        try:
            piece = os.read(self._descriptor, 1 << 16)
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        if not piece:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            os.close(self._descriptor)
            return
        self._kept = (self._kept + piece)[-_SAID:]
