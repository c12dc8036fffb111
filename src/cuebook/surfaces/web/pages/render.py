"""Renders HTML: templates, and their filters for text, values, money and times."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from functools import cache, lru_cache
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from cuebook.formats.forms import fields_of
from cuebook.kernel.capabilities import in_words
from cuebook.kernel.run import RunRow
from cuebook.kernel.short_ids import short_id
from cuebook.kernel.votes import rule_of, votes_words
from cuebook.service.runs import objects as run_objects
from cuebook.service.waits.decisions import outcome_shape
from cuebook.service.waits.lasting_approvals import offered
from cuebook.surfaces import display
from cuebook.surfaces.web.api.artifacts import file_name
from cuebook.surfaces.web.live import timing
from cuebook.surfaces.web.live.blocks import blocks_of
from cuebook.surfaces.web.live.cards import Card
from cuebook.surfaces.web.live.run_page import FEW, Picture
from cuebook.surfaces.web.pages import formatted
from cuebook.surfaces.web.problems import for_pages

_HERE = Path(__file__).parents[1]
_TICKED = re.compile(r"(`{3}[^`\n]+`{3})|(?<!`)`([^`\n]+)`(?!`)")
"""Triple backticks are part of a marker and kept; single backticks around a command are dropped."""

_LONGEST_RESULT = 20_000
"""Number of characters of a run's result that its page shows first."""


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
        blocks=blocks_of,
        money=money,
        cost=display.cost_of,
        steps=display.steps_of,
        counts_lines=run_objects.counts_lines,
        waits_for=_waits_for,
        in_words=in_words,
        duration=duration,
        moment=moment,
        clock=clock,
        interruption=run_objects.interrupted_words,
        shown=shown,
        counted=counted,
        words=words,
        coded=coded,
        provider=provider,
        model=model,
    )
    made.globals.update(
        outcome_shape=outcome_shape,
        offered=offered,
        fields_of=fields_of,
        rule_of=rule_of,
        votes_words=votes_words,
        short_id=short_id,
        file_name=file_name,
        bar=timing.bar,
        shares=timing.shares,
        waits_of=timing.waits,
        few=FEW,
        longest_result=_LONGEST_RESULT,
    )
    return made


class Html(str):
    """HTML that concurrent readers share: a step's output may be long and have many readers."""


_outputs: WeakValueDictionary[tuple[Any, ...], Html] = WeakValueDictionary()


def part(name: str, *about: Any) -> str:
    """Render a piece of a page with a macro from parts/macros.html."""
    return _output(*about) if name == "text" and about[0].output is not None else _drawn(name, *about)


def _output(step: Card, run: Picture) -> Html:
    assert step.output is not None
    key = (
        step.key,
        step.passed_on,
        step.only_answered,
        step.output.digest,
        step.errors and step.errors.digest,
        run.is_markdown or bool(step.prompts),
    )
    made = _outputs.get(key)
    if made is None:
        made = _outputs[key] = Html(_drawn("text", step, run))
    return made


def _drawn(name: str, *about: Any) -> str:
    return str(macro("parts/macros.html", name, *about))


def macro(template: str, name: str, *about: Any) -> Markup:
    """Render a macro of a template."""
    return Markup(getattr(environment().get_template(template).module, name)(*about))


def piece(template: str, **values: Any) -> Markup:
    """Render a template that is only a part of a page."""
    return Markup(environment().get_template(template).render(values))


_WAYS = {"provider": "", "local": True, "linked": True, "out": ""}
"""How people sign in, unless an identity provider is configured."""


def page(request: Request, template: str, status: int = 200, **values: Any) -> Response:
    state = request.state
    known = {"who": getattr(state, "who", None), "ways": getattr(state, "ways", _WAYS)}
    context = {"nonce": state.nonce, "path": request.url.path, **known, **values}
    return HTMLResponse(environment().get_template(template).render(context), status)


# --- filters ---


def money(amount: float | None) -> str:
    """An amount with four decimals, or six if it is below a cent."""
    return "unknown" if amount is None else display.money(amount)


def duration(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f"{seconds * 1000:.0f} ms" if seconds < 0.95 else display.duration(seconds)


@lru_cache(maxsize=1024)
def moment(at: float | None) -> Markup:
    """A time in the server's time zone; the browser may show it in its own."""
    if at is None:
        return Markup("")
    written = datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")
    local = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
    return Markup('<time datetime="{}">{}</time>').format(written, local)


def clock(at: float) -> str:
    """A time of day, in the server's time zone."""
    return time.strftime("%H:%M:%S", time.localtime(at))


def shown(value: Any) -> str:
    """A value as text: a string unchanged, anything else as JSON."""
    return (
        value
        if isinstance(value, str)
        else msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2).decode()
    )


def counted(number: int, word: str) -> str:
    return display.counted(number, word)


def words(status: str) -> str:
    """The readable name of a status."""
    return status.replace("_", " ")


def coded(text: str) -> Markup:
    """A message as HTML, with text between backticks as code, and commands replaced by their counterparts on the pages."""
    return Markup(_TICKED.sub(lambda found: f"<code>{found[1] or found[2]}</code>", str(escape(for_pages(text)))))


def provider(name: str) -> str:
    return name.partition("/")[0] if "/" in name else ""


def model(name: str) -> str:
    return name.partition("/")[2] or name


def _waits_for(row: RunRow) -> str:
    """What the status of a run in a list means, if it is not what its name says."""
    words = display.status_of(row)
    return words if words == display.FOR_ASSISTANT else ""
