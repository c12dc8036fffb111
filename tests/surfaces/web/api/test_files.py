"""The files of a run over the API and on its page: listed, and downloaded as attachments that no browser opens."""

from __future__ import annotations

from cuebook.service.service import Principal
from tests.surfaces.web.served_app import ServedApp

MAKES = """\
name: Makes
steps:
  - id: make
    command: cli sh -c 'printf "<script>alert(1)</script>" > page.html; printf x > y'
    files: {page: page.html, y: y}
"""


async def test_files_are_listed_and_downloaded_as_attachments(web: ServedApp) -> None:
    await web.serve()
    run = await web.begin(playbook=web.book("makes.yml", MAKES))
    message = await web.until(run, "completed")
    listed = await web.get(f"/api/runs/{run}/files")
    assert listed["files"] == message["files"]
    page, other = listed["files"]
    assert (page["step"], page["name"], page["filename"], page["size"]) == ("make", "page", "page.html", 25)
    assert other["name"] == "y"
    file = await web.client.get(f"/api/runs/{run}/files/{page['digest']}")
    assert (file.status_code, file.content) == (200, b"<script>alert(1)</script>")
    assert file.headers["content-disposition"] == 'attachment; filename="page.html"'
    assert file.headers["x-content-type-options"] == "nosniff"
    assert file.headers["content-type"] == "application/octet-stream"
    assert "sandbox" in file.headers["content-security-policy"]
    shown = (await web.client.get(f"/runs/{run}")).text
    assert f'href="/api/runs/{run}/files/{page["digest"]}" download' in shown


async def test_only_files_of_the_run_are_found_and_only_by_its_tenant(web: ServedApp) -> None:
    makes = web.book("makes.yml", MAKES)
    plain = web.book("other.yml", "name: Other\nsteps:\n  - {id: a, command: cli true}\n")
    await web.serve()
    run = await web.begin(playbook=makes)
    digest = (await web.until(run, "completed"))["files"][0]["digest"]
    other = await web.begin(playbook=plain)
    await web.until(other, "completed")
    for path in (f"/api/runs/{other}/files/{digest}", f"/api/runs/{run}/files/{'0' * 64}", f"/api/runs/{run}/files/x"):
        assert (await web.client.get(path)).status_code == 404
    _, token = await web.service.add_user("bob", ["admin"], Principal("root", "other"))
    theirs = {"Authorization": f"Bearer {token}"}
    for path in (f"/api/runs/{run}/files", f"/api/runs/{run}/files/{digest}"):
        assert (await web.guest.get(path, headers=theirs)).status_code == 404
