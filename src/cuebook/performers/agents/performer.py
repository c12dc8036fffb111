"""Performs `AskModel` with a coding agent: starts it in the sandbox, prompts it, and returns what it says or waits for.

An agent's process outlives a call while it waits for the program; its session can outlive its process.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from cuebook.formats.addresses import parse_place
from cuebook.kernel.capabilities import SANDBOX
from cuebook.kernel.context import Text
from cuebook.kernel.effects import AskModel
from cuebook.kernel.errors import BadInput, CuebookError
from cuebook.kernel.outcomes import REFUSED, RESUMABLE, UNANSWERED, Failed, Reply
from cuebook.kernel.ports import Action, Call, Confinement, Description, Estimate, Limits, Sandbox
from cuebook.kernel.run import Settings
from cuebook.performers.agents.catalogue import PREFIX, Agent, Catalogue
from cuebook.performers.agents.homes import Home, Homes
from cuebook.performers.agents.pipes import Pipes
from cuebook.performers.agents.prompts import continued, first_prompt, results_since
from cuebook.performers.agents.session import SIGN_IN, Broken, Grants, Session, offered
from cuebook.performers.agents.tool_server import ToolServer
from cuebook.performers.tools.toolbox import no_secrets

_FIXES = {
    "agent_timeout": "Give it more time with `seconds` in [agents.NAME], or a smaller task.",
    "agent_died": "`cuebook doctor` shows whether the agent can be started here.",
    "agent_protocol": "Update the agent, or choose another one.",
    "agent_session_lost": "Look at what it has done so far, then decide.",
    SIGN_IN: "Give it a key or its credentials, as `secret_env` or `secret_files` in [agents.NAME], and retry the step.",
    "agent_error": "Correct what the agent reports, such as its key or its model, and retry the step.",
}


async def _no_secrets(handle: str) -> str:
    return no_secrets(handle)


class AgentPerformer:
    """Implements `kernel.ports.Performer`, `Describer` and `ActingModels` for the models `acp/NAME`."""

    def __init__(
        self,
        catalogue: Catalogue,
        sandbox: Sandbox,
        workspace: Path,
        homes: Homes,
        *,
        reveal: Callable[[str], Awaitable[str]] = _no_secrets,
        learn: Callable[[str], None] = lambda secret: None,
        hidden: Iterable[Path] = (),
        fixed: Iterable[Path] = (),
        readable: Iterable[Path] = (),
        problem: Failed | None = None,
    ) -> None:
        """`learn` makes the redactor mask a value; `problem` says why the workspace cannot be used."""
        self.catalogue = catalogue
        self._sandbox = sandbox
        self.workspace = workspace
        self.homes = homes
        self._reveal = reveal
        self._learn = learn
        self._hidden = tuple(map(str, hidden))
        self._fixed = tuple(map(str, fixed))
        self._readable = tuple(map(str, readable))
        """Paths outside the workspace that agents may read."""
        self._problem = problem
        self._live: dict[tuple[str, str], tuple[Session, asyncio.Task[None]]] = {}
        """The processes that wait for a program, by run and session, each with the task that ends it in time."""

    # --- for the engine and the gate ---

    def acts(self, effect: AskModel, settings: Settings) -> bool:
        return effect.relays

    def needs(self, effect: AskModel, settings: Settings) -> tuple[str, ...]:
        return (SANDBOX,)

    def estimate(self, effect: AskModel, settings: Settings) -> Estimate:
        return Estimate(0, 0, None)

    def is_free(self, effect: AskModel, settings: Settings) -> bool:
        return False

    async def describe(self, effect: AskModel, settings: Settings) -> Description | Failed:
        name = settings.asked(effect.model)
        action = Action("model", name, reads_only=True)
        try:
            agent = self.catalogue.agent(name)
            program = self.catalogue.program(agent)
        except BadInput:  # performing it reports what is wrong
            return Description((action,), f"Ask {name}")
        preview = {
            "agent": name,
            "program": program,
            "prompt": effect.prompt,
            "may change": "nothing" if not effect.relays else f"the workspace, {self.workspace}",
            "network": ", ".join(agent.hosts) or "no",
            "secrets": "\n".join(f"[secret {handle}]" for handle in agent.handles),
        }
        shown = {name: text for name, text in preview.items() if text}
        reached = [Action("egress", f"CONNECT {parse_place(host).url.place}", reads_only=True) for host in agent.hosts]
        bound = {"command": list(agent.command), "hosts": list(agent.hosts), "relays": effect.relays}
        # A session that continues was admitted when it began; rules that deny it still apply.
        return Description((action, *reached), f"Ask {name}", shown, bound, harmless=bool(effect.session))

    async def continues(self, effect: AskModel, call: Call) -> bool:
        home = self._home(effect, call)
        return home is not None and home.loads

    async def close(self) -> None:
        """Ends all agents that wait."""
        for session, timer in list(self._live.values()):
            timer.cancel()
            await session.close()
        self._live.clear()

    # --- performing ---

    async def perform(self, effect: AskModel, call: Call) -> Reply | Failed:
        if self._problem is not None:
            return self._problem
        try:
            agent = self.catalogue.agent(call.settings.asked(effect.model))
            program = self.catalogue.program(agent)
        except BadInput as error:
            return Failed.of(error)
        refused = self._refused()
        if refused is not None:
            return refused
        return await _Turn(self, agent, program, effect, call).perform()

    def _refused(self) -> Failed | None:
        if self._sandbox.problem:
            return Failed("no_sandbox", self._sandbox.problem, fix="`cuebook doctor` shows what works here.")
        return None

    def _home(self, effect: AskModel, call: Call) -> Home | None:
        folder = effect.session.partition("/")[0] or folder_of(call.key)
        return self.homes.find(call.run, folder)

    # --- the processes that wait ---

    def keep(self, call: Call, session: Session, name: str, stays: float) -> None:
        key = (call.run, name)
        self._live[key] = (session, asyncio.get_running_loop().create_task(self._end_later(key, stays)))

    def take(self, call: Call, name: str) -> Session | None:
        found = self._live.pop((call.run, name), None)
        if found is None:
            return None
        found[1].cancel()
        return found[0]

    async def _end_later(self, key: tuple[str, str], seconds: float) -> None:
        await asyncio.sleep(seconds)
        session, _ = self._live.pop(key)
        await session.close()

    # --- starting a process ---

    async def start(
        self, agent: Agent, program: str, effect: AskModel, call: Call, home: Home, grants: Grants
    ) -> Session:
        """Starts the process and agrees on the protocol. Raises `Broken` or `CuebookError`."""
        secrets = await self._secrets(agent, home)
        limits = Limits(
            seconds=agent.seconds,
            cpu_seconds=int(agent.seconds) * 16,
            memory=agent.memory,
            processes=agent.processes,
            open_files=4_096,
        )
        folder = str(home.folder)
        credentials = (str(home.secrets),) if agent.secret_files else ()
        process = await self._sandbox.spawn(
            Confinement(
                argv=(*_with_own_loopback(agent), _started_as(program), *agent.command[1:]),
                cwd=str(self.workspace),
                env={**_environment(folder, program), **agent.env, **secrets},
                writable=(folder, str(self.workspace)) if effect.relays else (folder,),
                readable=(str(self.workspace), *self._readable, *_consists_of(program), *agent.readable, *credentials),
                hidden=self._hidden,
                fixed=self._fixed,
                network=agent.hosts,
                limits=limits,
            )
        )
        pipes = Pipes(process)
        session: Session | None = None
        try:
            await pipes.open()
            session = Session(
                f"{PREFIX}{agent.name}",
                pipes,
                relays=effect.relays,
                grants=grants,
                masked=call.masked,
                sign_in=agent.sign_in if secrets else "",
            )
            session.on_close = lambda: home.remove_secrets(secrets.values())
            await session.start()
            return session
        except BaseException:
            await (pipes.close() if session is None else session.close())
            raise

    async def _secrets(self, agent: Agent, home: Home) -> dict[str, str]:
        """The values of the agent's variables. Its files are written to its home folder."""
        values: dict[str, str] = {}
        for name, handle in agent.secret_env.items():
            try:
                values[name] = await self._reveal(handle)
            except CuebookError:
                if name not in agent.optional:
                    raise
        for name, handle in agent.secret_files.items():
            content = await self._reveal(handle)
            for part in _parts(content):
                self._learn(part)
            home.write(name, content)
        return values

    def tools(self, session: Session, effect: AskModel, home: Home) -> list[dict[str, Any]]:
        """The servers that the agent can use: one with the step's own tools, if it has any."""
        found = offered(effect.tools)
        if not found or not effect.relays:
            return []
        session.tools = ToolServer(str(home.folder), found, session.call_tool)
        return [session.tools.open()]


class _Turn:
    """One call: from the prompt, or from the results that an agent waited for, to its next request or the end of its turn."""

    def __init__(self, performer: AgentPerformer, agent: Agent, program: str, effect: AskModel, call: Call) -> None:
        self._performer = performer
        self._agent = agent
        self._program = program
        self._effect = effect
        self._call = call
        self._began = time.monotonic()
        self._seconds = min(one for one in (agent.seconds, effect.timeout, call.limits.seconds) if one is not None)

    @property
    def _name(self) -> str:
        return f"{PREFIX}{self._agent.name}"

    async def perform(self) -> Reply | Failed:
        session: Session | None = None
        kept = sent = False
        try:
            session, text, home = await self._opened()
            home.remember(session.id, loads=session.loads)
            name = f"{home.name}/{session.id}"
            if text:
                session.begin_reply()
            await self._call.begin()
            sent = True
            if text:
                session.prompt(text)
            left = self._seconds - (time.monotonic() - self._began)
            calls, response = await session.hear(self._call.emit, self._call.note, left)
            if not calls:
                return self._ended(session, response, name)
            reply = Reply(
                Text(session.said()),
                calls,
                self._name,
                "tool_calls",
                session.usage({}),
                time.monotonic() - self._began,
                session=name,
            )
            self._performer.keep(self._call, session, name, self._agent.stays)
            kept = True
            return reply
        except Broken as broken:
            # An agent that refuses a prompt because it is not signed in has done nothing.
            refused = broken.code == SIGN_IN and session is not None and not session.worked
            return self._failed(broken, sent and not refused)
        except CuebookError as error:
            return Failed.of(error)
        finally:
            if session is not None and not kept:
                await asyncio.shield(session.close())

    async def _opened(self) -> tuple[Session, str, Home]:
        """The agent's session, what to prompt it with (empty if it only waits for results), and its home."""
        performer, effect, call = self._performer, self._effect, self._call
        folder, _, known = effect.session.partition("/")
        home = performer.homes.open(call.run, folder or folder_of(call.key))
        results = results_since(effect)
        if known:
            live = performer.take(call, effect.session)
            if live is not None and live.alive and live.answer({one.id: one.answer for one in results}):
                return live, "", home
            if live is not None:
                await live.close()
        if home.session and home.loads:
            session = await self._loaded(home, [one.digest for one in results if one.granted])
            return session, continued(effect, results), home
        if known and home.session:
            home.forget()  # if someone decides to repeat it, it begins anew
            raise Broken("agent_session_lost", "Its process ended while it waited, and it cannot continue its session.")
        session = await performer.start(self._agent, self._program, effect, call, home, Grants())
        servers = performer.tools(session, effect, home)
        await self._opening(session, session.new(str(performer.workspace), servers))
        return session, first_prompt(effect), home

    async def _loaded(self, home: Home, granted: list[str]) -> Session:
        performer = self._performer
        session = await performer.start(self._agent, self._program, self._effect, self._call, home, Grants(granted))
        servers = performer.tools(session, self._effect, home)
        try:
            await self._opening(session, session.load(home.session, str(performer.workspace), servers))
        except Broken as broken:
            if broken.code == "agent_session_lost":
                home.forget()
            raise
        return session

    async def _opening(self, session: Session, opening: Awaitable[None]) -> None:
        try:
            await opening
        except BaseException:
            await session.close()
            raise

    def _ended(self, session: Session, response: dict[str, Any], name: str) -> Reply | Failed:
        reason = str(response.get("stopReason", ""))
        said = session.said()
        finish = {"max_tokens": "length", "max_turn_requests": "length", "watch": "watch"}.get(reason, "stop")
        usage = session.usage(response)
        details = {"model": self._name, "usage": msgspec.to_builtins(usage), "finish": reason}
        if reason == "refusal":
            quoted = self._call.masked(said)[:300] or "it gave no reason"
            return Failed(REFUSED, f"{self._name} refused to answer: {quoted}", details=details)
        if reason == "cancelled":
            return Failed("agent_stopped", f"{self._name} ended its turn as if it had been cancelled.", details=details)
        if finish == "length":
            self._call.warn("reply_cut", f"{self._name} stopped at a limit of its own ({reason}).")
        seconds = time.monotonic() - self._began
        reply = Reply(Text(said), (), self._name, finish, usage, seconds, session=name)
        return self._judged(reply, details)

    def _judged(self, reply: Reply, details: dict[str, Any]) -> Reply | Failed:
        effect = self._effect
        if effect.schema is not None and reply.text:
            fenced = re.search(r"```(?:json)?[ \t]*\n(.*?)\n?```\s*$", reply.text, re.DOTALL)
            if fenced:
                reply = msgspec.structs.replace(reply, content=Text(fenced[1]))
        if effect.lenient or effect.watch is not None:
            return reply
        wrong = "" if reply.text.strip() else "it is empty"
        if not wrong and effect.schema is not None:
            from cuebook.formats.schema import mismatches

            try:
                wrong = next(iter(mismatches(effect.schema, json.loads(reply.text), most=1)), "")
            except (ValueError, RecursionError) as error:
                wrong = f"it is not JSON ({error})"
        if not wrong:
            return reply
        code = "schema_mismatch" if reply.text.strip() else "reply_empty"
        details = {**details, "reply": self._call.masked(reply.text)[:2_000]}
        return Failed(code, f"The reply of {self._name} cannot be used: {wrong}.", "Retry the step.", details=details)

    def _failed(self, broken: Broken, sent: bool) -> Failed:
        details: dict[str, Any] = {"model": self._name}
        if sent or broken.code == "agent_session_lost":
            details[UNANSWERED] = True
        if sent and broken.code == "agent_died":
            details[RESUMABLE] = True
        words = f"The coding agent {self._agent.name} failed. {broken}"
        fix = _FIXES.get(broken.code, "").replace("NAME", self._agent.name)
        if broken.code == SIGN_IN and self._agent.optional:
            fix = f"Set {' or '.join(self._agent.optional)}, or g{fix[1:]}"
        return Failed(broken.code, words, fix, details=details)


def folder_of(key: str) -> str:
    """The name of the folder for the session that a call begins."""
    return sha256(key.encode()).hexdigest()[:24]


def _with_own_loopback(agent: Agent) -> tuple[str, ...]:
    """Words before the command that keep its connections to itself away from the proxy: several agents are a client and a
    server in one process. Inside the sandbox, 127.0.0.1 is the sandbox.
    """
    if not agent.hosts or any(host.startswith("127.") for host in agent.hosts):
        return ()
    return "/usr/bin/env", "no_proxy=127.0.0.1", "NO_PROXY=127.0.0.1"


def _environment(home: str, program: str) -> dict[str, str]:
    passed_on = {name: os.environ[name] for name in ("LANG", "TZ") if name in os.environ}
    path = os.pathsep.join(
        dict.fromkeys((os.path.dirname(program), *os.environ.get("PATH", os.defpath).split(os.pathsep)))
    )
    return {"PATH": path, "HOME": home, "TMPDIR": home, "TERM": "dumb", "LANG": "C.UTF-8", **passed_on}


def _started_as(program: str) -> str:
    """The path to start a program by. The packages of npm are started by links, and find their parts beside the real file."""
    real = os.path.realpath(program)
    return real if "/node_modules/" in real else program


def _consists_of(program: str) -> tuple[str, ...]:
    """The paths that a program must be able to read in order to run: itself, the packages around it, its interpreter."""
    real = os.path.realpath(program)
    found = [program, real]
    head, packages, _ = real.partition("/node_modules/")
    if packages:
        found.append(f"{head}/node_modules")
    for name in ("node", "python3"):
        interpreter = shutil.which(name)
        if interpreter:
            found.append(os.path.realpath(interpreter))
    for path in (program, real):
        environment = os.path.dirname(os.path.dirname(path))
        if os.path.isfile(os.path.join(environment, "pyvenv.cfg")):
            found.append(environment)
    return tuple(dict.fromkeys(found))


def _parts(content: str) -> list[str]:
    """The texts in a file of credentials that are long enough to be secrets."""
    found: list[str] = []

    def visit(value: Any) -> None:
        if isinstance(value, dict):
            for one in value.values():
                visit(one)
        elif isinstance(value, list):
            for one in value:
                visit(one)
        elif isinstance(value, str) and len(value) >= 16:
            found.append(value)

    with suppress(ValueError, RecursionError):
        visit(json.loads(content))
    return found
