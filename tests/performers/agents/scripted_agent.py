"""A coding agent for tests, a process of its own: it does what the lines of its prompt that begin with `do:` say.

Its session is kept in its home folder, so that a later process can continue after the last line that was begun.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any, cast

import acp
from acp import schema

MODE = os.environ.get("AGENT_MODE", "")
HOME = Path(os.environ["HOME"])


def write(path: str, text: str) -> None:
    Path(path).write_text(text)


def read(path: str) -> str:
    return Path(path).read_text()


def run(command: str) -> None:
    subprocess.run(["/bin/sh", "-c", command], check=False)


class ScriptedAgent:
    def __init__(self) -> None:
        self.client: Any = None
        self.lines: list[str] = []
        self.servers: list[Any] = []
        self.said = 0

    def on_connect(self, conn: Any) -> None:
        self.client = conn

    async def initialize(self, protocol_version: int, **more: Any) -> acp.InitializeResponse:
        if MODE == "mute":
            await asyncio.sleep(3600)
        loads = MODE != "no-load"
        return acp.InitializeResponse(
            protocol_version=99 if MODE == "future" else protocol_version,
            agent_capabilities=schema.AgentCapabilities(load_session=loads),
            auth_methods=[schema.AuthMethodAgent(id="by-key", name="Key")] if MODE == "signed-out" else [],
        )

    async def authenticate(self, method_id: str, **more: Any) -> Any:
        if method_id != "by-key":
            raise acp.RequestError.invalid_params({"methodId": method_id})
        (HOME / "login.json").write_text(json.dumps({"key": os.environ["AGENT_KEY"]}))
        return acp.AuthenticateResponse()

    async def new_session(self, cwd: str, mcp_servers: Any = None, **more: Any) -> acp.NewSessionResponse:
        if MODE == "signed-out" and not (HOME / "login.json").exists():
            raise acp.RequestError.auth_required()
        self.servers = mcp_servers or []
        return acp.NewSessionResponse(session_id="s1")

    async def load_session(self, cwd: str, session_id: str, mcp_servers: Any = None, **more: Any) -> Any:
        if MODE == "signed-out" and not (HOME / "login.json").exists():
            raise acp.RequestError.auth_required()
        if MODE == "lies":
            raise acp.RequestError.internal_error({"details": "no such session"})
        self.servers = mcp_servers or []
        self.lines = json.loads((HOME / f"{session_id}.json").read_text())
        await self.client.session_update(session_id, acp.update_agent_message_text("(what it said before)"))
        return acp.LoadSessionResponse()

    async def cancel(self, session_id: str, **more: Any) -> None:
        pass

    async def prompt(self, session_id: str, prompt: list[Any], **more: Any) -> acp.PromptResponse:
        text = "".join(getattr(block, "text", "") for block in prompt)
        (HOME / "prompts.txt").open("a").write(f"{text}\n=====\n")
        if MODE == "no-account":
            raise acp.RequestError.auth_required()
        fresh = [line.partition("do:")[2].strip() for line in text.splitlines() if line.strip().startswith("do:")]
        if not text.startswith("Your process was"):
            self.lines = fresh
        while self.lines:
            line = self.lines[0]
            (HOME / f"{session_id}.json").write_text(json.dumps(self.lines))
            verb, _, rest = line.partition(" ")
            await getattr(self, f"do_{verb}")(session_id, rest)
            self.lines.pop(0)
        usage = schema.Usage(total_tokens=12, input_tokens=7, output_tokens=5) if MODE == "usage" else None
        return acp.PromptResponse(stop_reason="end_turn", usage=usage)

    async def say(self, session: str, text: str) -> None:
        await self.client.session_update(session, acp.update_agent_message_text(text))

    async def do_say(self, session: str, text: str) -> None:
        await self.say(session, text)

    async def do_plan(self, session: str, text: str) -> None:
        await self.client.session_update(session, acp.update_plan([acp.plan_entry(text, status="in_progress")]))

    async def do_cost(self, session: str, text: str) -> None:
        cost = schema.Cost(amount=float(text), currency="USD")
        update = schema.UsageUpdate(session_update="usage_update", size=100, used=10, cost=cost)
        await self.client.session_update(session, update)

    async def do_call(self, session: str, title: str) -> None:
        await self.client.session_update(session, acp.start_tool_call("c1", title, kind="execute", status="pending"))
        await self.client.session_update(session, acp.update_tool_call("c1", status="completed", raw_output="fine"))

    async def do_begin(self, session: str, title: str) -> None:
        await self.client.session_update(
            session, acp.start_tool_call("b1", title, kind="execute", status="in_progress")
        )

    async def ask(self, session: str, kind: Any, **fields: Any) -> bool:
        self.said += 1
        call = schema.ToolCallUpdate(tool_call_id=f"p{self.said}-{os.getpid()}", kind=kind, **fields)
        options = [
            schema.PermissionOption(option_id="y", name="Yes", kind="allow_once"),
            schema.PermissionOption(option_id="n", name="No", kind="reject_once"),
        ]
        answer = await self.client.request_permission(session_id=session, tool_call=call, options=options)
        return getattr(answer.outcome, "option_id", "") == "y"

    async def do_execute(self, session: str, command: str) -> None:
        """Asks for a command until it is allowed, at most three times, then runs it itself."""
        for _ in range(3):
            if await self.ask(session, "execute", title=command, raw_input={"command": command}):
                run(command)
                await self.say(session, f"Ran {command}.")
                return
        await self.say(session, "Gave up.")

    async def do_edit(self, session: str, rest: str) -> None:
        path, _, text = rest.partition(" ")
        change = acp.tool_diff_content(path, text, "")
        if await self.ask(session, "edit", title=f"Edit {path}", content=[change]):
            await self.say(session, f"Edited {path}.")
            await self.client.write_text_file(session_id=session, path=path, content=text)
        else:
            await self.say(session, f"May not edit {path}.")

    async def do_append(self, session: str, rest: str) -> None:
        """Asks for a line at the end of a file until it is allowed, at most twice."""
        path, _, line = rest.partition(" ")
        before = read(path)
        after = f"{before}{line}\n"
        for _ in range(2):
            await self.client.session_update(
                session, acp.start_tool_call(f"a{self.said}", f"Edit {Path(path).name}", kind="edit", status="pending")
            )
            change = acp.tool_diff_content(path, after, before)
            if await self.ask(session, "edit", title=f"Edit {Path(path).name}", content=[change]):
                await self.client.write_text_file(session_id=session, path=path, content=after)
                await self.say(session, f"Changed {Path(path).name}.")
                return
            await self.say(session, "Denied. I ask once more. ")

    async def do_trick(self, session: str, rest: str) -> None:
        """Asks for something else than what it writes."""
        how, path, text = rest.split(" ", 2)
        shown = acp.tool_diff_content(path, "harmless" if how == "other" else text, text if how == "same" else "")
        kind = "read" if how == "read" else "edit"
        if await self.ask(session, kind, title=f"Look at {path}", content=[shown]):
            if how == "link":
                folder = Path(path).parent
                folder.rename(folder.with_name("moved"))
                folder.symlink_to(folder.with_name("other"))
            await self.do_write(session, f"{path} {text}")
        else:
            await self.say(session, "May not.")

    async def do_read(self, session: str, path: str) -> None:
        try:
            found = await self.client.read_text_file(session_id=session, path=path)
            await self.say(session, found.content)
        except acp.RequestError as error:
            await self.say(session, f"Refused: {error}")

    async def do_write(self, session: str, rest: str) -> None:
        path, _, text = rest.partition(" ")
        try:
            await self.client.write_text_file(session_id=session, path=path, content=text)
            await self.say(session, f"Wrote {path}.")
        except acp.RequestError as error:
            await self.say(session, f"Refused: {error}")

    async def do_run(self, session: str, command: str) -> None:
        made = await self.client.create_terminal(session_id=session, command=command)
        ended = await self.client.wait_for_terminal_exit(session_id=session, terminal_id=made.terminal_id)
        output = await self.client.terminal_output(session_id=session, terminal_id=made.terminal_id)
        await self.say(session, f"{ended.exit_code}: {output.output}")

    async def do_tool(self, session: str, rest: str) -> None:
        """Calls a tool of the server that the client offers."""
        name, _, arguments = rest.partition(" ")
        server = self.servers[0]
        process = await asyncio.create_subprocess_exec(
            server.command, *server.args, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        assert process.stdin is not None
        assert process.stdout is not None

        sink, source = process.stdin, process.stdout

        async def request(number: int, method: str, **params: Any) -> Any:
            body = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            sink.write(json.dumps(body).encode() + b"\n")
            return json.loads(await source.readline())["result"]

        await request(1, "initialize", protocolVersion="2025-06-18")
        tools = [tool["name"] for tool in (await request(2, "tools/list"))["tools"]]
        result = await request(3, "tools/call", name=name, arguments=json.loads(arguments))
        process.stdin.close()
        await process.wait()
        await self.say(session, f"{tools} {result['content'][0]['text']}")

    async def do_fetch(self, session: str, url: str) -> None:
        try:
            await self.say(
                session, await asyncio.to_thread(lambda: urllib.request.urlopen(url, timeout=10).read().decode())
            )
        except OSError as error:
            await self.say(session, f"Unreachable: {error}")

    async def do_env(self, session: str, name: str) -> None:
        await self.say(session, f"{name}={os.environ.get(name, '')}")

    async def do_touch(self, session: str, path: str) -> None:
        try:
            write(path, "touched")
            await self.say(session, "Touched.")
        except OSError as error:
            await self.say(session, f"Cannot: {error.strerror}")

    async def do_mark(self, session: str, path: str) -> None:
        """Says where it is, and waits until it is killed. A later process goes on."""
        if (HOME / "marked").exists():
            return
        (HOME / "marked").touch()
        write(path, str(os.getpid()))
        while os.access(path, os.F_OK):
            await asyncio.sleep(0.01)

    async def do_hang(self, session: str, rest: str) -> None:
        await asyncio.sleep(3600)

    async def do_die(self, session: str, rest: str) -> None:
        if not (HOME / "died").exists():
            (HOME / "died").touch()
            os._exit(3)

    async def do_flood(self, session: str, rest: str) -> None:
        while True:
            await self.say(session, "x" * 100_000)

    async def do_garbage(self, session: str, rest: str) -> None:
        for _ in range(100):
            sys.stdout.buffer.write(b"{not json\n[1, 2]\n")
            sys.stdout.buffer.flush()
        await asyncio.sleep(3600)

    async def do_stray(self, session: str, path: str) -> None:
        """Asks for things that it may not ask for."""
        for method, params in (
            ("fs/write_text_file", {"sessionId": "another", "path": path, "content": "x"}),
            ("fs/delete_everything", {"sessionId": session}),
            ("terminal/output", {"sessionId": session, "terminalId": "t99"}),
        ):
            try:
                await self.client._conn.send_request(method, params)
            except acp.RequestError:
                continue
        await self.say(session, "Refused.")

    async def do_line(self, session: str, rest: str) -> None:
        os.set_blocking(1, True)
        sys.stdout.buffer.write(b'"' + b"x" * (8 << 20))
        sys.stdout.buffer.flush()
        await asyncio.sleep(3600)


if __name__ == "__main__":
    asyncio.run(acp.run_agent(cast(Any, ScriptedAgent())))
