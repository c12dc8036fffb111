"""Prices and context sizes of models, from a dated snapshot and a user's own file.

The snapshot is created by `scripts/make_prices.py`. Nothing is fetched, and the price of a model that is not listed is
unknown, never zero.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from cuebook.kernel.errors import BadInput
from cuebook.performers.models.model import Tokens

if TYPE_CHECKING:
    from cuebook.formats.values import Value

Rate: TypeAlias = float | list[float | list[float]]
"""Dollars per million tokens, or a list of such a price followed by `[start, price]` for each tier.

A tier is a cliff: if the input is larger than its start, its price applies to all tokens."""


class Price(msgspec.Struct, frozen=True, omit_defaults=True):
    """Dollars per million tokens of each kind."""

    input: Rate
    output: Rate
    cached: Rate | None = None
    """The price of input that the provider read from its cache; by default the price of other input."""
    written: Rate | None = None
    """The price of input that the provider wrote to its cache; by default the price of other input."""

    def cost(self, tokens: Tokens) -> float:
        plain = max(0, tokens.input - tokens.cached - tokens.written)
        cached = self.input if self.cached is None else self.cached
        written = self.input if self.written is None else self.written
        parts = ((self.input, plain), (cached, tokens.cached), (written, tokens.written), (self.output, tokens.output))
        return sum(_at(rate, tokens.input) * count for rate, count in parts) / 1_000_000

    def most(self, input_tokens: int, output_tokens: int) -> float:
        """The most that a call of this size can cost: nothing read from the cache, all of it written there."""
        written = self.input if self.written is None else self.written
        dearest = max(_at(self.input, input_tokens), _at(written, input_tokens))
        return (dearest * input_tokens + _at(self.output, input_tokens) * output_tokens) / 1_000_000


def _at(rate: Rate, input_tokens: int) -> float:
    if isinstance(rate, int | float):
        return float(rate)
    price = 0.0
    for step in rate:
        if isinstance(step, list):
            if input_tokens > step[0]:
                price = float(step[1])
        else:
            price = float(step)
    return price


class Facts(msgspec.Struct, frozen=True):
    """The known facts about one model."""

    price: Price | None = None
    window: int | None = None
    """Tokens of input and output together."""
    output: int | None = None
    """The maximum number of output tokens."""


class _Entry(msgspec.Struct):
    """A model in the snapshot. `m` contains its names: exact names, and patterns as `kind|text`."""

    m: list[str]
    p: list[tuple[str, Price]] = []
    """Prices with the day from which each is valid, oldest first; the first has no day."""
    w: int | None = None
    o: int | None = None


class _Snapshot(msgspec.Struct):
    date: str
    source: str
    providers: dict[str, list[_Entry]]


class _Override(msgspec.Struct, forbid_unknown_fields=True):
    input: Rate | None = None
    output: Rate | None = None
    cached: Rate | None = None
    written: Rate | None = None
    window: int | None = None
    max_output: int | None = None


class _Overrides(msgspec.Struct, forbid_unknown_fields=True):
    models: dict[str, _Override] = {}


_LARGEST = 1_000_000
"""The maximum size of the user's file, in bytes."""


def _read_overrides(path: Path) -> dict[str, _Override]:
    """The prices in the user's file, by name. Raises `BadInput` with the file and the line."""
    from cuebook.formats.json import read_json
    from cuebook.formats.toml import read_toml
    from cuebook.formats.values import Malformed, decoded, read_file

    text = decoded(read_file(path, _LARGEST), str(path))
    try:
        root = read_json(text) if path.suffix == ".json" else read_toml(text)
    except Malformed as error:
        raise error.in_file(str(path)) from None
    try:
        return msgspec.convert(root.plain, _Overrides).models
    except msgspec.MsgspecError as error:
        raise BadInput(
            f"{path}:{_wrong_line(root)}: the prices are invalid: {error}.",
            fix='Write one table for each model, as in [models."openai/gpt-x"] with input and output prices.',
        ) from None


def _wrong_line(root: Value) -> int:
    """The line of the first invalid name."""
    models = root.fields.get("models", root)
    unknown = [line for name, line in root.lines.items() if name != "models"]
    if unknown:
        return unknown[0]
    for name, one in models.fields.items():
        try:
            msgspec.convert(one.plain, _Override)
        except msgspec.MsgspecError:
            return models.lines[name]
    return models.line


_COMPACT_DATE = re.compile(r"-(20\d\d)(\d\d)(\d\d)(?=-|:|$)")


class Prices:
    """Looks up a `provider/model`, first in the user's file, then in the snapshot.

    The user's file is TOML or JSON: a table `models` whose names are `provider/model`, where `*` is allowed, and whose
    values set `input`, `output`, `cached` and `written` in dollars per million tokens, and `window` and `max_output` in
    tokens. The first name that matches wins; its fields override the snapshot's.
    """

    def __init__(self, override: Path | str | None = None) -> None:
        self._path = Path(override) if override is not None else None

    @property
    def date(self) -> str:
        """The day on which the snapshot was created."""
        return self._snapshot.date

    @property
    def source(self) -> str:
        return self._snapshot.source

    def facts(self, provider: str, model: str, on: dt.date | None = None) -> Facts:
        listed = self._listed(provider, model, on or dt.datetime.now(dt.UTC).date())
        return self._overridden(f"{provider}/{model}", listed)

    def names(self, provider: str) -> list[str]:
        """The listed models of a provider, each by one of its names."""
        plain = (
            next((m.removeprefix("^|") for m in entry.m if m.partition("|")[0] in ("^", m)), "")
            for entry in self._entries(provider)
        )
        return sorted(name for name in plain if name)

    def _entries(self, provider: str) -> list[_Entry]:
        return self._snapshot.providers.get(provider, [])

    @cached_property
    def _snapshot(self) -> _Snapshot:
        raw = resources.files(__package__).joinpath("prices.json").read_bytes()
        return msgspec.json.decode(raw, type=_Snapshot)

    @cached_property
    def _overrides(self) -> dict[str, _Override]:
        return {} if self._path is None else _read_overrides(self._path)

    def _listed(self, provider: str, model: str, on: dt.date) -> Facts:
        entries = self._entries(provider)
        for name in _spellings(model):
            for entry in entries:
                if _matches(entry.m, name):
                    return Facts(_valid(entry.p, on), entry.w, entry.o)
        return Facts()

    def _overridden(self, name: str, listed: Facts) -> Facts:
        for pattern, own in self._overrides.items():
            if pattern == name or fnmatchcase(name, pattern):
                return Facts(_merged(own, listed.price), own.window or listed.window, own.max_output or listed.output)
        return listed


def _merged(own: _Override, listed: Price | None) -> Price | None:
    input_rate, output_rate = own.input, own.output
    cached, written = own.cached, own.written
    if listed is not None:
        if input_rate is None:
            # The snapshot's discounts apply only to its own price of input.
            cached = listed.cached if cached is None else cached
            written = listed.written if written is None else written
            input_rate = listed.input
        output_rate = listed.output if output_rate is None else output_rate
    if input_rate is None or output_rate is None:
        return None
    return Price(input_rate, output_rate, cached, written)


def _spellings(model: str) -> Iterator[str]:
    """The name as given, then with its date in the format of the snapshot."""
    name = model.lower()
    yield name
    dashed = _COMPACT_DATE.sub(r"-\1-\2-\3", name)
    if dashed != name:
        yield dashed


def _valid(prices: list[tuple[str, Price]], on: dt.date) -> Price | None:
    found: Price | None = None
    for since, price in prices:
        if not since or since <= on.isoformat():
            found = price
    return found or (prices[0][1] if prices else None)


def _matches(patterns: list[str], name: str) -> bool:
    return any(_matches_one(pattern, name) for pattern in patterns)


def _matches_one(pattern: str, name: str) -> bool:
    kind, separator, text = pattern.partition("|")
    if not separator:
        return name == pattern
    if kind == "^":
        return name.startswith(text)
    if kind == "$":
        return name.endswith(text)
    if kind == "*":
        return text in name
    if kind == "~":
        return re.search(text, name) is not None
    # The only kind left is "&": several patterns, all of which must match.
    return all(_matches_one(part, name) for part in msgspec.json.decode(text, type=list[str]))
