"""The models that providers offer, according to their own lists, which are fetched and cached for a while.

It never waits long: a list that does not arrive in time is available at the next call.
"""

from __future__ import annotations

import json
import re
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from typing import Any
from urllib.parse import urlsplit

import msgspec

from cuebook.performers.models.model import masked
from cuebook.performers.models.providers import EMBEDDED, Access, Providers
from cuebook.system.network import is_loopback

_LIFE = 300.0
"""Seconds for which a list is valid."""
_AGAIN = 15.0
"""Seconds after which a provider that did not answer is asked again."""
_PATIENCE = 1.0
"""Seconds to wait for lists that have not arrived yet."""
_TIMEOUT = 5.0
_MOST_BYTES = 8 << 20
_MOST_MODELS = 2_000

_NOT_FOR_CHAT = re.compile(
    r"embed|whisper|(^|[-/])tts|dall-?e|moderation|realtime|transcri|(^|[-/])image|-image|audio|sora|rerank"
    r"|(^|[-/])(babbage|davinci|curie|ada)([-:]|$)|-instruct-0914|speech|video|ocr",
    re.IGNORECASE,
)
"""Names of models that are not for text, or not for chat."""


class Offer(msgspec.Struct, frozen=True):
    """One provider's answer."""

    provider: str
    models: tuple[str, ...] = ()
    """Full names, `provider/model`."""
    answered: bool = False
    reason: str = ""
    """Why the list is unavailable, phrased to follow the provider's name."""


class Offers:
    """The lists of all providers that can be used."""

    def __init__(
        self, providers: Providers, *, patience: float = _PATIENCE, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._providers = providers
        self._patience = patience
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[float, Access, Offer]] = {}
        self._coming: dict[str, Future[Offer]] = {}

    def listed(self, patience: float | None = None) -> list[Offer]:
        """The models of each usable provider, if they are known now or arrive within `patience` seconds."""
        wanted = [one.name for one in self._providers.available() if one.usable]
        with self._lock:
            coming = [found for name in wanted if (found := self._asked(name)) is not None]
        wait(coming, timeout=self._patience if patience is None else patience)
        return [self._known(name) for name in wanted]

    def _asked(self, name: str) -> Future[Offer] | None:
        """The pending request for a list; None if the list is known, or there is no provider to ask."""
        access = self._providers.access(name)
        if access is None:
            return None
        since, known_as, offer = self._kept.get(name, (0.0, None, None))
        life = _LIFE if offer is not None and offer.answered else _AGAIN
        if offer is not None and known_as == access and self._clock() - since < life:
            return None
        if name not in self._coming:
            coming = self._coming[name] = Future()
            # Not a pool thread, because the process would wait for it at exit.
            threading.Thread(target=self._fetch, args=(name, access, coming), daemon=True).start()
        return self._coming[name]

    def _fetch(self, name: str, access: Access, coming: Future[Offer]) -> None:
        offer = _fetched(name, access)
        with self._lock:
            self._kept[name] = (self._clock(), access, offer)
            self._coming.pop(name, None)
        coming.set_result(offer)

    def _known(self, name: str) -> Offer:
        if name == "local":
            return Offer(name, (f"local/{EMBEDDED}",), True)
        with self._lock:
            kept = self._kept.get(name)
        if kept is not None:
            return kept[2]
        if self._providers.access(name) is None:
            return Offer(name, reason="comes from the project, so it was not asked for its models")
        return Offer(name, reason="has not listed its models yet")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A key must not be sent to any server except the configured one."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


def _fetched(name: str, access: Access) -> Offer:
    handlers: list[Any] = [_NoRedirect()]
    if is_loopback(urlsplit(access.url).hostname or ""):
        handlers.append(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(access.url, headers=access.headers)
    try:
        with urllib.request.build_opener(*handlers).open(request, timeout=_TIMEOUT) as response:
            body = response.read(_MOST_BYTES + 1)
        if len(body) > _MOST_BYTES:
            return Offer(name, reason="sent a list of models that is too long")
        return Offer(name, tuple(f"{name}/{model}" for model in _chat_models(json.loads(body))), True)
    except urllib.error.HTTPError as error:
        refused = "refused the key" if error.code in (401, 403) else "did not list its models"
        return Offer(name, reason=f"{refused} (HTTP {error.code})")
    except (OSError, ValueError, TypeError, KeyError) as error:
        cause = getattr(error, "reason", None) or error
        said = masked(str(cause) or type(cause).__name__, access.headers.values())[:200]
        return Offer(name, reason=f"did not list its models ({said})")


def _chat_models(answer: Any) -> list[str]:
    """The names of chat models, sorted and without duplicates."""
    entries: Iterable[Any] = answer.get("data") or answer.get("models") or [] if isinstance(answer, dict) else answer
    names = [str(one.get("id") or one.get("name") or "") for one in entries if isinstance(one, dict) and _is_chat(one)]
    plain = [name for name in names if name and name.isprintable() and len(name) <= 200]
    return sorted(dict.fromkeys(plain))[:_MOST_MODELS]


def _is_chat(entry: dict[str, Any]) -> bool:
    form = entry.get("architecture")
    made = form.get("output_modalities") if isinstance(form, dict) else None
    if isinstance(made, list):
        return "text" in made
    if isinstance(entry.get("type"), str) and entry["type"] not in ("model", "chat", "language", "code", "llm"):
        return False
    return not _NOT_FOR_CHAT.search(str(entry.get("id") or entry.get("name") or ""))
