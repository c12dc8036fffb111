"""Reads the files for containers as an engine would: the Containerfile's instructions, and compose.yaml with its variables."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple

from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parents[2]
CONTAINERFILE = ROOT / "Containerfile"
COMPOSE = ROOT / "compose.yaml"
KUBERNETES = ROOT / "deploy" / "kubernetes"
EXAMPLE = ROOT / ".env.example"

_VARIABLE = re.compile(r"\$\{(?P<name>\w+)(?::(?P<kind>[?-])(?P<rest>[^}]*))?\}")


class MissingVariable(Exception):
    """A variable that compose.yaml requires."""


class Instruction(NamedTuple):
    """One instruction of the Containerfile."""

    stage: int
    name: str
    text: str

    @property
    def words(self) -> list[str]:
        """Its words, or the items of the exec form."""
        return list(json.loads(self.text)) if self.is_exec else shlex.split(self.text)

    @property
    def is_exec(self) -> bool:
        return self.text.startswith("[")


def instructions() -> list[Instruction]:
    text = "\n".join(line for line in CONTAINERFILE.read_text().splitlines() if not line.lstrip().startswith("#"))
    found: list[Instruction] = []
    stage = -1
    for line in re.sub(r"\\\n", " ", text).splitlines():
        name, _, rest = line.strip().partition(" ")
        if not name:
            continue
        stage += name == "FROM"
        found.append(Instruction(stage, name, rest.strip()))
    return found


def in_image(path: str) -> bool:
    """Whether the build context includes a path, according to .dockerignore."""
    included = True
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        pattern = line.removeprefix("!")
        if line and not line.startswith("#") and (fnmatch(path, pattern) or path.startswith(f"{pattern}/")):
            included = line.startswith("!")
    return included


def documents(path: Path) -> list[dict[str, Any]]:
    return [one for one in YAML(typ="safe").load_all(path.read_text()) if one is not None]


def manifests() -> Iterator[tuple[str, dict[str, Any]]]:
    """The Kubernetes objects, each with its file and kind."""
    for path in sorted(KUBERNETES.glob("*.yaml")):
        if path.name != "kustomization.yaml":
            for one in documents(path):
                yield f"{path.name}: {one['kind']}", one


def compose(environ: Mapping[str, str]) -> dict[str, Any]:
    """compose.yaml with these variables. Raises `MissingVariable` as an engine would refuse to start."""
    (loaded,) = documents(COMPOSE)
    filled: dict[str, Any] = _filled(loaded, environ)
    return filled


def _filled(value: Any, environ: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {name: _filled(one, environ) for name, one in value.items()}
    if isinstance(value, list):
        return [_filled(one, environ) for one in value]
    return _VARIABLE.sub(lambda found: _value(found, environ), value) if isinstance(value, str) else value


def _value(found: re.Match[str], environ: Mapping[str, str]) -> str:
    given = environ.get(found["name"], "")
    if given or found["kind"] is None:
        return given
    if found["kind"] == "?":
        raise MissingVariable(found["name"])
    return found["rest"]


def required() -> set[str]:
    """The variables without which compose.yaml refuses to start."""
    return {found["name"] for found in _VARIABLE.finditer(COMPOSE.read_text()) if found["kind"] == "?"}


def container_of(workload: dict[str, Any]) -> dict[str, Any]:
    (container,) = workload["spec"]["template"]["spec"]["containers"]
    return dict(container)


def environment_of(container: dict[str, Any]) -> dict[str, str]:
    """The environment of a container on Kubernetes; the value of a secret is its name and key."""
    found: dict[str, str] = {}
    for source in container.get("envFrom", []):
        if "configMapRef" in source:
            name = source["configMapRef"]["name"]
            found |= next(one["data"] for _, one in manifests() if _is(one, "ConfigMap", name))
    for one in container["env"]:
        reference = one["valueFrom"]["secretKeyRef"]
        found[one["name"]] = f"{reference['name']}/{reference['key']}"
    return found


def _is(one: dict[str, Any], kind: str, name: str) -> bool:
    return bool(one["kind"] == kind and one["metadata"]["name"] == name)
