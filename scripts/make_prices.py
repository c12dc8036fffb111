"""Writes the snapshot of model prices that ships with Cuebook, from the data in the installed `genai-prices`.

    python scripts/make_prices.py [output.json]

It contains only facts: names, dollars per million tokens, context window sizes. Prices for batches, images, audio and
searches are left out, because no effect uses them.
"""

from __future__ import annotations

import importlib
import json
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from importlib.metadata import version
from pathlib import Path
from typing import Any

OUTPUT = Path(__file__).parent.parent / "src/cuebook/performers/models/prices.json"

# Resellers behind another company's URL and services without a chat protocol are not useful here.
LEFT_OUT_PREFIXES = ("huggingface_",)
LEFT_OUT = {
    "avian",
    "aws",
    "cloudflare",
    "cursor",
    "databricks",
    "doubleword",
    "elevenlabs",
    "github-copilot",
    "modal",
    "openai-decisions",
    "quicksilverpro",
    "typesafe",
    "voyageai",
}

# `genai-prices` has no output limits. These older models have a limit below our default of 16,384, and reject a
# request that asks for more. Source: the vendors' model pages.
OUTPUT_LIMITS = {
    "openai": {
        "gpt-3.5-turbo": 4_096,
        "gpt-4-turbo": 4_096,
        "gpt-4-0125-preview": 4_096,
        "gpt-4-1106-preview": 4_096,
        "gpt-4-0613": 8_192,
        "gpt-4": 8_192,
    },
    "anthropic": {
        "claude-3-haiku-20240307": 4_096,
        "claude-3-opus-20240229": 4_096,
        "claude-3-sonnet-20240229": 4_096,
        "claude-3-5-haiku-20241022": 8_192,
        "claude-3-5-sonnet-20241022": 8_192,
    },
}


def main() -> None:
    # Not a development dependency: it is installed only for this script.
    providers: Any = importlib.import_module("genai_prices.data").providers
    today = datetime.now(UTC).date()
    snapshot: dict[str, Any] = {
        "date": today.isoformat(),
        "source": f"genai-prices {version('genai-prices')}",
        "providers": {
            provider.id: entries
            for provider in providers
            if not provider.id.startswith(LEFT_OUT_PREFIXES) and provider.id not in LEFT_OUT
            if (entries := [e for m in provider.models if (e := entry(provider.id, m, today)) is not None])
        },
    }
    output = Path(sys.argv[1]) if len(sys.argv) > 1 else OUTPUT
    output.write_text(json.dumps(snapshot, separators=(",", ":"), ensure_ascii=False) + "\n", encoding="utf-8")
    count = sum(len(entries) for entries in snapshot["providers"].values())
    print(f"{output.name}: {count} models from {len(snapshot['providers'])} providers, {output.stat().st_size:,} bytes")


def entry(provider: str, model: Any, today: date) -> dict[str, Any] | None:
    made: dict[str, Any] = {"m": patterns(model.match)}
    prices = dated(model.prices, today)
    if prices:
        made["p"] = prices
    if model.context_window is not None:
        made["w"] = model.context_window
    limits = [limit for name, limit in OUTPUT_LIMITS.get(provider, {}).items() if model.match.is_match(name)]
    if limits:
        made["o"] = min(limits)
    return made if len(made) > 1 else None


def patterns(clause: Any) -> list[str]:
    """A clause in the snapshot's notation: an exact name, or a kind and a string."""
    kind = type(clause).__name__
    if kind == "ClauseOr":
        return list(dict.fromkeys(p for part in clause.or_ for p in patterns(part)))
    if kind == "ClauseAnd":
        return ["&|" + json.dumps([p for part in clause.and_ for p in single(part)], separators=(",", ":"))]
    return single(clause)


def single(clause: Any) -> list[str]:
    table = {
        "ClauseEquals": ("", "equals"),
        "ClauseStartsWith": ("^|", "starts_with"),
        "ClauseEndsWith": ("$|", "ends_with"),
        "ClauseContains": ("*|", "contains"),
        "ClauseRegex": ("~|", "regex"),
    }
    if type(clause).__name__ not in table:
        raise SystemExit(f"make_prices: unknown kind of clause: {type(clause).__name__}. Add it to `patterns`.")
    sign, field = table[type(clause).__name__]
    text = getattr(clause, field)
    return [sign + (text if field == "regex" else text.lower())]


def dated(prices: Any, today: date) -> list[list[Any]]:
    """The current price, and prices announced for later. If prices depend on the time of day, the highest is used."""
    if not isinstance(prices, list):
        made = price(prices)
        return [["", made]] if made else []
    started: list[tuple[str, dict[str, Any]]] = []
    by_hour: list[dict[str, Any]] = []
    for conditional in prices:
        made = price(conditional.prices)
        if made is None:
            continue
        constraint = conditional.constraint
        if constraint is None:
            started.append(("", made))
        elif hasattr(constraint, "start_date"):
            started.append((constraint.start_date.isoformat(), made))
        else:
            by_hour.append(made)
    # The library lets later entries override earlier ones, whatever their dates.
    current = [made for since, made in started if since <= today.isoformat()][-1:] or [m for _, m in started[:1]]
    current = [max([*current, *by_hour], key=lambda p: scalar(p["output"]))] if current or by_hour else []
    later = sorted(((since, made) for since, made in started if since > today.isoformat()), key=lambda pair: pair[0])
    return [["", made] for made in current] + [[since, made] for since, made in later]


def price(prices: Any) -> dict[str, Any] | None:
    fields = {
        "input": prices.input_mtok,
        "output": prices.output_mtok,
        "cached": prices.cache_read_mtok,
        "written": prices.cache_write_mtok,
    }
    if fields["input"] is None or fields["output"] is None:
        return None
    return {name: rate(value) for name, value in fields.items() if value is not None}


def rate(value: Any) -> Any:
    if isinstance(value, Decimal):
        return number(value)
    return [number(value.base), *([tier.start, number(tier.price)] for tier in value.tiers)]


def number(value: Decimal) -> int | float:
    return int(value) if value == int(value) else float(value)


def scalar(value: Any) -> float:
    return float(value[0] if isinstance(value, list) else value)


if __name__ == "__main__":
    main()
