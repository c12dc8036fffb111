"""`cuebook doctor`: what was found and where, and what is missing with the way to get it. It changes nothing."""

from __future__ import annotations

import asyncio
import os
import platform
import shlex
import sqlite3
import sys
from pathlib import Path
from typing import Any

from cuebook import __version__
from cuebook.config import config_folder
from cuebook.gate.policy import find, load_bundle
from cuebook.gate.sandbox import probe
from cuebook.kernel.errors import BadInput
from cuebook.performers.models import ProviderStatus, find_weights
from cuebook.stores.schema import MIGRATIONS
from cuebook.surfaces.cli import live, options, session
from cuebook.surfaces.cli.options import Given, command
from cuebook.surfaces.keys import backend
from cuebook.surfaces.wiring import Wiring


@command("doctor", [options.STORE, options.AS_JSON])
def doctor_command(given: Given) -> int:
    """Say what was found, where, and what is missing.

    Exit code 2 means that a run could not start as things are.
    """
    wiring = session.wiring_of(given)
    found, missing = examined(wiring)
    found["sandbox"] = _sandbox(wiring, missing)
    found["workspace"] = _workspace(wiring, missing)
    found["policy"] = _policy(wiring, missing)
    found["tool_servers"] = [
        {"name": one.name, "where": one.where, "runs": shlex.join(one.command) or one.url}
        for one in wiring.config.reach.servers.values()
    ]
    if given["as_json"]:
        sys.stdout.write(live.json_line({**found, "missing": missing}))
    else:
        sys.stdout.write(_in_words(found, missing))
    return 0 if found["ready"] else 2


def examined(wiring: Wiring) -> tuple[dict[str, Any], list[str]]:
    missing: list[str] = []
    config = wiring.config
    store = _store(config.get("store"))
    if store["problem"]:
        missing.append(store["problem"])
    usable = _usable(wiring)
    if usable:
        missing.append(usable)
    name, works = backend()
    if not works:
        missing.append("No keyring: `cuebook keys` cannot keep keys here. Set them in the environment instead.")
    weights = find_weights()
    if weights is None and not usable:
        missing.append("The embedded model is not installed. `cuebook models install local` does it (98 MB).")
    settings = {key: _setting(wiring, key) for key in config.values}
    found = {
        "ready": not store["problem"] and not usable,
        "version": __version__,
        "python": {"version": platform.python_version(), "path": sys.executable},
        "system": f"{platform.system()} {platform.machine()}",
        "store": store,
        "config_files": [
            {
                "whose": "user",
                "path": str(config.user_file),
                "found": bool(config.user_file and config.user_file.is_file()),
            },
            {
                "whose": "project",
                "path": str(config.project_file) if config.project_file else None,
                "found": config.project_file is not None,
            },
        ],
        "settings": settings,
        "model": {"name": wiring.model, "usable": not usable},
        "providers": [_provider(wiring, status) for status in wiring.providers.available()],
        "weights": str(weights) if weights else None,
        "keyring": {"backend": name, "usable": works},
    }
    return found, missing


def _sandbox(wiring: Wiring, missing: list[str]) -> dict[str, Any]:
    """What really holds, found by trying it."""
    probes = asyncio.run(probe())
    setting = wiring.config.get("sandbox")
    working = [one.name for one in probes if one.works]
    active = setting if setting != "auto" else next(iter(working), None)
    if setting == "none":
        missing.append("The sandbox is switched off: commands and tool servers run with all your rights.")
    elif active not in working:
        missing.append(
            f"No sandbox works here{'' if setting == 'auto' else f' as {setting}'}: commands and tool servers are"
            ' refused. Install bubblewrap, or set sandbox = "none" if you must.'
        )
        active = None
    tried = [{"name": one.name, "works": one.works, "detail": one.detail} for one in probes]
    return {"setting": setting, "active": active, "tried": tried}


def _workspace(wiring: Wiring, missing: list[str]) -> dict[str, Any]:
    path = wiring.config.get("workspace")
    problem = wiring.reaching.unfit(path)
    if problem is not None:
        missing.append(f"{problem}")
    return {"path": str(path), "usable": problem is None}


def _policy(wiring: Wiring, missing: list[str]) -> list[dict[str, Any]]:
    try:
        found = find(config_folder(os.environ), wiring.config.folder)
        for one in found:
            load_bundle(one.path)
    except BadInput as error:
        missing.append(str(error))
        return []
    return [{"whose": one.whose, "path": str(one.path)} for one in found]


def _setting(wiring: Wiring, name: str) -> dict[str, Any]:
    value, origin = wiring.config.get(name), str(wiring.config.origin(name))
    if name == "model" and value is None:
        value = wiring.model
    if name == "max_tokens" and value is None and wiring.max_tokens is not None:
        value, origin = wiring.max_tokens, "default of the embedded model"
    return {"value": str(value) if isinstance(value, Path) else value, "origin": origin}


def _usable(wiring: Wiring) -> str:
    """Why the model cannot be asked, or nothing."""
    try:
        wiring.providers.check(wiring.model)
        wiring.performer()
    except BadInput as error:
        return str(error)
    return ""


def _provider(wiring: Wiring, status: ProviderStatus) -> dict[str, Any]:
    config = wiring.provider_configs.get(status.name)
    key = None if config is None else config.key
    source = wiring.keys.source(key) if key else None
    address = config.base_url if config is not None else None
    return {
        "name": status.name,
        "address": address,
        "key": key,
        "key_source": source,
        "usable": status.usable,
        "reason": status.reason,
    }


def _store(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = {"path": str(path), "exists": path.exists(), "schema": None, "problem": ""}
    if not path.exists():
        folder = path.parent
        while not folder.exists():
            folder = folder.parent
        if not os.access(folder, os.W_OK):
            found["problem"] = f"The store {path} cannot be created. Choose another with --store or CUEBOOK_STORE."
        return found
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
        try:
            found["schema"] = int(connection.execute("PRAGMA user_version").fetchone()[0])
            tables = int(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])
            sound = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
        finally:
            connection.close()
    except sqlite3.Error as error:
        found["problem"] = f"The store {path} cannot be read ({error}). Choose another with --store or CUEBOOK_STORE."
        return found
    if sound != "ok":
        found["problem"] = f"The store {path} is damaged ({sound}). Restore it from a backup."
    elif found["schema"] == 0 and tables:
        found["problem"] = (
            f"{path} is a database, but not a Cuebook store. Choose another with --store or CUEBOOK_STORE."
        )
    elif found["schema"] > len(MIGRATIONS):
        found["problem"] = f"The store {path} was written by a newer Cuebook. Upgrade, or choose another with --store."
    elif not os.access(path, os.W_OK):
        found["problem"] = f"The store {path} cannot be written. Check its permissions."
    return found


def _in_words(found: dict[str, Any], missing: list[str]) -> str:
    store = found["store"]
    state = f"schema {store['schema']}" if store["exists"] else "not there yet; the first run creates it"
    lines = [
        f"cuebook   {found['version']}",
        f"python    {found['python']['version']} ({found['python']['path']})",
        f"system    {found['system']}",
        f"store     {store['path']} ({state})",
        *(_file_line(file) for file in found["config_files"]),
        f"model     {found['model']['name']} ({'ready' if found['model']['usable'] else 'cannot be used'})",
        f"weights   {found['weights'] or 'none'}",
        f"keyring   {found['keyring']['backend']}",
        f"workspace {found['workspace']['path']}{'' if found['workspace']['usable'] else ' (cannot be used)'}",
        f"sandbox   {found['sandbox']['active'] or 'none that works'} (set to {found['sandbox']['setting']})",
        *(f"          {_probe_line(one)}" for one in found["sandbox"]["tried"]),
        *(f"policy    {one['path']} ({one['whose']})" for one in found["policy"]),
        *([] if found["policy"] else ["policy    no file: what only reads is allowed, everything else is asked about"]),
        *(f"tools     {one['name']}: {one['runs']} ({one['where']})" for one in found["tool_servers"]),
        "",
        "settings",
        *(f"  {name:<20}{_value(one['value']):<32}  {one['origin']}" for name, one in found["settings"].items()),
        "",
        "providers",
        *(_provider_line(one) for one in found["providers"]),
        "",
    ]
    if missing:
        lines += ["missing", *(f"  {one}" for one in missing)]
    else:
        lines.append("Nothing is missing.")
    lines.append("Another model: `cuebook run --model provider/model`, CUEBOOK_MODEL, or 'model' in cuebook.toml.")
    return "\n".join(lines) + "\n"


def _probe_line(one: dict[str, Any]) -> str:
    return f"{one['name']}: {'works' if one['works'] else 'does not work'}; {one['detail']}"


def _file_line(file: dict[str, Any]) -> str:
    if file["path"] is None:
        return "config    no cuebook.toml of a project here"
    return f"config    {file['path']} ({file['whose']}{'' if file['found'] else ', not there'})"


def _value(value: Any) -> str:
    return "none" if value is None else str(value)


def _provider_line(one: dict[str, Any]) -> str:
    if one["key_source"] and one["usable"]:
        return f"  {one['name']:<16}ready, key from the {one['key_source']}"
    if one["usable"]:
        return f"  {one['name']:<16}{'wants no key' if one['address'] else 'ready'}"
    return f"  {one['name']:<16}{one['reason']}"
