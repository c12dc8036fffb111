"""The probes of a server: ready while its store responds, asked by address as an orchestrator does."""

from __future__ import annotations

import pytest

from cuebook.kernel.errors import StoreError
from cuebook.performers.models.scripted import ScriptedModel
from cuebook.surfaces.web.server import hosts_for
from tests.surfaces.web.served_app import ServedApp

SECRET = "canary-of-the-database"


async def test_a_server_is_ready_while_its_store_responds(web: ServedApp, monkeypatch: pytest.MonkeyPatch) -> None:
    await web.model(ScriptedModel([])).serve()
    ready = await web.guest.get("/readyz")
    assert (ready.status_code, ready.json()) == (200, {"status": "ok"})
    monkeypatch.setattr(web.site.readiness, "_every", 0)

    async def lost(tenant: str, kind: str) -> dict[str, dict[str, object]]:
        raise StoreError(f"Postgres at {SECRET} cannot be reached.")

    with monkeypatch.context() as patch:
        patch.setattr(web.service, "kept", lost)
        answer = await web.guest.get("/readyz")
        assert (answer.status_code, answer.json()["status"]) == (503, "unavailable")
        assert "store" in answer.json()["reason"]
        assert SECRET not in answer.text
        assert (await web.guest.get("/healthz")).status_code == 200  # a restart would not bring the store back
    assert (await web.guest.get("/readyz")).status_code == 200


async def test_a_server_that_is_shutting_down_is_not_ready(web: ServedApp) -> None:
    await web.model(ScriptedModel([])).serve()
    web.site.readiness.drain()
    answer = await web.guest.get("/readyz")
    assert (answer.status_code, "shutting down" in answer.json()["reason"]) == (503, True)
    assert (await web.guest.get("/healthz")).status_code == 200


def test_probes_by_address_are_answered_if_the_server_listens_on_all_addresses() -> None:
    """A kubelet sends the address of the pod; names still have to be allowed."""
    for host in ("0.0.0.0", "::"):
        hosts = hosts_for(host, 8765, ["cuebook.example.com"])
        assert "10.1.2.3:8765" in hosts
        assert "[fd00::7]:8765" in hosts
        assert "cuebook.example.com" in hosts
        assert "elsewhere.example.com:8765" not in hosts
    assert "10.1.2.3:8765" in hosts_for("10.1.2.3", 8765)
    assert "10.1.2.4:8765" not in hosts_for("10.1.2.3", 8765)
