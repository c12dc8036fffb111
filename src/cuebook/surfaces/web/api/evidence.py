"""Evidence as files to download, signed if a key is configured, and the public key that verifies them."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from typing import IO

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from cuebook.gate.roles import Principal
from cuebook.kernel.errors import NotFound
from cuebook.service.audit.collection import write_collection
from cuebook.service.audit.export import write_export
from cuebook.service.audit.signature import SignedFile, Signer
from cuebook.surfaces.web.api.objects import answer
from cuebook.surfaces.web.problems import Problem
from cuebook.surfaces.web.site import Site
from cuebook.wiring.evidence import revealed_key

_IN_MEMORY = 1 << 20
_BLOCK = 1 << 16


async def key(request: Request, site: Site, who: Principal) -> Response:
    """The public key of the key that signs exports."""
    found = await revealed_key(site.wiring.config, site.wiring.evidence_vault)
    if found is None:
        raise NotFound(
            "No key signs exports here.", fix="An admin sets `key` in [evidence] of the server's cuebook.toml."
        )
    return answer({"key": found.public.id, "public": found.public.pem().decode()})


async def run(request: Request, site: Site, who: Principal) -> Response:
    """The whole journal of a run, as `cuebook audit RUN --export` writes it."""
    signer = await _signer(site)
    export = await site.service.export(request.path_params["id"], who)
    file = _file()
    signed = SignedFile(file, signer)
    write_export(signed, export)
    signed.sign(who, site.service.clock())
    return _download(file, f"run-{export.run}.json")


async def everything(request: Request, site: Site, who: Principal) -> Response:
    """The audits of all runs and administrative acts, as `cuebook audit --export` writes them."""
    who.require("admin", "export the audit")
    given = request.query_params.get("since", "0")
    if not (given.isascii() and given.isdigit()) or len(given) > 12:
        raise Problem(422, "bad_since", "`since` must be a whole number: seconds since 1970.")
    signer = await _signer(site)
    file = _file()
    await write_collection(site.service, SignedFile(file, signer), who, since=float(given))
    return _download(file, "audit.jsonl")


async def _signer(site: Site) -> Signer | None:
    key = await revealed_key(site.wiring.config, site.wiring.evidence_vault)
    return None if key is None else Signer(key)


def _file() -> IO[bytes]:
    return tempfile.SpooledTemporaryFile(_IN_MEMORY)


def _download(file: IO[bytes], name: str) -> Response:
    size = file.tell()
    headers = {
        "Content-Disposition": f'attachment; filename="{name}"',
        "Content-Security-Policy": "default-src 'none'; sandbox",
        "X-Content-Type-Options": "nosniff",
        "Content-Length": str(size),
    }
    return StreamingResponse(_pieces(file), 200, headers, "application/octet-stream")


async def _pieces(file: IO[bytes]) -> AsyncIterator[bytes]:
    with file:
        file.seek(0)
        while piece := file.read(_BLOCK):
            yield piece
