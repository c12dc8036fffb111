"""`cuebook doctor`: reports what was found and where, and what is missing and how to get it. It changes nothing."""

from __future__ import annotations

import asyncio
import os
import platform
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from cuebook import __version__
from cuebook.config import config_folder
from cuebook.config.settings import DURATIONS, SIZES, Rate
from cuebook.gate.policy import content_of, find, trust_subject
from cuebook.gate.roles import is_reserved
from cuebook.gate.sandbox.probe import probe
from cuebook.kernel.errors import BadInput, CuebookError
from cuebook.performers.models import ProviderStatus
from cuebook.performers.models.weights import find_weights
from cuebook.service.admin import misnamed
from cuebook.surfaces.cli import options
from cuebook.surfaces.cli.options import Given, command
from cuebook.surfaces.cli.terminal import views
from cuebook.surfaces.cli.terminal.output import say
from cuebook.wiring.evidence import key_of
from cuebook.wiring.insight import collector_headers
from cuebook.wiring.keys import backend
from cuebook.wiring.policy import TENANT
from cuebook.wiring.stores import inspect_store, signing_key
from cuebook.wiring.tools import load_function
from cuebook.wiring.wiring import Wiring


@command("doctor", [options.STORE, options.AS_JSON])
def doctor_command(given: Given) -> int:
    """Check the installation and report what is missing.

    Exit code 2 means that a run could not start.
    """
    refused: list[BadInput] = []
    wiring = Wiring(options.configuration(given, refused))
    found, missing = examined(wiring)
    if refused:
        found["ready"] = False
        missing[:0] = map(str, refused)
    found["temporal"] = _temporal(wiring)
    if found["temporal"] and found["temporal"]["problem"]:
        found["ready"] = False
        missing.append(found["temporal"]["problem"])
    found["sign_in"] = _sign_in(wiring, missing)
    found["sandbox"] = _sandbox(wiring, missing)
    found["browser"] = _browser(wiring)
    found["workspace"] = _workspace(wiring, missing)
    found["policy"], found["policy_problem"] = _policy(wiring, found["store"])
    if found["policy_problem"]:
        found["ready"] = False
        missing.append(found["policy_problem"])
    found["tool_servers"] = [
        {"name": one.name, "where": one.where, "runs": shlex.join(one.command) or one.url}
        for one in wiring.config.reach.servers.values()
    ]
    found["functions"] = _functions(wiring, missing)
    found["channels"] = _channels(wiring, missing)
    found["in_use"] = _in_use(wiring, missing)
    found["ready"] = found["ready"] and not any(
        one["problem"] for one in found["in_use"] if one["setting"] in _FOR_RUNS
    )
    found["worktrees"] = [msgspec.to_builtins(one) for one in wiring.factory.worktrees.leftovers()]
    found["agents"] = [msgspec.to_builtins(status) for status in wiring.factory.catalogue.statuses()]
    if given["as_json"]:
        sys.stdout.write(views.json_line({**found, "missing": missing}))
    else:
        say(_in_words(found, missing))
    return 0 if found["ready"] else 2


def examined(wiring: Wiring) -> tuple[dict[str, Any], list[str]]:
    missing: list[str] = []
    config = wiring.config
    store = {**_store(wiring), "in_workspace": wiring.factory.workspace.holds_store}
    if store["problem"]:
        missing.append(store["problem"])
    elif store["schema"]:
        missing += [misnamed(name) for name in _kept(wiring, "user") if is_reserved(name)]
    usable = _usable(wiring)
    if usable:
        missing.append(usable)
    name, works = backend()
    if not works:
        missing.append("No keyring is available, so `cuebook keys` cannot store keys. Set them in the environment.")
    weights = find_weights()
    if weights is None and not usable:
        missing.append("The embedded model is not installed. `cuebook models install local` installs it (98 MB).")
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


def _temporal(wiring: Wiring) -> dict[str, Any] | None:
    """The server that brings runs to workers and why it cannot be used; None if none is configured."""
    address = wiring.config.get("temporal.address")
    if address is None:
        return None

    async def connect() -> None:
        dispatcher = wiring.dispatcher
        if dispatcher is not None:
            try:
                await dispatcher.connect()
            finally:
                await dispatcher.close()

    try:
        asyncio.run(connect())
    except CuebookError as error:
        return {"address": address, "problem": str(error)}
    return {"address": address, "problem": ""}


def _sign_in(wiring: Wiring, missing: list[str]) -> dict[str, Any] | None:
    """The identity provider and why nobody could sign in with it; None if none is configured."""
    issuer = wiring.config.get("oidc.issuer")
    if issuer is None:
        return None
    problem = asyncio.run(wiring.provider_problem())
    missing += [problem] if problem else []
    return {"issuer": issuer, "problem": problem}


def _sandbox(wiring: Wiring, missing: list[str]) -> dict[str, Any]:
    """The sandboxes that work here, determined by trying them."""
    probes = asyncio.run(probe())
    setting = wiring.config.get("sandbox")
    working = [one.name for one in probes if one.works]
    active = setting if setting != "auto" else next(iter(working), None)
    if setting == "none":
        missing.append("The sandbox is off: commands and tool servers run with all your permissions.")
    elif active not in working:
        missing.append(
            f"{'No sandbox works' if setting == 'auto' else f'The sandbox {setting} does not work'} here: commands and tool"
            ' servers are refused. Install bubblewrap, or set sandbox = "none" to run them unconfined.'
        )
        active = None
    tried = [{"name": one.name, "works": one.works, "detail": one.detail} for one in probes]
    return {"setting": setting, "active": active, "tried": tried}


def _browser(wiring: Wiring) -> dict[str, str]:
    """The program for web steps, or why there is none. Few playbooks need one, so nothing is missing without it."""
    from cuebook.performers.browser.chromium import program

    problem = wiring.browser_problem
    return {
        "program": "" if problem is not None else program(wiring.factory.environ),
        "problem": "" if problem is None else f"{problem.message} {problem.fix}",
    }


def _workspace(wiring: Wiring, missing: list[str]) -> dict[str, Any]:
    path = wiring.config.get("workspace")
    problem = wiring.factory.workspace.unfit(path)
    if problem is not None:
        missing.append(f"{problem}")
    return {"path": str(path), "usable": problem is None}


def _policy(wiring: Wiring, store: dict[str, Any]) -> tuple[list[dict[str, Any]], str]:
    """The policy files and whether each is trusted, and the error if one is broken."""
    try:
        found = [(one, content_of(one.path)[1]) for one in find(config_folder(os.environ), wiring.config.folder)]
    except BadInput as error:
        return [], str(error)
    kept = _kept(wiring, "trust") if store["schema"] and not store["problem"] else {}
    trusts = {name: str(body["digest"]) for name, body in kept.items()}
    return [
        {
            "whose": one.whose,
            "path": str(one.path),
            "trusted": one.whose == "user" or trusts.get(trust_subject(one.path)) == digest,
        }
        for one, digest in found
    ], ""


def _kept(wiring: Wiring, kind: str) -> dict[str, dict[str, Any]]:
    found = inspect_store(wiring.config, wiring.factory.vault.resolve)
    try:
        return found.kept(TENANT, kind)
    finally:
        found.close()


def _functions(wiring: Wiring, missing: list[str]) -> list[dict[str, Any]]:
    listed = []
    for name, path in wiring.config.reach.functions.items():
        problem = ""
        try:
            load_function(name, path)
        except BadInput as error:
            problem = str(error)
            missing.append(problem)
        listed.append({"name": name, "function": path, "problem": problem})
    return listed


def _channels(wiring: Wiring, missing: list[str]) -> list[dict[str, str]]:
    """The channels for notifications, and why one cannot be used. Nothing is sent; `cuebook notify test` does that."""
    settings = wiring.config.notifications
    if settings is None:
        return []
    from cuebook.wiring.notifications import problems_of

    found = problems_of(wiring)
    missing += [f"{settings.channels[name].where}: {problem}" for name, problem in found.items() if problem]
    if settings.channels and wiring.config.get("serve.public_url") is None:
        missing.append("public_url is not set in [serve], so messages have no link to the page that decides.")
    return [{"name": name, "kind": settings.channels[name].kind, "problem": problem} for name, problem in found.items()]


def _in_use(wiring: Wiring, missing: list[str]) -> list[dict[str, str]]:
    """The settings with a key or a library behind them, and why one cannot be used."""
    listed = []
    for name, use in _USES.items():
        value = wiring.config.get(name)
        if not value:
            continue
        problem = ""
        try:
            use(wiring)
        except CuebookError as error:
            where = str(wiring.config.origin(name))
            problem = str(error) if str(error).startswith(where) else f"{where}: {error}"
            missing.append(problem)
        listed.append({"setting": name, "value": str(value), "problem": problem})
    return listed


_USES: dict[str, Callable[[Wiring], object]] = {
    "signing_key": lambda wiring: signing_key(wiring.config, wiring.factory.vault.resolve),
    "evidence.key": lambda wiring: key_of(wiring.config),
    "metrics.token": lambda wiring: wiring.metrics_token,
    "otel.endpoint": collector_headers,
}
_FOR_RUNS = ("signing_key", "otel.endpoint")
"""Those without which no run can start."""


def _setting(wiring: Wiring, name: str) -> dict[str, Any]:
    value, origin = wiring.config.get(name), str(wiring.config.origin(name))
    if name == "model" and value is None:
        value = wiring.model
    if name == "max_tokens" and value is None and wiring.max_tokens is not None:
        value, origin = wiring.max_tokens, "the embedded model's default"
    return {"value": str(value) if isinstance(value, Path) else value, "origin": origin}


def _usable(wiring: Wiring) -> str:
    """Why the model is not usable; empty if it is usable."""
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
        "at_once": None if config is None else config.at_once,
        "requests_per_minute": None if config is None else config.requests_per_minute,
        "usable": status.usable,
        "reason": status.reason,
    }


def _store(wiring: Wiring) -> dict[str, Any]:
    place = str(wiring.config.get("store"))
    try:
        found = inspect_store(wiring.config, wiring.factory.vault.resolve)
    except CuebookError as error:
        return {"path": place, "exists": False, "schema": None, "problem": str(error)}
    found.close()
    return {"path": place, "exists": found.exists, "schema": found.version, "problem": found.problem}


def _in_words(found: dict[str, Any], missing: list[str]) -> str:
    store = found["store"]
    state = f"schema {store['schema']}" if store["exists"] else "does not exist yet; the first run creates it"
    if store["problem"]:
        state = "cannot be used"
    temporal = found["temporal"]
    lines = [
        f"cuebook   {found['version']}",
        f"python    {found['python']['version']} ({found['python']['path']})",
        f"system    {found['system']}",
        f"store     {store['path']} ({state})",
        *([f"          {_IN_WORKSPACE}"] if store["in_workspace"] else []),
        *(
            [f"temporal  {temporal['address']} ({'cannot be used' if temporal['problem'] else 'ready'})"]
            if temporal
            else []
        ),
        *(
            [f"sign-in   {found['sign_in']['issuer']} ({'cannot be used' if found['sign_in']['problem'] else 'ready'})"]
            if found["sign_in"]
            else []
        ),
        *(_file_line(file) for file in found["config_files"]),
        f"model     {found['model']['name']} ({'ready' if found['model']['usable'] else 'not usable'})",
        f"weights   {found['weights'] or 'none'}",
        f"keyring   {found['keyring']['backend']}",
        f"workspace {found['workspace']['path']}{'' if found['workspace']['usable'] else ' (not usable)'}",
        f"sandbox   {found['sandbox']['active'] or 'none working'} (set to {found['sandbox']['setting']})",
        *(f"          {_probe_line(one)}" for one in found["sandbox"]["tried"]),
        f"browser   {found['browser']['program'] or found['browser']['problem']}",
        *_policy_lines(found),
        *(f"tools     {one['name']}: {one['runs']} ({one['where']})" for one in found["tool_servers"]),
        *(
            f"tools     {one['name']}: {one['function']} ({'cannot be loaded' if one['problem'] else 'loads'})"
            for one in found["functions"]
        ),
        *(f"agent     {one['name']}: {one['program'] or one['problem']}" for one in found["agents"]),
        *(f"notify    {one['name']}: {one['kind']} ({one['problem'] or 'ready'})" for one in found["channels"]),
        *(
            f"uses      {one['setting']}: {one['value']} ({'cannot be used' if one['problem'] else 'ready'})"
            for one in found["in_use"]
        ),
        *(_worktree_line(one) for one in found["worktrees"]),
        "",
        "settings",
        *_setting_lines(found["settings"]),
        "",
        "providers",
        *(_provider_line(one) for one in found["providers"]),
        "",
    ]
    if missing:
        lines += ["missing", *(f"  {one}" for one in missing)]
    else:
        lines.append("Nothing is missing.")
    lines.append(
        "To use another model: `cuebook run --model provider/model`, CUEBOOK_MODEL, or 'model' in cuebook.toml."
    )
    return "\n".join(lines)


def _setting_lines(settings: dict[str, Any]) -> list[str]:
    width = max(map(len, settings))
    return [f"  {name:<{width}}  {_value(name, one['value']):<32}  {one['origin']}" for name, one in settings.items()]


def _worktree_line(one: dict[str, Any]) -> str:
    removal = shlex.join(("git", "-C", one["repository"], "worktree", "remove", "--force", one["folder"]))
    return f"worktree  {one['name']}: {one['folder']} (`{removal}` removes it; its branch is cuebook/{one['name']})"


def _probe_line(one: dict[str, Any]) -> str:
    return f"{one['name']}: {'works' if one['works'] else 'does not work'}. {one['detail']}"


def _file_line(file: dict[str, Any]) -> str:
    if file["path"] is None:
        return "config    no project cuebook.toml here"
    return f"config    {file['path']} ({file['whose']}{'' if file['found'] else ', does not exist'})"


_IN_WORKSPACE = "It is inside the workspace. Commands cannot reach it there, but a location outside is safer."
_SIZES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_TIMES = ((86400, "d"), (3600, "h"), (60, "min"))


def _policy_lines(found: dict[str, Any]) -> list[str]:
    if found["policy_problem"]:
        return [f"policy    BROKEN: {found['policy_problem']}"]
    lines = [f"policy    {one['path']} ({_standing(one)})" for one in found["policy"]]
    return lines or ["policy    no file: reading is allowed, everything else needs approval"]


def _standing(file: dict[str, Any]) -> str:
    if file["whose"] == "user":
        return "user"
    return f"{file['whose']}, {'trusted' if file['trusted'] else 'not trusted: it can only restrict actions'}"


def _value(name: str, value: Any) -> str:
    """A value with its unit."""
    if value is None:
        return "never" if name in DURATIONS and name != "retention.older_than" else "none"
    if isinstance(value, list | tuple):
        return ", ".join(value) or "none"
    if name in DURATIONS or name.endswith("seconds"):
        return _measured(value, _TIMES, "s")
    if name in SIZES:
        return _measured(value, _SIZES, "bytes")
    if isinstance(value, Rate):
        return f"{value.starts}/{value.per}"
    return str(value)


def _measured(amount: float, units: Sequence[tuple[int, str]], otherwise: str) -> str:
    """The amount in the largest unit that divides it. A duration never becomes one of a unit: 24 h, not 1 d."""
    for size, unit in units:
        if amount and amount % size == 0 and (amount > size or otherwise != "s"):
            return f"{amount / size:g} {unit}"
    return f"{amount:,.12g} {otherwise}"


def _provider_line(one: dict[str, Any]) -> str:
    limits = f"; {', '.join(_limits_of(one))}" if _limits_of(one) else ""
    if one["key_source"] and one["usable"]:
        return f"  {one['name']:<16}ready, key from the {one['key_source']}{limits}"
    if one["usable"]:
        return f"  {one['name']:<16}{'needs no key' if one['address'] else 'ready'}{limits}"
    return f"  {one['name']:<16}{one['reason']}"


def _limits_of(provider: dict[str, Any]) -> list[str]:
    at_once, per_minute = provider["at_once"], provider["requests_per_minute"]
    limits = [] if at_once is None else [f"at most {at_once} calls at once"]
    return limits if per_minute is None else [*limits, f"at most {per_minute} calls a minute"]
