"""The messages between a server and a node: JSON text frames, one object each, with its type in the field `is`.

The node opens the connection and sends `Hello`, the server answers with `Welcome`; from then on both sides send when they
have something to say. Requests are identified by ids that outlive connections and processes.
"""

from __future__ import annotations

import hashlib
from typing import Any, Literal, TypeAlias, TypeVar

import msgspec

from cuebook.kernel.errors import CuebookError

T = TypeVar("T")

VERSION = 1
PATH = "/nodes/connect"
SUBPROTOCOL = f"cuebook.node.{VERSION}"
MAX_MESSAGE = 1 << 20
"""The most bytes of one message. A longer one ends the connection, so both sides cut what they send (see `fits`)."""
MAX_OUTPUT = 256 * 1024
"""The most bytes of text, and of error output, in an outcome. Text with many control characters is cut further (see `fits`),
because JSON escapes them."""
PING_SECONDS = 20.0
"""How often the server pings the node."""
SILENCE_SECONDS = 60.0
"""How long either side waits for the other, which is silent, before it ends the connection."""
HELLO_SECONDS = 10.0
"""How long the server waits for the first message."""
KEPT_DAYS = 7
"""How long a node keeps the outcomes of requests that the server has not asked it to forget."""
NAME = r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}"
"""The names of nodes, capabilities and actions."""

Closed: TypeAlias = Literal[
    "bad_message", "other_protocol", "paired_already", "connected_already", "revoked", "renewed", "too_many", "stopping"
]
"""Why the server ends a connection, or refuses it.

- `bad_message`, `other_protocol`: the sides do not understand each other;
- `paired_already`: another machine used this pairing token;
- `connected_already`: a node with this key is connected and answers;
- `revoked`, `renewed`: the pairing was ended, or ended in favour of a new token;
- `too_many`: this server has as many connections as it takes; a node tries again later;
- `stopping`: the server stops; a node connects again when it is back.
"""

CLOSE_CODES: dict[Closed, int] = {
    "bad_message": 4000,
    "other_protocol": 4001,
    "paired_already": 4002,
    "connected_already": 4003,
    "revoked": 4004,
    "renewed": 4005,
    "too_many": 4006,
    "stopping": 4007,
}
RETRIED: frozenset[Closed] = frozenset({"too_many", "stopping"})
"""The reasons after which a node connects again by itself; after any other it ends and says why."""


class Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="is", tag=True, omit_defaults=True):
    """What one side sends to the other. Unknown fields are ignored, so that either side may be newer."""


# --- what a node offers ---------------------------------------------------------------------------


class OfferedAction(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    about: str = ""
    """What it does, in one sentence."""
    schema: dict[str, Any] = {}
    """The JSON Schema of its arguments, an object."""
    reads_only: bool = False
    """Whether it changes nothing on the node."""
    idempotent: bool = False
    """Whether it may be repeated when its outcome is unknown."""


class Offered(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A capability."""

    name: str
    actions: tuple[OfferedAction, ...] = ()

    def action(self, name: str) -> OfferedAction | None:
        return next((one for one in self.actions if one.name == name), None)


# --- node to server -------------------------------------------------------------------------------


class Hello(Message, frozen=True, kw_only=True):
    """The first message of a connection."""

    protocol: int
    release: str = ""
    """The version of Cuebook on the node."""
    host: str = ""
    system: str = ""
    pid: int = 0
    key: str = ""
    """The digest of the node's key (see `digest`), if it connects with a pairing token; otherwise empty."""
    capabilities: tuple[Offered, ...] = ()


class Began(Message, frozen=True, kw_only=True):
    """The request is in the node's ledger and starts now. Before this, nothing was done."""

    id: str


class Output(Message, frozen=True, kw_only=True):
    """Output as it appears, to be shown only."""

    id: str
    stream: Literal["stdout", "stderr"] = "stdout"
    text: str = ""


class Finished(Message, frozen=True, kw_only=True):
    """The outcome of a request that came to its end."""

    id: str
    value: Any = None
    """The result as data, if the action has one."""
    text: str = ""
    """Its result as text: the standard output of a command, the text of a file."""
    stderr: str = ""
    exit_code: int | None = None
    """The exit code of a command; any but 0 is a failure."""
    cut: bool = False
    """Whether text, error output or value is incomplete, because it was too long."""


class Refused(Message, frozen=True, kw_only=True):
    """The outcome of a request that was refused or failed."""

    id: str
    code: str
    """`not_offered` (unknown capability or action), `not_allowed` (outside the node's allow-list), `bad_arguments`, `timeout`,
    `cancelled` (after `Stop`), or a code of the capability's own."""
    message: str
    fix: str = ""
    began: bool = False
    """Whether something may have been done."""
    text: str = ""
    """Its output until then."""
    stderr: str = ""


class Known(Message, frozen=True, kw_only=True):
    """What the node knows of a request, in answer to `Ask`."""

    id: str
    state: Literal["unknown", "running", "ended", "interrupted"]
    """`unknown`: it never began. `interrupted`: it began, and the node's process ended before its outcome was written."""
    outcome: Finished | Refused | None = None
    """The outcome, if it ended."""


# --- server to node -------------------------------------------------------------------------------


class Welcome(Message, frozen=True, kw_only=True):
    """The answer to `Hello`: the connection may be used, and a pairing token is spent."""

    node: str
    """The node's name on the server."""
    server: str = ""
    """The version of Cuebook on the server."""


class Goodbye(Message, frozen=True, kw_only=True):
    """The last message before the server closes the connection, with the code of `CLOSE_CODES`; the reason of a close frame is
    too short for a message."""

    code: Closed
    message: str
    fix: str = ""


class Call(Message, frozen=True, kw_only=True):
    """A request. The id names the effect and the attempt, also after the server was started again. A node never performs an id
    twice: to one that it knows, it answers with what it knows, as to `Ask`."""

    id: str
    capability: str
    action: str
    arguments: dict[str, Any] = {}
    seconds: float | None = None
    """How long it may take."""
    max_output: int = MAX_OUTPUT
    """How many bytes of text, and of error output, are kept."""
    run: str = ""
    step: str = ""
    again: bool = False
    """Whether an earlier server process may have sent it before."""


class Ask(Message, frozen=True, kw_only=True):
    """Asks what became of a request."""

    id: str


class Stop(Message, frozen=True, kw_only=True):
    """Ends a request, with everything that it started. The node answers with the outcome."""

    id: str


class Forget(Message, frozen=True, kw_only=True):
    """The outcomes are recorded, so the node may delete them."""

    ids: tuple[str, ...]


Outcome: TypeAlias = Finished | Refused
FromNode: TypeAlias = Hello | Began | Output | Finished | Refused | Known
FromServer: TypeAlias = Welcome | Goodbye | Call | Ask | Stop | Forget


class BadMessage(CuebookError):
    code = "bad_message"


_encoder = msgspec.json.Encoder()
_from_node: msgspec.json.Decoder[FromNode] = msgspec.json.Decoder(FromNode)
_from_server: msgspec.json.Decoder[FromServer] = msgspec.json.Decoder(FromServer)


def encode(message: Message) -> str:
    """A message as a frame."""
    frame = _encoder.encode(message)
    if len(frame) > MAX_MESSAGE:
        raise BadMessage(
            f"A {type(message).__name__} of {len(frame):,} bytes is longer than a message may be ({MAX_MESSAGE:,} bytes)."
        )
    return frame.decode()


def fits(message: Message) -> bool:
    """Whether a message is short enough to be sent."""
    return len(_encoder.encode(message)) <= MAX_MESSAGE


def from_node(frame: str | bytes) -> FromNode:
    return _read(_from_node, frame)


def from_server(frame: str | bytes) -> FromServer:
    return _read(_from_server, frame)


def _read(decoder: msgspec.json.Decoder[T], frame: str | bytes) -> T:
    if len(frame) > MAX_MESSAGE:
        raise BadMessage(f"A message of {len(frame):,} bytes is longer than {MAX_MESSAGE:,} bytes.")
    try:
        return decoder.decode(frame)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise BadMessage(f"Not a message of this protocol: {error}.") from None


def digest(key: str) -> str:
    """The digest of a key or a token, by which the server knows it."""
    return hashlib.sha256(key.encode()).hexdigest()
