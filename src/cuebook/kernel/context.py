"""Texts and contexts: a model's input, addressed by content and built by appending.

A `Text` carries its digest and is loaded on first use; a `Context` is a list that shares its beginning with the list it
was built from, so adding a block takes constant time. No I/O happens here: a stored text carries the function that
loads it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Any, Literal

import msgspec

Role = Literal["system", "user", "assistant", "tool"]

INLINE_LIMIT = 2_000
"""Text of up to this many characters is stored in its record; longer text is stored once, by digest."""

_STRETCH = 64
"""Blocks are joined and cached in groups of this size, so reading a context again is cheap."""


def digest_of(value: str) -> str:
    return sha256(value.encode("utf-8", "surrogatepass")).hexdigest()


class Text:
    """A string that may not be in memory yet."""

    __slots__ = ("_digest", "_length", "_load", "_value")

    def __init__(self, value: str) -> None:
        self._value: str | None = value
        self._digest: str | None = None
        self._length = len(value)
        self._load: Callable[[str], str] | None = None

    @classmethod
    def stored(cls, digest: str, length: int, load: Callable[[str], str]) -> Text:
        text = cls("")
        text._value, text._digest, text._length, text._load = None, digest, length, load
        return text

    @property
    def digest(self) -> str:
        if self._digest is None:
            self._digest = digest_of(str(self))
        return self._digest

    @property
    def loaded(self) -> bool:
        return self._value is not None

    def __len__(self) -> int:
        return self._length

    def __str__(self) -> str:
        if self._value is None:
            assert self._load is not None and self._digest is not None
            self._value = self._load(self._digest)
        return self._value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Text) and len(self) == len(other) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"Text({str(self)!r})" if self.loaded else f"Text(<{self._length} characters, {self._digest}>)"


class ToolCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tool call that the model requests."""

    id: str
    name: str
    arguments: dict[str, Any] = {}
    malformed: str = ""
    """The raw arguments if they were not a JSON object."""


class Attachment(msgspec.Struct, frozen=True, omit_defaults=True):
    """An image or a document that goes to a model together with a text."""

    media_type: str
    data: Text
    """The content in base64. Like every long text, it is stored once, by digest."""
    name: str = ""


class Block(msgspec.Struct, frozen=True, omit_defaults=True):
    """One piece of a context: system text, an earlier output, or a turn of a conversation."""

    role: Role
    text: Text
    calls: tuple[ToolCall, ...] = ()
    """The tool calls of an assistant turn."""
    call_id: str = ""
    """The id of the call that a tool turn answers."""
    is_error: bool = False
    """Whether that call failed."""
    attachments: tuple[Attachment, ...] = ()
    thinking: tuple[dict[str, Any], ...] = ()
    """The reasoning of an assistant turn, in its provider's own form."""

    def head(self, parent: str) -> str:
        """The block as stored: the digests of its predecessor, of its text and of its attachments."""
        node: tuple[Any, ...] = (parent, self.role, self.text.digest, self.call_id, self.calls)
        if self.attachments or self.thinking:
            files = [(one.media_type, one.data.digest, one.name) for one in self.attachments]
            node = (*node, self.is_error, files)
            return _encode((*node, self.thinking) if self.thinking else node).decode()
        return _encode((*node, True) if self.is_error else node).decode()


_encode = msgspec.json.Encoder().encode


class Context:
    """Blocks in order. `add` returns a new context and leaves this one unchanged."""

    __slots__ = ("_base", "_digest", "_head", "_joined", "_lead", "block", "parent", "size", "weight")

    def __init__(self, parent: Context | None = None, block: Block | None = None) -> None:
        self.parent = parent
        self.block = block
        self.size: int = 0 if parent is None else parent.size + 1
        self._lead: Context | None = None if parent is None else parent._lead
        if self._lead is None and parent is not None and block is not None and block.role != "system":
            self._lead = parent
        self._base: Context | None = parent if parent is None or parent.size % _STRETCH == 0 else parent._base
        self._joined: str | None = None
        self._head = ""
        self._digest: str | None = "" if block is None else None
        self.weight: int | None = 0 if block is None else None
        """How much of a model's window it takes, in characters, once a conversation has counted it."""

    @property
    def digest(self) -> str:
        """Computed on first use, because many contexts are never sent to a model."""
        if self._digest is None:
            self._settle()
        return self._digest or ""

    @property
    def head(self) -> str:
        """The last block as stored."""
        if self._digest is None:
            self._settle()
        return self._head

    def _settle(self) -> None:
        unsettled: list[Context] = []
        node: Context | None = self
        while node is not None and node._digest is None:
            unsettled.append(node)
            node = node.parent
        before = "" if node is None or node._digest is None else node._digest
        for node in reversed(unsettled):
            assert node.block is not None
            node._head = node.block.head(before)
            before = node._digest = digest_of(node._head)

    def add(
        self,
        role: Role,
        text: Text | str,
        *,
        calls: tuple[ToolCall, ...] = (),
        call_id: str = "",
        is_error: bool = False,
        attachments: tuple[Attachment, ...] = (),
        thinking: tuple[dict[str, Any], ...] = (),
    ) -> Context:
        said = text if isinstance(text, Text) else Text(text)
        return Context(self, Block(role, said, calls, call_id, is_error, attachments, thinking))

    @property
    def lead(self) -> Context:
        """The longest prefix that consists only of system blocks."""
        return self if self._lead is None else self._lead

    def joined(self) -> str:
        """The texts of all blocks, separated by blank lines."""
        pieces: list[str] = []
        node = self
        while node._base is not None:
            pieces.append(node._since_base())
            node = node._base
        return "\n\n".join(reversed(pieces))

    def _since_base(self) -> str:
        if self._joined is not None:
            return self._joined
        texts: list[str] = []
        node: Context | None = self
        while node is not None and node is not self._base and node.block is not None:
            texts.append(str(node.block.text))
            node = node.parent
        joined = "\n\n".join(reversed(texts))
        if self.size % _STRETCH == 0:
            self._joined = joined
        return joined

    def __iter__(self) -> Iterator[Block]:
        blocks: list[Block] = []
        node: Context | None = self
        while node is not None and node.block is not None:
            blocks.append(node.block)
            node = node.parent
        return reversed(blocks)

    def __len__(self) -> int:
        return self.size

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Context) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)


EMPTY = Context()
