"""From values to HTML: templates, and what they need to show texts, values, money and times safely."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from cuebook.decisions import outcome_shape
from cuebook.surfaces import wording
from cuebook.surfaces.web import bars, formatted
from cuebook.surfaces.web.artifacts import file_name
from cuebook.surfaces.web.cards import Card
from cuebook.surfaces.web.picture import Picture
from cuebook.surfaces.web.problems import for_pages

_HERE = Path(__file__).parent
_TICKED = re.compile(r"(`{3}[^`\n]+`{3})|(?<!`)`([^`\n]+)`(?!`)")
"""A marker of three ticks is written with them; a command between single ones is not."""


@cache
def environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        markdown=formatted.markdown,
        output=formatted.output,
        preview=formatted.preview,
        diff=formatted.diff,
        money=money,
        cost=wording.cost_of,
        steps=wording.steps_of,
        duration=duration,
        moment=moment,
        interruption=wording.interrupted_words,
        shown=shown,
        counted=counted,
        words=words,
        coded=coded,
        provider=provider,
        model=model,
    )
    made.globals.update(
        outcome_shape=outcome_shape, file_name=file_name, bar=bars.bar, shares=bars.shares, waits_of=bars.waits
    )
    return made


class Html(str):
    """HTML that all who read it at one time share: a step's output may be long, and its readers many."""


_outputs: WeakValueDictionary[tuple[Any, ...], Html] = WeakValueDictionary()


def part(name: str, *about: Any) -> str:
    """A piece of a page, by the macro of its name in parts.html."""
    return _output(*about) if name == "text" and about[0].output is not None else _drawn(name, *about)


def _output(step: Card, run: Picture) -> Html:
    assert step.output is not None
    key = (
        step.key,
        step.passed_on,
        step.only_answered,
        step.output.digest,
        step.errors and step.errors.digest,
        run.row.dialect,
        bool(step.prompts),
    )
    made = _outputs.get(key)
    if made is None:
        made = _outputs[key] = Html(_drawn("text", step, run))
    return made


def _drawn(name: str, *about: Any) -> str:
    macro = getattr(environment().get_template("parts.html").module, name)
    return str(macro(*about))


def piece(template: str, **values: Any) -> Markup:
    """A template that is no page by itself."""
    return Markup(environment().get_template(template).render(values))


def page(request: Request, template: str, status: int = 200, **values: Any) -> Response:
    state = request.state
    context = {"nonce": state.nonce, "who": getattr(state, "who", None), "path": request.url.path, **values}
    return HTMLResponse(environment().get_template(template).render(context), status)


# --- filters ---


def money(amount: float | None) -> str:
    """Under a cent six decimals, otherwise four."""
    return "unknown" if amount is None else wording.money(amount)


def duration(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f"{seconds * 1000:.0f} ms" if seconds < 0.95 else wording.duration(seconds)


def moment(at: float | None) -> Markup:
    """A time of this machine's clock, which a browser may show in its own."""
    if at is None:
        return Markup("")
    written = datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")
    told = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
    return Markup('<time datetime="{}">{}</time>').format(written, told)


def shown(value: Any) -> str:
    """A value as text: a text as it is, anything else as JSON."""
    return (
        value
        if isinstance(value, str)
        else msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2).decode()
    )


def counted(number: int, word: str) -> str:
    return wording.counted(number, word)


def words(status: str) -> str:
    """A status as people read it."""
    return status.replace("_", " ")


def coded(text: str) -> Markup:
    """A sentence of ours, in which commands stand between backticks; those that a page has something for, as that."""
    return Markup(_TICKED.sub(lambda found: f"<code>{found[1] or found[2]}</code>", str(escape(for_pages(text)))))


def provider(name: str) -> str:
    return name.partition("/")[0] if "/" in name else ""


def model(name: str) -> str:
    return name.partition("/")[2] or name
