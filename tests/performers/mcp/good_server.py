"""A well-behaved MCP server, written with the protocol's SDK: `python good_server.py [http]`."""

# No `from __future__ import annotations`: the SDK reads the annotations.
import os
import socket
import sys

import anyio
import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.prompts.base import AssistantMessage, Message, UserMessage
from mcp_types import ImageContent, TextContent, ToolAnnotations
from pydantic import BaseModel

server = MCPServer("good")


class Name(BaseModel):
    name: str


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@server.tool(structured_output=False)
def say(text: str) -> list[TextContent]:
    """Says it twice."""
    return [TextContent(text=text), TextContent(text=text)]


@server.tool(structured_output=False)
def picture() -> list[ImageContent | TextContent]:
    """A picture."""
    return [TextContent(text="look"), ImageContent(data="aGVsbG8=", mime_type="image/png")]


@server.tool()
def fail(why: str) -> str:
    """Fails."""
    raise ValueError(why)


@server.tool()
async def wait(seconds: float) -> str:
    """Waits."""
    await anyio.sleep(seconds)
    return "waited"


@server.tool()
def seen() -> dict[str, str]:
    """What the server was given."""
    return {**os.environ, "cwd": os.getcwd(), "pid": str(os.getpid())}


@server.tool()
def header(name: str, context: Context) -> str:
    """A header of the request."""
    return context.headers.get(name, "") if context.headers else ""


@server.tool()
def long(size: int) -> str:
    """A long text."""
    return "x" * size


@server.tool()
async def grow(context: Context) -> str:
    """Adds another tool."""

    def grown() -> str:
        return "grown"

    server.add_tool(grown, description="New.")
    await context.notify_tools_changed()
    return "done"


@server.tool()
async def ask(context: Context) -> str:
    """Asks the user something."""
    answer = await context.elicit("Who are you?", Name)
    return answer.action


@server.prompt()
def greeting() -> str:
    """One message."""
    return "Greet {{name}} kindly.\n"


@server.prompt()
def two_parts() -> list[Message]:
    """Two messages of one role, with a picture between them."""
    picture = UserMessage(ImageContent(data="aGVsbG8=", mime_type="image/png"))
    return [UserMessage("First."), picture, UserMessage("Second.")]


@server.prompt()
def dialogue() -> list[Message]:
    """Several roles."""
    return [UserMessage("What is tea?"), AssistantMessage("A plant."), UserMessage("Say more.")]


@server.prompt()
def about(topic: str) -> str:
    """Needs an argument."""
    return f"Write about {topic}."


@server.prompt()
async def slow() -> str:
    """Takes its time."""
    await anyio.sleep(600)
    return "at last"


@server.prompt()
def lengthy() -> str:
    """Longer than a source may be."""
    return "x" * 2_000_001


def on_the_network() -> None:
    """Listens on a free port of this machine and says which."""
    listening = socket.create_server(("127.0.0.1", 0))
    print(listening.getsockname()[1], flush=True)
    app = server.streamable_http_app(stateless_http="stateless" in sys.argv, json_response="json" in sys.argv)
    uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[listening])


if __name__ == "__main__":
    if "http" in sys.argv:
        on_the_network()
    else:
        server.run()
