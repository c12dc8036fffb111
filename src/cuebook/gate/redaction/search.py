"""Finds the forms of secrets in complete or streamed text, and replaces them with masks."""

from __future__ import annotations

import re

from cuebook.gate.redaction.encodings import Form, Node


def beginning_of(forms: list[Form], ahead: int) -> re.Pattern[str]:
    """Matches wherever a form may begin, judged by the next `ahead` characters; or where the text ends before that."""
    return re.compile(_pattern(_tree(forms, ahead), top=True))


class _Beginning:
    """A tree of the beginnings of forms. A leaf needs a full search."""

    __slots__ = ("leaf", "next")

    def __init__(self) -> None:
        self.next: dict[str, _Beginning] = {}
        self.leaf = False

    def then(self, char: str) -> _Beginning:
        return self.next.setdefault(char, _Beginning())


def _tree(forms: list[Form], ahead: int) -> _Beginning:
    root = _Beginning()
    seen: set[Node] = set()
    for form in forms:
        if form.units[0] not in seen:
            seen.add(form.units[0])
            _add_escapes(root, form.units[0], ahead)
        _add_plain(root, form, 0, ahead)
    return root


def _add_escapes(place: _Beginning, node: Node, ahead: int, *, first: bool = True) -> None:
    for char, after in node.next.items():
        if first and not after.next:
            continue
        reached = place.then(char)
        if ahead == 1 or (after.ends and not first):
            reached.leaf = True
        else:
            _add_escapes(reached, after, ahead - 1, first=False)


def _add_plain(place: _Beginning, form: Form, unit: int, ahead: int) -> None:
    if ahead == 0 or unit == len(form.units):
        place.leaf = True
        return
    for char, after in form.units[unit].next.items():
        if after.ends:
            _add_plain(place.then(char), form, unit + 1, ahead - 1)
        if after.next and unit:
            place.then(char).leaf = True
    if unit:
        for char in {char for gap in form.gap(unit) for char in gap.next}:
            place.then(char).leaf = True


def _pattern(place: _Beginning, *, top: bool = False) -> str:
    """A regular expression for the tree; the searched text may also end within a form."""
    if place.leaf:
        return ""
    alike: dict[str, list[str]] = {}
    for char, after in place.next.items():
        alike.setdefault(_pattern(after), []).append(re.escape(char))
    if top:
        # The regular expression engine skips quickly to one of several first characters if each is a separate choice.
        choices = [f"{char}{rest}" for rest, chars in alike.items() for char in chars]
    else:
        choices = [f"[{''.join(chars)}]{rest}" for rest, chars in alike.items()]
        choices.append(r"\Z")
    return f"(?:{'|'.join(choices)})"


SHORTEST_TAIL = 4
"""The beginning of a secret at the end of truncated text is masked if it is at least this long."""

_Item = tuple[int, int, Node, bool]
"""A form, the unit that is being read, the node within it, and whether that node is in a gap before it."""


class _State:
    """All partial matches after some characters."""

    __slots__ = ("accepts", "items", "next")

    def __init__(self, items: frozenset[_Item], accepts: str | None) -> None:
        self.items = items
        self.accepts = accepts
        """The name of the secret that ends here, if one does."""
        self.next: dict[str, _State | None] = {}


Progress = tuple[_State, int, int, str]
"""A search in progress: its state and position, the end of the longest form so far (or -1), and that form's name."""


class Finder:
    """Finds the leftmost longest form, repeatedly. Immutable except for its cache of states."""

    REMEMBERED = 20_000
    AHEAD = 4
    """How many characters are checked before a full search begins."""

    def __init__(self, forms: list[Form], word: str = "secret") -> None:
        self._forms = forms
        self._word = word
        self._states: dict[tuple[frozenset[_Item], str | None], _State] = {}
        first = frozenset((index, 0, form.units[0], False) for index, form in enumerate(forms))
        self._start = self._state(first, None)
        self.begins = beginning_of(forms, self.AHEAD).search
        self._masks: dict[str, str] = {}
        names = dict.fromkeys(form.name for form in forms)
        self._masks = {name: self._mask(name) for name in names}

    def text(self, text: str) -> str:
        if self.begins(text) is None:
            return text
        return self.scan(text, None, final=True)[0]

    def cut_text(self, text: str) -> str:
        """Masks truncated text, which may end within a secret."""
        shown, held, progress = self.scan(text, None, final=False)
        if progress is None or len(held) < SHORTEST_TAIL:
            return self.text(text)
        begun = self._forms[min(index for index, *_ in progress[0].items)]
        return shown + self._masks[begun.name]

    def scan(self, text: str, progress: Progress | None, *, final: bool) -> tuple[str, str, Progress | None]:
        """Returns the masked text, the tail held back because a form may begin in it, and how far the tail was read.

        A search in progress is continued; it must have begun at the start of the text.
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
        for index, unit, node, between in state.items:
            node_after = node.next.get(char)
            if node_after is None:
                continue
            if node_after.next:
                items.add((index, unit, node_after, between))
            if not node_after.ends:
                continue
            form = self._forms[index]
            unit_after = unit if between else unit + 1
            if unit_after == len(form.units):
                ended.append(index)
                if form.tail is not None and not between:
                    items.add((index, unit_after, form.tail, True))
                continue
            items.add((index, unit_after, form.units[unit_after], False))
            if not between:
                items.update((index, unit_after, gap, True) for gap in form.gap(unit_after))
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
        """A mask that does not contain a secret itself, however odd the secrets are."""
        masks = (f"[{self._word} {name}]", f"[{self._word}]", "***")
        return next(mask for mask in masks if self.text(mask) == mask)
