"""Parses sources: strings and tagged objects. Nothing is read here, because a run reads its sources when it begins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, cast

from cuebook.dialects.graph.model import Source, Sources
from cuebook.formats.shape import SCHEMA, Shape
from cuebook.formats.values import Value
from cuebook.kernel.errors import BadInput

INVALID_SHAPE = "SOURCE_INVALID_SHAPE"
INVALID_TYPE = "SOURCE_INVALID_TYPE"

Kind = Literal["inline", "file", "url"]

_FILES = ("./", "../", "/")
_URLS = ("http://", "https://")
_TAGS = ("inline", "file", "url")
_FIX = "Use a string, or an object with inline, file or url."


class BadSource(BadInput):
    """A value that is not a valid source."""

    code = "bad_source"

    def __init__(self, kind: str, message: str, fix: str = _FIX) -> None:
        self.kind = kind
        """The error code that the format defines."""
        super().__init__(message, fix=fix)


def classified(text: str, line: int = 0) -> Source:
    """The source that a string refers to, according to its prefix."""
    if text.startswith(_FILES):
        return Source("file", text, line=line)
    return Source("url" if text.startswith(_URLS) else "inline", text, line=line)


def given_sources(value: Any) -> tuple[Source, ...]:
    """The sources in an input of a run, which is one source or a list. Raises `BadSource` if a source is invalid."""
    if value is None:
        return ()
    return tuple(given_source(one) for one in (value if isinstance(value, list | tuple) else [value]))


def given_source(value: Any) -> Source:
    """The source in an input, which is a string or a tagged object."""
    if isinstance(value, str) and value:
        return classified(value)
    if not isinstance(value, Mapping):
        raise BadSource(INVALID_SHAPE, "A source must be a non-empty string or a tagged object.")
    found = _tagged(dict(value), 0)
    flaw = _flaw(found)
    if flaw is not None:
        raise flaw
    return found


def _tagged(fields: dict[str, Any], line: int) -> Source:
    tags = [tag for tag in _TAGS if tag in fields]
    if len(tags) != 1 or set(fields) - {tags[0]} - ({"type"} if tags == ["url"] else set()):
        raise BadSource(
            INVALID_SHAPE,
            "A tagged source must have exactly one of inline, file and url (and with url, optionally type).",
        )
    kind = tags[0]
    text, type_ = fields[kind], fields.get("type", "")
    if not isinstance(text, str) or not isinstance(type_, str) or (not text and kind != "url"):
        raise BadSource(INVALID_SHAPE, f"The {kind} of a source must be a non-empty string.")
    return Source(cast(Kind, kind), text, type_, line)


def _flaw(source: Source) -> BadSource | None:
    """An error that the published schema does not catch, if there is one."""
    if source.kind == "url" and not source.value.startswith(_URLS):
        return BadSource(INVALID_SHAPE, f"'{source.value[:60]}' is not a valid URL.", "It must begin with https://.")
    if source.type not in ("", "fetch"):
        return BadSource(INVALID_TYPE, f"Unknown source type '{source.type[:60]}'.", "The only type is fetch.")
    return None


# --- in a document ---

_EMPTY = Source("inline", "")


def source(shape: Shape, value: Value, at: str) -> Source:
    """Reads a source in a document."""
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
    """Reads either a list, which adds to the inherited sources, or `{only, sources}`."""
    if value.kind != "map":
        return Sources(listed(shape, value, at))
    fields = shape.closed(value, at, ("sources", "only"), ("sources",))
    found = listed(shape, fields["sources"], f"{at}.sources") if "sources" in fields else ()
    return Sources(found, shape.flag(fields["only"], f"{at}.only") if "only" in fields else False)
