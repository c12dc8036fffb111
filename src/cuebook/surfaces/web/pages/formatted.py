"""Untrusted text as safe HTML: Markdown, code, JSON and diffs.

Text from models, servers and files is shown, never executed: no markup of its own, no images, and links show their target.
The HTML made from Markdown is sanitized with an allow list.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

import msgspec
import nh3
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markupsafe import Markup, escape
from pygments import highlight
from pygments.formatters.html import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

LONGEST = 300_000
"""Maximum number of characters parsed as Markdown; longer text is shown as plain text."""
LONGEST_CODE = 60_000
"""Maximum number of characters of code that are highlighted."""
_SCHEMES = ("http://", "https://", "mailto:")
_FORMATTER: HtmlFormatter[str] = HtmlFormatter(nowrap=True, classprefix="hl-")
_DIFF = re.compile(r"\s*(diff --git |--- \S.*\n\+\+\+ \S|@@ -\d)")
"""The first lines of a diff. Text that merely quotes a diff is not a diff."""

_TASK = re.compile(r"<li>(?:\s*<p>)?\[([ xX])\] ")
"""The beginning of a task list item."""

_TURNS = {code: f"[U+{code:04X}]" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))}
"""Characters that change the direction of the text after them, and their visible replacements."""

_TAGS = {
    *("p", "br", "hr", "h1", "h2", "h3", "h4", "h5", "h6", "blockquote", "pre", "code", "span", "em", "strong", "s"),
    *("ul", "ol", "li", "a", "table", "thead", "tbody", "tr", "th", "td", "div"),
}
_ATTRIBUTES = {
    "a": {"href", "class", "target"},
    "span": {"class"},
    "code": {"class"},
    "pre": {"class", "tabindex"},
    "div": {"class", "tabindex"},
    "ol": {"start"},
}


@lru_cache(maxsize=128)
def markdown(text: str) -> Markup:
    """Text rendered as Markdown."""
    if len(text) > LONGEST:
        return plain(text)
    made = _reader().render(text.replace("\r\n", "\n").translate(_TURNS))
    cleaned = nh3.clean(
        made,
        tags=_TAGS,
        attributes=_ATTRIBUTES,
        url_schemes={"http", "https", "mailto"},
        link_rel="noopener noreferrer nofollow",
        strip_comments=True,
    )
    return Markup(_TASK.sub(lambda found: found[0].replace(f"[{found[1]}]", "☐" if found[1] == " " else "☑"), cleaned))


def plain(text: str) -> Markup:
    """Plain text."""
    return Markup('<pre class="plain" tabindex="0">{}</pre>').format(text.translate(_TURNS))


def output(text: str, *, is_markdown: bool = True) -> Markup:
    """A step's output: JSON and diffs are formatted; all other output is Markdown or plain text."""
    value = _json(text)
    if value is not None and is_markdown and _is_prose(value):
        lines = [Markup("<dt>{}</dt><dd>{}</dd>").format(name, _paragraph(one)) for name, one in value.items()]
        return Markup('<dl class="members">{}</dl>').format(Markup("").join(lines))
    if value is not None:
        return Markup('<pre class="code" tabindex="0">{}</pre>').format(json_html(value))
    if looks_like_diff(text):
        return diff(text)
    return markdown(text) if is_markdown else plain(text)


def _is_prose(value: Any) -> bool:
    """Whether a value is a small object with long strings, which is easier to read as a list of fields."""
    if not isinstance(value, dict) or not 0 < len(value) <= 12:
        return False
    plain_values = all(not isinstance(one, dict | list) for one in value.values())
    return plain_values and any(isinstance(one, str) and len(one) > 40 for one in value.values())


def _paragraph(value: Any) -> Markup:
    return markdown(value) if isinstance(value, str) else Markup("<p>{}</p>").format(json_html(value))


def json_html(value: Any) -> Markup:
    """A value as highlighted JSON."""
    return code(msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2).decode(), "json")


def code(text: str, language: str = "") -> Markup:
    """Highlighted code, if the language is known."""
    text = text.translate(_TURNS)
    if language and len(text) <= LONGEST_CODE:
        try:
            lexer = get_lexer_by_name(language, stripnl=False, ensurenl=False)
        except ClassNotFound:
            return escape(text)
        return Markup(highlight(text, lexer, _FORMATTER))
    return escape(text)


def looks_like_diff(text: str) -> bool:
    return _DIFF.match(text) is not None


def diff(text: str) -> Markup:
    """A unified diff with coloured lines."""
    lines = text.translate(_TURNS).rstrip("\n").split("\n")
    made = [Markup('<span class="{}">{}</span>').format(_kind(line), line or " ") for line in lines]
    return Markup('<pre class="diff" tabindex="0">{}</pre>').format(Markup("\n").join(made))


def preview(text: str) -> Markup:
    """A part of an approval's preview: plain text, or a coloured diff."""
    return diff(text) if looks_like_diff(text) else plain(text)


def _kind(line: str) -> str:
    if line.startswith(("+++", "---", "diff ", "index ", "new file", "deleted file")):
        return "diff-file"
    return {"+": "diff-new", "-": "diff-old", "@": "diff-at"}.get(line[:1], "diff-same")


def _json(text: str) -> Any:
    """Parse text as a JSON object or list; None if it is neither."""
    stripped = text.strip()
    if not stripped.startswith(("{", "[")) or len(stripped) > LONGEST_CODE:
        return None
    try:
        return msgspec.json.decode(stripped)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return None


# --- Markdown ----------------------------------------------------------------------------------------------


class _Renderer(RendererHTML):
    """Renders Markdown: links show their host, code is highlighted, wide elements scroll."""

    def link_open(self, tokens: Sequence[Token], index: int, options: Any, env: Any) -> str:
        href = escape(str(tokens[index].attrGet("href") or ""))
        return f'<a class="outside" target="_blank" href="{href}">'

    def link_close(self, tokens: Sequence[Token], index: int, options: Any, env: Any) -> str:
        opening = _opening(tokens, index)
        host = _host(str(opening.attrGet("href") or "")) if opening is not None else ""
        return f'</a><span class="host"> ({escape(host)})</span>' if host else "</a>"

    def fence(self, tokens: Sequence[Token], index: int, options: Any, env: Any) -> str:
        token = tokens[index]
        language = token.info.split()[0] if token.info.split() else ""
        if language == "diff":
            return str(diff(token.content)) + "\n"
        return f'<pre class="code" tabindex="0"><code>{code(token.content, language)}</code></pre>\n'

    def code_block(self, tokens: Sequence[Token], index: int, options: Any, env: Any) -> str:
        return f'<pre class="code" tabindex="0"><code>{escape(tokens[index].content)}</code></pre>\n'

    def table_open(self, tokens: Sequence[Token], index: int, options: Any, env: Any) -> str:
        return '<div class="wide" tabindex="0"><table>\n'

    def table_close(self, tokens: Sequence[Token], index: int, options: Any, env: Any) -> str:
        return "</table></div>\n"


class _Reader(MarkdownIt):
    def validateLink(self, url: str) -> bool:
        """Only URLs of pages on other servers become links; all others stay text."""
        return url.strip().lower().startswith(_SCHEMES)


def _opening(tokens: Sequence[Token], index: int) -> Token | None:
    level = tokens[index].level
    return next((one for one in reversed(tokens[:index]) if one.type == "link_open" and one.level == level), None)


def _host(address: str) -> str:
    try:
        parts = urlsplit(address)
        return parts.path.rpartition("@")[2] if parts.scheme == "mailto" else parts.netloc.rpartition("@")[2]
    except ValueError:
        return "?"


@lru_cache(maxsize=1)
def _reader() -> MarkdownIt:
    made = _Reader("commonmark", {"html": False}, renderer_cls=_Renderer)
    made.enable(["table", "strikethrough"]).disable("image")
    return made
