"""The server conforms to openapi.yaml: the same routes, and the described responses to every request."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from ruamel.yaml import YAML
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from cuebook.performers.models.scripted import ScriptedModel
from cuebook.surfaces.web import app
from tests.support.sampling import many
from tests.surfaces.web.served_app import TOKEN, ServedApp

DESCRIPTION = Path(app.__file__).with_name("openapi.yaml")
BOOK = '# T\n\n## INPUTS\n\n- `kind` (string: green): Which\n\n## STEP 1: A\n\nDo {{kind}}.\n\n## STEP 2: B\n\n@elicit(input, "What?")\n'
EXAMPLES = many(2, 6)
"""Requests of each kind to each operation."""

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    response_headers_conformance,
]


def described() -> dict[str, Any]:
    loaded: dict[str, Any] = YAML(typ="safe").load(DESCRIPTION.read_text(encoding="utf-8"))
    return loaded


def test_the_description_has_exactly_the_routes_of_the_app() -> None:
    message = {
        (method.upper(), path)
        for path, operations in described()["paths"].items()
        for method in operations
        if method != "parameters"
    }
    ways = {
        (endpoint.method, endpoint.path)
        for endpoint in app.ENDPOINTS
        if endpoint.path.startswith(("/api/", "/healthz", "/readyz", "/playbooks/runtime", "/hooks/"))
    }
    assert message == ways


def test_every_operation_describes_its_roles_and_responses() -> None:
    for path, operations in described()["paths"].items():
        for method, operation in operations.items():
            if method != "parameters":
                assert operation["summary"]
                assert re.fullmatch(r"[a-z][A-Za-z]+", operation["operationId"])
                assert "default" in operation["responses"] or operation.get("security") == [], path


async def test_the_server_keeps_to_its_description(web: ServedApp) -> None:
    await web.model(ScriptedModel(["A."], cycle=True)).serve()
    run = await web.begin(playbook=web.book("tea.md", BOOK))
    wait = (await web.waiting(run))["wait"]
    real = {"/api/runs/": run, "/api/waits/": wait, "/api/playbooks/": "tea"}
    schema = schemathesis.openapi.from_dict(described())
    address = str(web.client.base_url)
    operations: list[Any] = [found.ok() for found in schema.get_all_operations() if isinstance(found, Ok)]
    assert len(operations) > 20
    for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
        await asyncio.to_thread(_exercise, operations, mode, address, real)


def _exercise(operations: list[Any], mode: GenerationMode, address: str, real: dict[str, str]) -> None:
    with requests.Session() as session:
        session.trust_env = False
        session.headers["Authorization"] = f"Bearer {TOKEN}"
        for operation in operations:
            if mode is GenerationMode.NEGATIVE and not (operation.body or operation.query or operation.headers):
                continue
            known = next((id for path, id in real.items() if operation.path.startswith(path)), "")
            _ask(operation, mode, address, session, "")
            if known and not operation.path.endswith("/stream"):  # a stream of a run that waits has no end
                _ask(operation, mode, address, session, known)


def _ask(operation: Any, mode: GenerationMode, address: str, session: requests.Session, id: str) -> None:
    """Some requests, to missing objects or to an existing one."""
    checks = [*CHECKS, *([negative_data_rejection] if mode is GenerationMode.NEGATIVE else [])]

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(mode))
    def conforms(case: Any) -> None:
        if id:
            case.path_parameters["id"] = id
        response = case.call(base_url=address, session=session, timeout=20)
        case.validate_response(response, checks=checks)

    conforms()


async def test_the_description_is_served(web: ServedApp) -> None:
    await web.model(ScriptedModel([])).serve()
    response = await web.guest.get("/api/openapi.yaml")
    assert response.status_code == 200
    assert response.text == DESCRIPTION.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'{"a": 1}', b"\xff", b'{"inputs": ' + b"[" * 5000 + b"]" * 5000 + b"}"]
)
async def test_an_invalid_body_is_a_problem(web: ServedApp, body: bytes) -> None:
    await web.model(ScriptedModel([])).serve()
    response = await web.client.post("/api/runs", content=body, headers={"Content-Type": "application/json"})
    assert response.status_code in (400, 422)
    assert response.headers["content-type"] == "application/problem+json"
    assert set(response.json()) >= {"type", "title", "status", "detail", "code", "fix"}
