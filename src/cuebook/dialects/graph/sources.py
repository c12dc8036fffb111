"""What kind of source a text or a tagged object is. Nothing is read here: a source is resolved when a run begins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, cast

from cuebook.dialects.graph.model import Source, Sources
from cuebook.dialects.shape import SCHEMA, Shape
from cuebook.dialects.values import Value
from cuebook.kernel.errors import BadInput

INVALID_SHAPE = "SOURCE_INVALID_SHAPE"
INVALID_TYPE = "SOURCE_INVALID_TYPE"

Kind = Literal["inline", "file", "url"]

_FILES = ("./", "../", "/")
_URLS = ("http://", "https://")
_TAGS = ("inline", "file", "url")
_FIX = "Write a text, or one of inline, file and url."


class BadSource(BadInput):
    """This is no source."""

    code = "bad_source"

    def __init__(self, kind: str, message: str, fix: str = _FIX) -> None:
        self.kind = kind
        """One of the codes of the format."""
        super().__init__(message, fix=fix)


def classified(text: str, line: int = 0) -> Source:
    """A text as a source: how it begins decides."""
    if text.startswith(_FILES):
        return Source("file", text, line=line)
    return Source("url" if text.startswith(_URLS) else "inline", text, line=line)


def given_sources(value: Any) -> tuple[Source, ...]:
    """Sources that come with a run's input: one, or a list of them. `BadSource` says what is wrong."""
    if value is None:
        return ()
    return tuple(given_source(one) for one in (value if isinstance(value, list | tuple) else [value]))


def given_source(value: Any) -> Source:
    """A text or a tagged object."""
    if isinstance(value, str) and value:
        return classified(value)
    if not isinstance(value, Mapping):
        raise BadSource(INVALID_SHAPE, "A source must be a text that is not empty, or a tagged object.")
    found = _tagged(dict(value), 0)
    flaw = _flaw(found)
    if flaw is not None:
        raise flaw
    return found


def _tagged(fields: dict[str, Any], line: int) -> Source:
    tags = [tag for tag in _TAGS if tag in fields]
    if len(tags) != 1 or set(fields) - {tags[0]} - ({"type"} if tags == ["url"] else set()):
        raise BadSource(INVALID_SHAPE, "A tagged source has one of inline, file and url (with url also type).")
    kind = tags[0]
    text, type_ = fields[kind], fields.get("type", "")
    if not isinstance(text, str) or not isinstance(type_, str) or (not text and kind != "url"):
        raise BadSource(INVALID_SHAPE, f"The {kind} of a source must be a text that is not empty.")
    return Source(cast(Kind, kind), text, type_, line)


def _flaw(source: Source) -> BadSource | None:
    """What the published schema lets pass."""
    if source.kind == "url" and not source.value.startswith(_URLS):
        return BadSource(INVALID_SHAPE, f"'{source.value[:60]}' is no address.", "Begin it with https://.")
    if source.type not in ("", "fetch"):
        return BadSource(INVALID_TYPE, f"There is no type of source '{source.type[:60]}'.", "The only one is fetch.")
    return None


# --- in a document ---

_EMPTY = Source("inline", "")


def source(shape: Shape, value: Value, at: str) -> Source:
    """A source as a document has it."""
    if value.kind != "map":
        return classified(shape.text(value, at), value.line)
    try:
        found = _tagged({name: one.plain for name, one in value.fields.items()}, value.line)
    except BadSource as bad:
        shape.wrong(value.line, f"{at}: {bad.message}", bad.fix, SCHEMA)
        return _EMPTY
    flaw = _flaw(found)
    if flaw is not None:
        shape.wrong(value.line, f"{at}: {flaw.message}", flaw.fix, flaw.kind)
    return found


def listed(shape: Shape, value: Value, at: str) -> tuple[Source, ...]:
    items = shape.items(value, at)
    return tuple(source(shape, one, f"{at}[{number}]") for number, one in enumerate(items))


def of_node(shape: Shape, value: Value, at: str) -> Sources:
    """A list, which adds to what is inherited, or `{only, sources}`."""
    if value.kind != "map":
        return Sources(listed(shape, value, at))
    fields = shape.closed(value, at, ("sources", "only"), ("sources",))
    found = listed(shape, fields["sources"], f"{at}.sources") if "sources" in fields else ()
    return Sources(found, shape.flag(fields["only"], f"{at}.only") if "only" in fields else False)
