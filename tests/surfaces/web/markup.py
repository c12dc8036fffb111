"""Parses HTML as a browser would, and finds everything in it that could run or fetch something."""

from __future__ import annotations

from html.parser import HTMLParser

_FETCHES = ("src", "srcset", "poster", "background", "data", "action", "formaction", "href", "xlink:href", "ping")
_NEVER = ("script", "img", "iframe", "object", "embed", "video", "audio", "base", "math", "style", "foreignobject")


class Markup(HTMLParser):
    """The elements of an HTML text."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words += data

    def dangers(self) -> list[str]:
        """Everything that runs by itself, or fetches from another server."""
        found = []
        for tag, attributes in self.elements:
            if tag in _NEVER and not (tag == "script" and _is_ours(attributes)):
                found.append(f"<{tag}>")
            found += [f"{tag} {name}" for name in attributes if name.startswith("on") or name == "style"]
            for name in _FETCHES:
                if name in attributes and not _stays(tag, name, (attributes[name] or "").strip().lower()):
                    found.append(f"{tag} {name}={attributes[name]}")
        return found

    def by_id(self, id: str) -> dict[str, str | None]:
        return next(attributes for _, attributes in self.elements if attributes.get("id") == id)

    def has(self, id: str) -> bool:
        return any(attributes.get("id") == id for _, attributes in self.elements)


def _stays(tag: str, name: str, address: str) -> bool:
    """Whether a URL is on this server; a link may lead elsewhere, since only a person follows it."""
    if address.startswith(("http://", "https://", "mailto:")):
        return tag == "a" and name == "href"
    return not address or (address.startswith(("/", "#")) and not address.startswith("//"))


def _is_ours(attributes: dict[str, str | None]) -> bool:
    return (attributes.get("src") or "").startswith("/static/") and bool(attributes.get("nonce"))


TRICKS = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<svg onload=alert(1)><script>alert(1)</script></svg>",
    "<svg><a xlink:href='javascript:alert(1)'><text>x</text></a></svg>",
    "<iframe srcdoc='<script>alert(1)</script>'></iframe>",
    "<a href='javascript:alert(1)'>x</a>",
    "<style>@import url(https://evil.example/x.css)</style>",
    "<link rel=stylesheet href=https://evil.example/x.css>",
    "<meta http-equiv=refresh content='0;url=https://evil.example'>",
    "<base href=https://evil.example/>",
    "<form action=https://evil.example><button>x</button></form>",
    "<video src=https://evil.example/x poster=https://evil.example/y></video>",
    "<math><mtext><table><mglyph><style><img src=x onerror=alert(1)>",
    '<noscript><p title="</noscript><img src=x onerror=alert(1)>">',
    "![x](https://evil.example/x.png)",
    "![x](data:image/svg+xml;base64,PHN2ZyBvbmxvYWQ9YWxlcnQoMSk+)",
    "![x][y]\n\n[y]: https://evil.example/x.png",
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt:alert(1))",
    "[x](java\tscript:alert(1))",
    "[x](&#106;avascript:alert(1))",
    "[x](data:text/html;base64,PHNjcmlwdD5hbGVydCgxKTwvc2NyaXB0Pg==)",
    "[x](vbscript:msgbox(1))",
    "[x](//evil.example/x)",
    "[x](/api/runs)",
    "[x](https://evil.example/'onmouseover='alert(1))",
    '[x](https://evil.example "onclick=alert(1)")',
    '[x](https://evil.example/"><script>alert(1)</script>)',
    "<javascript:alert(1)>",
    "<https://evil.example/<script>alert(1)</script>>",
    "```html\n<script>alert(1)</script>\n```",
    '```"><script>alert(1)</script>\nx\n```',
    "```diff\n+<script>alert(1)</script>\n```",
    "    <script>alert(1)</script>",
    "| <script>alert(1)</script> |\n|---|\n| <img src=x onerror=alert(1)> |",
    "`<script>alert(1)</script>`",
    '{"a": "<script>alert(1)</script> and enough words to be told as prose", "b": 1}',
    '["<img src=x onerror=alert(1)>"]',
    "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-<script>alert(1)</script>\n+<img src=x onerror=alert(1)>",
    "</pre></div></article><script>alert(1)</script>",
    "<p style=position:fixed;inset:0>over everything</p>",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "\x00<script>alert(1)</script>",
    "<!--><script>alert(1)</script>-->",
    "<![CDATA[<script>alert(1)</script>]]>",
)
"""Texts that try to run something, to fetch something, or to pass for the page around them."""
