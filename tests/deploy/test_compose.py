"""compose.yaml, without a container engine: valid, safe by default, and refused without the user's own secrets."""

from __future__ import annotations

import json
import re
import subprocess
from importlib.resources import files
from typing import Any

import jsonschema
import psycopg
import pytest

from cuebook.config import load
from tests.deploy.commands import check_command, check_environment
from tests.deploy.files import COMPOSE, EXAMPLE, ROOT, MissingVariable, compose, documents, instructions, required
from tests.support import postgres

VALUES = {name: f"value-of-{name.lower()}" for name in required()}
OURS = ("web", "worker")


def service(name: str) -> dict[str, Any]:
    return dict(compose(VALUES)["services"][name])


def test_it_conforms_to_the_schema_of_compose() -> None:
    schema = json.loads(files("check_jsonschema").joinpath("builtin_schemas/vendor/compose-spec.json").read_text())
    (written,) = documents(COMPOSE)
    for content in (written, compose(VALUES)):
        jsonschema.Draft202012Validator(schema).validate(content)


@pytest.mark.parametrize("name", sorted(VALUES))
def test_it_refuses_to_start_without_a_secret(name: str) -> None:
    with pytest.raises(MissingVariable, match=name):
        compose({**VALUES, name: ""})


def test_the_example_lists_every_secret_and_has_no_value() -> None:
    lines = [line for line in EXAMPLE.read_text().splitlines() if line and not line.startswith("#")]
    assert set(lines) == {f"{name}=" for name in VALUES}
    for path in (COMPOSE, ROOT / "docs" / "guides" / "scale.md"):
        command = re.search(r"for name in (.+)\n#?\s*do echo", path.read_text())
        assert command is not None, path
        assert set(command[1].split()) == set(VALUES)


def test_no_credential_is_part_of_it() -> None:
    (written,) = documents(COMPOSE)
    for name, one in written["services"].items():
        for variable, value in one["environment"].items():
            if re.search("PASSWORD|PWD|KEY|TOKEN", variable):
                assert re.fullmatch(r"\$\{\w+:\?see \.env\.example\}|env:\w+", value), (name, variable)


@pytest.mark.parametrize("name", OURS)
def test_commands_and_settings_exist(name: str) -> None:
    one = service(name)
    check_command(one["command"])
    check_environment(one["environment"])
    assert one["environment"]["CUEBOOK_SERVE_PUBLIC_URL"] == "http://127.0.0.1:8765"
    behind = compose({**dict.fromkeys(required(), "x"), "CUEBOOK_SERVE_PUBLIC_URL": "https://cuebook.example.com"})
    assert behind["services"][name]["environment"]["CUEBOOK_SERVE_PUBLIC_URL"] == "https://cuebook.example.com"


def test_only_the_web_server_is_published_and_only_to_this_machine() -> None:
    ports = {name: one["ports"] for name, one in compose(VALUES)["services"].items() if "ports" in one}
    chosen = check_command(service("web")["command"])
    assert ports == {"web": [f"127.0.0.1:{chosen['port']}:{chosen['port']}"]}


@pytest.mark.parametrize("name", OURS)
def test_our_services_are_confined_and_stop_after_their_drain(name: str) -> None:
    one = service(name)
    assert (one["read_only"], one["cap_drop"], one["security_opt"], one["init"]) == (
        True,
        ["ALL"],
        ["no-new-privileges:true"],
        True,
    )
    assert one["restart"] == "unless-stopped"
    drain = check_command(one["command"])["drain"] or load().get("worker.drain")
    assert int(one["stop_grace_period"].removesuffix("s")) >= float(drain) + 10
    places = [volume.split(":")[1] for volume in one["volumes"]]
    assert one["environment"]["CUEBOOK_WORKSPACE"] in places
    assert one["environment"]["CUEBOOK_WORKSPACE"] == next(i.text for i in instructions() if i.text == "/workspace")
    assert "/tmp" in one["tmpfs"]


def test_health_checks_ask_the_port_that_is_served() -> None:
    web, worker = service("web"), service("worker")
    assert f":{check_command(web['command'])['port']}/readyz" in web["healthcheck"]["test"][-1]
    assert (
        f":{check_command(worker['command'])['health'].rpartition(':')[2]}/readyz" in worker["healthcheck"]["test"][-1]
    )


@pytest.mark.parametrize("name", OURS)
def test_logs_are_objects_and_metrics_are_not_published(name: str) -> None:
    one = service(name)
    chosen = check_command(one["command"])
    assert chosen["log_format"] == "json"
    port = chosen["metrics"].removeprefix("0.0.0.0:")
    assert port.isdigit()
    assert not [published for published in one.get("ports", []) if published.endswith(f":{port}")]


def test_services_wait_for_what_they_need() -> None:
    services = compose(VALUES)["services"]
    for name, one in services.items():
        for other, wanted in one.get("depends_on", {}).items():
            if wanted["condition"] == "service_healthy":
                assert "healthcheck" in services[other], (name, other)
            else:
                assert wanted["condition"] == "service_completed_successfully"
                assert services[other]["restart"].startswith("on-failure"), other
    for name in OURS:
        assert set(services[name]["depends_on"]) == {"postgres", "temporal-namespace"}
    assert services["worker"]["deploy"]["replicas"] == 2


def test_images_have_versions_and_mounted_files_exist() -> None:
    services = compose(VALUES)["services"]
    for name, one in services.items():
        if name not in OURS:
            assert re.fullmatch(r"[a-z/-]+:\d+[\d.]*", one["image"]), one["image"]
        for volume in one["volumes"]:
            source = volume.split(":")[0]
            assert (ROOT / source).exists() if source.startswith(".") else source in compose(VALUES)["volumes"]
    assert services["temporal"]["image"].rpartition(":")[2] == services["temporal-schema"]["image"].rpartition(":")[2]


@pytest.mark.parametrize("path", sorted((ROOT / "deploy" / "compose").glob("*.sh")), ids=lambda path: path.name)
def test_scripts_are_shell(path: Any) -> None:
    assert subprocess.run(["sh", "-n", str(path)], capture_output=True, text=True, check=True).stderr == ""


@pytest.mark.needs("postgres")
def test_the_database_script_makes_separate_users() -> None:
    server = postgres.server()
    try:
        make_databases(server, VALUES)
        with psycopg.connect(server.url(database="cuebook", user="cuebook")) as connection:
            connection.execute("CREATE SCHEMA cuebook")
            assert connection.execute("SELECT rolsuper FROM pg_roles WHERE rolname = 'cuebook'").fetchone() == (False,)
        for database, user in (("cuebook", "temporal"), ("temporal", "cuebook"), ("temporal_visibility", "cuebook")):
            with pytest.raises(psycopg.OperationalError, match="permission denied"):
                psycopg.connect(server.url(database=database, user=user))
    finally:
        drop_databases(server)


def make_databases(server: postgres.Server, values: dict[str, str]) -> None:
    """Runs the script that the Postgres image would run."""
    found = postgres.programs()
    assert found is not None
    environ = {"PATH": f"{found}:/usr/bin:/bin", "PGHOST": "127.0.0.1", "PGPORT": str(server.port), **values}
    script = str(ROOT / "deploy" / "compose" / "databases.sh")
    done = subprocess.run(["sh", script], env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def drop_databases(server: postgres.Server) -> None:
    with psycopg.connect(server.url(), autocommit=True) as connection:
        for name in ("cuebook", "temporal", "temporal_visibility"):
            connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        for name in ("cuebook", "temporal"):
            connection.execute(f"DROP ROLE IF EXISTS {name}")
