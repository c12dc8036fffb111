"""Models are listed as their providers say, cached for a short while, and never waited for long."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from cuebook.performers.models import ProviderConfig, Providers
from cuebook.performers.models.model_lists import Offer, Offers
from cuebook.testing import ScriptedModel


class Shelf:
    """A provider's list, on loopback."""

    def __init__(self) -> None:
        self.answer: Any = {"data": []}
        self.status = 200
        self.location = ""
        self.hold = threading.Event()
        self.hold.set()
        self.asked: list[tuple[str, dict[str, str]]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
                outer.hold.wait(10)
                body = json.dumps(outer.answer).encode()
                self.send_response(outer.status)
                if outer.location:
                    self.send_header("Location", outer.location)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"


@pytest.fixture
def shelf() -> Iterator[Shelf]:
    made = Shelf()
    yield made
    made.hold.set()
    made.server.shutdown()
    made.server.server_close()


def providers_of(shelf: Shelf, protocol: str = "openai", key: str | None = "LAB_KEY", **more: Any) -> Providers:
    base = f"{shelf.url}/v1" if protocol == "openai" else shelf.url
    config = ProviderConfig(base_url=base, key=key, protocol=protocol)  # type: ignore[arg-type]
    return Providers(lambda name: "sk-lab-0123456789" if name == "LAB_KEY" else None, {"lab": config}, **more)


def lab_of(offers: Offers, patience: float | None = 5.0) -> Offer:
    return next(one for one in offers.listed(patience) if one.provider == "lab")


@pytest.mark.parametrize(("protocol", "header"), [("openai", "authorization"), ("anthropic", "x-api-key")])
def test_a_provider_is_asked_with_its_key_for_what_it_offers(shelf: Shelf, protocol: str, header: str) -> None:
    shelf.answer = {"data": [{"id": "beta"}, {"id": "alpha"}, {"id": "alpha"}]}
    offer = lab_of(Offers(providers_of(shelf, protocol)))
    assert (offer.models, offer.answered, offer.reason) == (("lab/alpha", "lab/beta"), True, "")
    ((path, headers),) = shelf.asked
    assert path.startswith("/v1/models")
    assert headers[header].endswith("sk-lab-0123456789")


def test_only_models_for_a_chat_are_listed(shelf: Shelf) -> None:
    others = (
        "text-embedding-3-large gpt-4o-mini-tts gpt-image-1 ada davinci-002 whisper-1 dall-e-3 omni-moderation-latest"
    )
    chat = ["claude-opus-4-6", "gpt-5", "gpt-4o", "llama-3.1-8b-instruct", "adamant-7b"]
    by_form = [
        {"id": "painter", "architecture": {"output_modalities": ["image"]}},
        {"id": "x/gemini-image", "architecture": {"output_modalities": ["image", "text"]}},
        {"id": "vectors", "type": "embedding"},
    ]
    shelf.answer = {"data": [*({"id": name} for name in (*others.split(), *chat)), *by_form]}
    assert set(lab_of(Offers(providers_of(shelf))).models) == {f"lab/{name}" for name in (*chat, "x/gemini-image")}


def test_a_list_is_remembered_for_a_while_and_not_for_another_key(shelf: Shelf) -> None:
    now = [1_000.0]
    shelf.answer = {"data": [{"id": "alpha"}]}
    offers = Offers(providers_of(shelf), clock=lambda: now[0])
    for _ in range(3):
        assert lab_of(offers).answered
    assert len(shelf.asked) == 1
    now[0] += 301
    assert lab_of(offers).answered
    assert len(shelf.asked) == 2


def test_a_provider_that_does_not_answer_blocks_nothing_and_is_known_later(shelf: Shelf) -> None:
    shelf.answer = {"data": [{"id": "alpha"}]}
    shelf.hold.clear()
    offers = Offers(providers_of(shelf))
    for _ in range(3):
        assert lab_of(offers, 0.0) == Offer("lab", reason="has not listed its models yet")
    shelf.hold.set()
    assert lab_of(offers).models == ("lab/alpha",)
    assert len(shelf.asked) == 1, "it was asked once"


@pytest.mark.parametrize(
    ("status", "answer", "reason"),
    [
        (401, {}, "refused the key (HTTP 401)"),
        (404, {}, "did not list its models (HTTP 404)"),
        (200, "nonsense", ""),
        (200, {"data": [1, {"id": 5}, {}, {"id": "a\nb"}]}, ""),
    ],
)
def test_what_a_provider_says_instead_is_said(shelf: Shelf, status: int, answer: Any, reason: str) -> None:
    shelf.status, shelf.answer = status, answer
    offer = lab_of(Offers(providers_of(shelf)))
    assert (offer.answered, offer.reason) == (not reason, reason)
    assert "sk-lab" not in repr(offer)


def test_a_key_follows_no_redirect(shelf: Shelf) -> None:
    shelf.status, shelf.location = 302, f"{shelf.url}/elsewhere"
    assert lab_of(Offers(providers_of(shelf))).reason == "did not list its models (HTTP 302)"
    assert len(shelf.asked) == 1


def test_a_keyless_provider_gets_no_key_and_a_project_provider_is_not_asked(shelf: Shelf) -> None:
    shelf.answer = {"data": [{"id": "alpha"}]}
    assert lab_of(Offers(providers_of(shelf, key=None))).answered
    assert "authorization" not in shelf.asked[0][1]
    offer = lab_of(Offers(providers_of(shelf, shared=["lab"])))
    assert "comes from the project" in offer.reason
    scripted = {"lab": ScriptedModel([])}
    assert not lab_of(Offers(providers_of(shelf, models=scripted))).models
    assert len(shelf.asked) == 1
