"""Evidence over the API: downloaded, signed with the server's key, and verified with the public key that it gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cuebook.service.audit.keys import SigningKey, read_public_keys
from cuebook.service.audit.signed_file import verify_file
from cuebook.service.service import Principal
from cuebook.testing import ScriptedModel
from tests.surfaces.web.served_app import ServedApp

BOOK = "# T\n\n## STEP 1: A\n\nDo it.\n"


async def test_a_run_and_the_whole_audit_are_downloaded_and_verified(web: ServedApp, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_bytes(SigningKey.new().pem())
    file.chmod(0o600)
    flags: dict[str, Any] = {"evidence.key": f"file:{file}"}
    await web.model(ScriptedModel(["Done."])).serve(**flags)
    run = await web.begin(playbook=web.book("t.md", BOOK))
    await web.until(run, "completed")
    given = await web.get("/api/evidence/key")
    keys = read_public_keys([("given", given["public"].encode())])
    for path, kind in ((f"/api/runs/{run}/evidence", "run"), ("/api/acts/export?since=0", "audit")):
        got = await web.client.get(path)
        assert (got.status_code, got.headers["content-type"]) == (200, "application/octet-stream")
        assert got.headers["content-disposition"].startswith("attachment")
        (tmp_path / kind).write_bytes(got.content)
        proof = await verify_file(tmp_path / kind, keys)
        assert (proof.kind, proof.key, proof.holds) == (kind, given["key"], True)
        assert [one.run for one in proof.runs] == [run]
    shown = (await web.client.get(f"/runs/{run}")).text
    assert f'href="/api/runs/{run}/evidence" download' in shown
    assert 'href="/api/acts/export" download' in (await web.client.get("/settings/audit")).text


async def test_without_a_key_files_are_not_signed_and_roles_decide(web: ServedApp, tmp_path: Path) -> None:
    await web.model(ScriptedModel(["Done."])).serve()
    run = await web.begin(playbook=web.book("t.md", BOOK))
    await web.until(run, "completed")
    assert (await web.client.get("/api/evidence/key")).status_code == 404
    got = await web.client.get(f"/api/runs/{run}/evidence")
    assert b"payloadType" not in got.content
    assert (await web.client.get("/api/acts/export?since=x")).status_code == 422
    for tenant, roles, codes in (("local", ["viewer"], [200, 403]), ("other", ["admin"], [404, 200])):
        _, token = await web.service.add_user(f"bob-{tenant}", roles, Principal("root", tenant))
        theirs = {"Authorization": f"Bearer {token}"}
        paths = (f"/api/runs/{run}/evidence", "/api/acts/export")
        found = [(await web.guest.get(path, headers=theirs)) for path in paths]
        assert [one.status_code for one in found] == codes
        assert tenant == "local" or run.encode() not in found[1].content
