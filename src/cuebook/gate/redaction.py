"""Takes secrets out of everything that is about to be stored or shown, in whatever form they are written there.

It knows values and the names they are masked with; not where values come from, nor who reads what is left.
"""

from __future__ import annotations

import json
import re
import threading
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any, TypeVar, cast

import msgspec

from cuebook.gate.glance import is_clean
from cuebook.kernel.context import Text

T = TypeVar("T")

SHORTEST = 8
"""Shorter secrets and forms would mask innocent text."""
SHORTEST_LINE = 16
"""A line of a secret is masked on its own from this length on."""
DEEPEST = 200
"""Values nested deeper than this are not looked into, but cut off."""
CUT = "[nested too deeply to be searched for secrets]"
SHORTEST_TAIL = 4
"""The beginning of a secret at the end of a text that was cut off is masked from this length on."""
_CUT_WHERE = {"stdout": "truncated", "stderr": "stderr_truncated", "body": "truncated"}
"""Parts of an outcome, and what stands beside them that says whether their end was cut off."""
_PLAIN = ("value", "result", "state")
"""Fields that hold any value: in others a number stays a number."""
_CUT_SHORT = ("length", "watch")
"""How a reply ends that was not finished."""

# --- the ways to write a character ------------------------------------------------------------------------


class _Node:
    """A place within the ways to write one character."""

    __slots__ = ("ends", "next")

    def __init__(self, spellings: Iterable[str] = ()) -> None:
        self.next: dict[str, _Node] = {}
        self.ends = False
        for spelling in spellings:
            node = self
            for char in spelling:
                node = node.next.setdefault(char, _Node())
            node.ends = True


_SHORT = {
    '"': ('\\"', '""'),
    "'": ("\\'", "''", "'\\''", "'\"'\"'"),
    "\\": ("\\\\",),
    "/": ("\\/",),
    " ": ("+",),
    "\b": ("\\b",),
    "\f": ("\\f",),
    "\n": ("\\n", "\r\n"),
    "\r": ("\\r",),
    "\t": ("\\t",),
}
"""Escapes of JSON, of programming languages, shells, CSV and forms."""


@lru_cache(maxsize=4096)
def _any_spelling(char: str) -> _Node:
    """The character as such, escaped in any way, and once more escaped, in the same way or another."""
    once = {char, *_escaped(char)}
    return _Node(once.union(*map(_escaped_again, once)))


def _escaped(char: str) -> Iterator[str]:
    code = ord(char)
    yield from _SHORT.get(char, ())
    encoded = {char.encode("utf-8", "surrogatepass")}
    if 128 <= code < 256:
        encoded.add(char.encode("latin-1"))
    if code >= 128:  # UTF-8 that someone took for Latin-1, as in the headers of a request
        yield char.encode("utf-8", "surrogatepass").decode("latin-1")
    for data in encoded:
        yield from _both_cases("%{:02x}", data)
        yield from _both_cases("\\x{:02x}", data)
    wide = char.encode("utf-16-be", "surrogatepass")
    yield from _both_cases("\\u{:04x}", [int.from_bytes(wide[at : at + 2]) for at in range(0, len(wide), 2)])
    yield from _both_cases("&#x{:x};", [code])
    yield from (f"&#{code};", f"&#{code:03};", *_named_entities().get(char, ()))


def _both_cases(pattern: str, numbers: Iterable[int]) -> tuple[str, str]:
    numbers = list(numbers)
    upper = pattern.replace("x}", "X}")
    return "".join(map(pattern.format, numbers)), "".join(map(upper.format, numbers))


def _escaped_again(text: str) -> Iterator[str]:
    from html import escape
    from urllib.parse import quote

    for ascii_only in (True, False):
        in_json = json.dumps(text, ensure_ascii=ascii_only)[1:-1]
        yield from (in_json, in_json.replace("/", "\\/"))
    in_url = quote(text, safe="", errors="surrogatepass")
    yield from (in_url, re.sub("%..", lambda found: found[0].lower(), in_url))
    in_html = escape(text)
    yield from (in_html, in_html.replace("&#x27;", "&#39;"), escape(text, quote=False))


@lru_cache(maxsize=1)
def _named_entities() -> dict[str, list[str]]:
    from html.entities import html5

    names: dict[str, list[str]] = {}
    for name, char in html5.items():
        if name.endswith(";"):
            names.setdefault(char, []).append(f"&{name}")
    return names


@lru_cache(maxsize=256)
def _digit(chars: str) -> _Node:
    """A digit of base64 or hex that is a letter or a number: nobody escapes these."""
    return _Node(chars)


@lru_cache(maxsize=2)
def _sign(char: str) -> _Node:
    """A digit of base64 that is neither. The alphabet for URLs has others in their place."""
    once = {char, {"+": "-", "/": "_"}[char], *_escaped(char)}
    return _Node(once.union(*map(_escaped_again, once)))


_LINE_BREAKS = ("\n", "\r\n", "\\n", "\\r\\n", "\\\\n", "\\\\r\\\\n", "%0A", "%0D%0A", "%0a", "%0d%0a")
_BREAKS = _Node({*_LINE_BREAKS, "\n\t", *("\n" + " " * count for count in range(1, 9))})
"""What may stand between two digits of base64 or hex where the text is folded."""

# --- the forms of a secret --------------------------------------------------------------------------------


class _Form:
    """A sequence of characters, each in one of several spellings, that stands for a secret."""

    __slots__ = ("folded", "name", "units")

    def __init__(self, name: str, units: list[_Node], *, folded: bool) -> None:
        self.name = name
        self.units = units
        self.folded = folded


def _forms(name: str, value: str) -> Iterator[_Form]:
    for text in (value, *_long_lines(value)):
        yield _Form(name, [_any_spelling(char) for char in text], folded=False)
        for data in _as_bytes(text):
            for digits in _base64_alignments(data):
                if len(digits) >= SHORTEST:
                    units = [_sign(digit) if digit in "+/" else _digit(digit) for digit in digits]
                    yield _Form(name, units, folded=True)
        in_hex = next(_as_bytes(text)).hex()
        yield _Form(name, [_digit(digit + digit.upper()) for digit in in_hex], folded=True)


def _long_lines(value: str) -> set[str]:
    lines = {line.strip() for line in value.splitlines()} - {value}
    # The first and last line of a key file are the same in everyone's.
    return {line for line in lines if len(line) >= SHORTEST_LINE and not re.fullmatch("-----[^-]+-----", line)}


def _as_bytes(text: str) -> Iterator[bytes]:
    """The text as it may stand in something that is encoded as a whole: as such, or within JSON."""
    seen: set[bytes] = set()
    for written in (text, json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]):
        try:
            data = written.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            data = written.encode("utf-8", "surrogatepass")
        if data not in seen:
            seen.add(data)
            yield data
    if not text.isascii() and all(ord(char) < 256 for char in text):
        yield text.encode("latin-1")


def _base64_alignments(data: bytes) -> Iterator[str]:
    """What is the same whatever stands before and after, when so many bytes (modulo 3) stand before."""
    for before in range(3):
        digits = b64encode(bytes(before) + data).decode()
        first = (before * 8 + 5) // 6
        yield digits[first : (before + len(data)) * 8 // 6]


# --- finding them -----------------------------------------------------------------------------------------

_Item = tuple[int, int, _Node, bool]
"""A form, the unit that is being read, the place within it, and whether that place is in a line break before it."""


class _State:
    """Everything that may be under way after some characters."""

    __slots__ = ("accepts", "items", "next")

    def __init__(self, items: frozenset[_Item], accepts: str | None) -> None:
        self.items = items
        self.accepts = accepts
        """The name of the secret that ends here, if one does."""
        self.next: dict[str, _State | None] = {}


_Progress = tuple[_State, int, int, str]
"""A search under way: its state, how far it came, where the longest form ended (or -1), and that one's name."""


class _Finder:
    """Finds the leftmost longest form, again and again. Never changed but for its memory of states."""

    REMEMBERED = 20_000
    AHEAD = 4
    """How many characters are looked at before a search begins in earnest."""

    def __init__(self, forms: list[_Form]) -> None:
        self._forms = forms
        self._states: dict[tuple[frozenset[_Item], str | None], _State] = {}
        first = frozenset((index, 0, form.units[0], False) for index, form in enumerate(forms))
        self._start = self._state(first, None)
        self.begins = re.compile(_pattern(_beginnings(forms, self.AHEAD), top=True)).search
        self._masks: dict[str, str] = {}
        names = dict.fromkeys(form.name for form in forms)
        self._masks = {name: self._mask(name) for name in names}

    def text(self, text: str) -> str:
        if self.begins(text) is None:
            return text
        return self.scan(text, None, final=True)[0]

    def cut_text(self, text: str) -> str:
        """Masks a text whose end was cut off, perhaps within a secret."""
        shown, held, progress = self.scan(text, None, final=False)
        if progress is None or len(held) < SHORTEST_TAIL:
            return self.text(text)
        begun = self._forms[min(index for index, *_ in progress[0].items)]
        return shown + self._masks[begun.name]

    def scan(self, text: str, progress: _Progress | None, *, final: bool) -> tuple[str, str, _Progress | None]:
        """The masked text, the tail that is held back because a form may have begun in it, and how far that was read.

        A search under way goes on; it began at the start of the text.
        """
        out: list[str] = []
        done = at = 0
        size = len(text)
        while True:
            if progress is not None:
                (state, position, end, name), progress = progress, None
            else:
                found = self.begins(text, at)
                if found is None:
                    break
                at = position = found.start()
                state, end, name = self._start, -1, ""
            while position < size and state.items:
                char = text[position]
                try:
                    following = state.next[char]
                except KeyError:
                    following = self._step(state, char)
                if following is None:
                    break
                state = following
                position += 1
                if state.accepts is not None:
                    end, name = position, state.accepts
            else:
                if state.items and not final:
                    out.append(text[done:at])
                    return "".join(out), text[at:], (state, position - at, end - at if end >= 0 else -1, name)
            if end < 0:
                at += 1
                continue
            out += (text[done:at], self._masks.get(name, ""))
            done = at = end
        if not out:
            return text, "", None
        out.append(text[done:])
        return "".join(out), "", None

    def _step(self, state: _State, char: str) -> _State | None:
        items: set[_Item] = set()
        ended: list[int] = []
        for index, unit, node, breaking in state.items:
            node_after = node.next.get(char)
            if node_after is None:
                continue
            if node_after.next:
                items.add((index, unit, node_after, breaking))
            if not node_after.ends:
                continue
            form = self._forms[index]
            unit_after = unit if breaking else unit + 1
            if unit_after == len(form.units):
                ended.append(index)
                continue
            items.add((index, unit_after, form.units[unit_after], False))
            if form.folded and not breaking:
                items.add((index, unit_after, _BREAKS, True))
        name = self._forms[min(ended)].name if ended else None
        state.next[char] = after = self._state(frozenset(items), name) if items or ended else None
        return after

    def _state(self, items: frozenset[_Item], accepts: str | None) -> _State:
        known = self._states.get((items, accepts))
        if known is not None:
            return known
        if len(self._states) >= self.REMEMBERED:
            self._states.clear()
            self._start.next.clear()
        made = self._states[items, accepts] = _State(items, accepts)
        return made

    def _mask(self, name: str) -> str:
        """A mask that holds no secret itself, however odd the secrets."""
        masks = (f"[secret {name}]", "[secret]", "***")
        return next(mask for mask in masks if self.text(mask) == mask)


class _Beginning:
    """A tree of how forms begin. At a leaf, a closer look is needed."""

    __slots__ = ("leaf", "next")

    def __init__(self) -> None:
        self.next: dict[str, _Beginning] = {}
        self.leaf = False

    def then(self, char: str) -> _Beginning:
        return self.next.setdefault(char, _Beginning())


def _beginnings(forms: list[_Form], ahead: int) -> _Beginning:
    root = _Beginning()
    seen: set[_Node] = set()
    for form in forms:
        if form.units[0] not in seen:
            seen.add(form.units[0])
            _add_escapes(root, form.units[0], ahead)
        _add_plain(root, form, 0, ahead)
    return root


def _add_escapes(place: _Beginning, node: _Node, ahead: int, *, first: bool = True) -> None:
    for char, after in node.next.items():
        if first and not after.next:
            continue
        reached = place.then(char)
        if ahead == 1 or (after.ends and not first):
            reached.leaf = True
        else:
            _add_escapes(reached, after, ahead - 1, first=False)


def _add_plain(place: _Beginning, form: _Form, unit: int, ahead: int) -> None:
    if ahead == 0 or unit == len(form.units):
        place.leaf = True
        return
    for char, after in form.units[unit].next.items():
        if after.ends:
            _add_plain(place.then(char), form, unit + 1, ahead - 1)
        if after.next and unit:
            place.then(char).leaf = True
    if form.folded and unit:
        for char in _BREAKS.next:
            place.then(char).leaf = True


def _pattern(place: _Beginning, *, top: bool = False) -> str:
    """A regular expression for the tree, in which a text may also end anywhere."""
    if place.leaf:
        return ""
    alike: dict[str, list[str]] = {}
    for char, after in place.next.items():
        alike.setdefault(_pattern(after), []).append(re.escape(char))
    if top:
        # The regular expression engine skips quickly to one of several first characters when they stand alone.
        choices = [f"{char}{rest}" for rest, chars in alike.items() for char in chars]
    else:
        choices = [f"[{''.join(chars)}]{rest}" for rest, chars in alike.items()]
        choices.append(r"\Z")
    return f"(?:{'|'.join(choices)})"


# --- what others use --------------------------------------------------------------------------------------


class SecretRedactor:
    """Masks every secret it was told, in every form. Values may be added at any time, from any thread."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._finder: _Finder | None = None
        self._changing = threading.Lock()

    def __repr__(self) -> str:
        return f"<SecretRedactor of {len(self._names)} values>"

    @property
    def known(self) -> bool:
        """Whether there is anything to mask."""
        return bool(self._names)

    def add(self, name: str, value: str) -> None:
        """From now on the value is masked as `[secret NAME]`. A value under 8 characters is not masked at all."""
        stripped = value.strip()
        if stripped in self._names or len(stripped) < SHORTEST:
            return
        with self._changing:
            self._names = {**self._names, stripped: name}
            self._finder = None

    def text(self, text: str) -> str:
        finder = self.finder()
        return text if finder is None else finder.text(text)

    def value(self, value: T) -> T:
        """The value with every secret in it masked, keys included; the same object where there is none."""
        finder = self.finder()
        if finder is None or is_clean(value, finder.begins, DEEPEST):
            return value
        return cast(T, _masked(value, finder, finder.text, DEEPEST))

    def stream(self) -> SecretStream:
        return SecretStream(self.finder)

    def finder(self) -> _Finder | None:
        """What finds the secrets known by now. It is made on first use, because secrets often come several at once."""
        finder = self._finder
        if finder is None and self._names:
            with self._changing:
                finder = self._finder
                if finder is None:
                    forms = [form for value, name in self._names.items() for form in _forms(name, value)]
                    self._finder = finder = _Finder(forms)
        return finder


class SecretStream:
    """Masks a text that arrives in pieces. All pieces together are what the whole text would have become."""

    def __init__(self, finder: Callable[[], _Finder | None]) -> None:
        self._newest = finder
        self._finder: _Finder | None = None
        self._held = ""
        self._progress: _Progress | None = None

    def feed(self, text: str) -> str:
        finder = self._newest()
        if finder is None:
            return text
        if finder is not self._finder:
            self._finder, self._progress = finder, None
        shown, self._held, self._progress = finder.scan(self._held + text, self._progress, final=False)
        return shown

    def finish(self) -> str:
        held, self._held, self._progress = self._held, "", None
        finder = self._newest()
        return held if finder is None else finder.text(held)


_Mask = Callable[[str], str]


def _masked(value: Any, finder: _Finder, mask: _Mask, depth: int) -> Any:
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, int) and abs(value) >= 10 ** (SHORTEST - 1):
        return _masked_number(value, mask)
    if value is None or isinstance(value, int | float):
        return value
    if isinstance(value, Text):
        return _masked_text(value, mask)
    if not isinstance(value, dict | list | tuple | set | frozenset | msgspec.Struct):
        return value
    if depth == 0:
        return CUT
    if isinstance(value, dict):
        return _masked_dict(value, finder, depth - 1)
    if isinstance(value, msgspec.Struct):
        return _masked_struct(value, finder, depth - 1)
    return _masked_items(value, finder, depth - 1)


def _masked_number(value: int, mask: _Mask) -> Any:
    """A secret of digits alone comes back as a number where someone reads it as JSON."""
    written = str(value)
    masked = mask(written)
    return value if masked is written else masked


def _masked_text(text: Text, mask: _Mask) -> Text:
    # What is not loaded was masked before it was stored.
    if not text.loaded:
        return text
    plain = str(text)
    masked = mask(plain)
    return text if masked is plain else Text(masked)


def _masked_items(value: Any, finder: _Finder, depth: int) -> Any:
    items = [_masked(item, finder, finder.text, depth) for item in value]
    if all(new is old for new, old in zip(items, value, strict=True)):
        return value
    if hasattr(value, "_make"):
        return value._make(items)
    return next(kind(items) for kind in (list, tuple, set, frozenset) if isinstance(value, kind))


def _masked_dict(value: dict[Any, Any], finder: _Finder, depth: int) -> dict[Any, Any]:
    made: dict[Any, Any] = {}
    changed = False
    for key, item in value.items():
        cut = key in _CUT_WHERE and value.get(_CUT_WHERE[key]) is True
        new_key = _masked(key, finder, finder.text, depth)
        new_item = _masked(item, finder, finder.cut_text if cut else finder.text, depth)
        if new_key is not key:
            changed = True
            while new_key in made or new_key in value:  # two forms of one secret are two keys still
                new_key = f"{new_key}'"
        changed = changed or new_item is not item
        made[new_key] = new_item
    return made if changed else value


def _masked_struct(value: msgspec.Struct, finder: _Finder, depth: int) -> msgspec.Struct:
    changes: dict[str, Any] = {}
    for field in value.__struct_fields__:
        old = getattr(value, field, None)
        if isinstance(old, int) and field not in _PLAIN:
            continue
        cut = field in _CUT_WHERE and getattr(value, _CUT_WHERE[field], False) is True
        cut = cut or (field == "content" and getattr(value, "finish", "") in _CUT_SHORT)
        new = _masked(old, finder, finder.cut_text if cut else finder.text, depth)
        if new is not old:
            changes[field] = new
    return msgspec.structs.replace(value, **changes) if changes else value
