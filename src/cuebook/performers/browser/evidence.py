"""What is kept of a page: its text, its elements, a picture in which secrets are covered, and a digest for approvals."""

from __future__ import annotations

import base64
from collections.abc import Callable
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from cuebook.kernel.context import Attachment, Text

if TYPE_CHECKING:
    from playwright.async_api import Frame, Page

MOST_HTML = 1_000_000
"""How many characters of the elements are kept."""
MOST_TEXT = 2_000_000
_TRIES = 3
_COVERED = "data-cuebook-covered"

# The page's own scripts may have replaced any of these functions, so nothing that these return is trusted to be complete:
# what leaves the page is masked again, and a picture is dropped if it cannot be checked.
_TEXT = "most => (document.body ? document.body.innerText : '').slice(0, most)"
_TEXTS = """most => {
  const found = [], roots = [document];
  while (roots.length && found.length < most) {
    const root = roots.pop();
    for (const one of root.querySelectorAll('*')) {
      if (one.shadowRoot) roots.push(one.shadowRoot);
      const typed = 'value' in one && typeof one.value === 'string' ? one.value : '';
      const text = one.textContent || '';
      const attributes = Array.from(one.attributes, each => each.value).join('\\n');
      const own = text.length > 4000 && one.children.length ? '' : text.slice(0, 20000);
      found.push([typed.slice(0, 20000), own, attributes.slice(0, 20000)].join('\\n'));
      if (found.length >= most) break;
    }
  }
  return found;
}"""
_COVER = """([most, numbers, name]) => {
  const wanted = new Set(numbers), roots = [document];
  let count = 0;
  while (roots.length && count < most) {
    const root = roots.pop();
    for (const one of root.querySelectorAll('*')) {
      if (one.shadowRoot) roots.push(one.shadowRoot);
      if (wanted.has(count)) one.setAttribute(name, ''); else one.removeAttribute(name);
      if (++count >= most) break;
    }
  }
}"""
_MOST_ELEMENTS = 50_000
_OUTLINE = """secrets => {
  const lines = [];
  const hidden = one => {
    const style = getComputedStyle(one);
    return style.display === 'none' || style.visibility === 'hidden';
  };
  const typed = new Set();
  for (const selector of secrets) {
    try { for (const one of document.querySelectorAll(selector)) typed.add(one); } catch (error) {}
  }
  const clean = text => (text || '').replace(/\\s+/g, ' ').trim();
  const place = text => { try { const url = new URL(text, location.href); return url.origin + url.pathname; } catch (e) { return text; } };
  const visit = one => {
    if (lines.length > 20000) return;
    if (one.nodeType === Node.TEXT_NODE) {
      const text = clean(one.data);
      if (text) lines.push(text);
      return;
    }
    if (one.nodeType !== Node.ELEMENT_NODE) return;
    const tag = one.tagName.toLowerCase();
    if (['script', 'style', 'noscript', 'template', 'head'].includes(tag) || hidden(one)) return;
    if (tag === 'form') lines.push(`[form ${one.method} ${place(one.action)}]`);
    if (tag === 'a' && one.href) lines.push(`[link ${place(one.href)}]`);
    if (tag === 'iframe') lines.push(`[frame ${place(one.src)}]`);
    if (tag === 'img') lines.push(`[image ${clean(one.alt)}]`);
    if (tag === 'button') lines.push(`[button${one.disabled ? ' disabled' : ''}]`);
    if (tag === 'input' || tag === 'textarea' || tag === 'select') {
      if (one.type === 'hidden') return;
      const secret = one.type === 'password' || typed.has(one);
      const value = one.type === 'checkbox' || one.type === 'radio' ? String(one.checked) : one.value;
      lines.push(`[${tag} ${one.type} ${one.name || one.id}${secret ? '' : ' = ' + clean(value)}]`);
      if (tag !== 'select') return;
    }
    for (const child of (one.shadowRoot || one).childNodes) visit(child);
  };
  if (document.body) visit(document.body);
  return lines;
}"""
_ELEMENT = """one => {
  const label = (one.getAttribute('aria-label') || one.innerText || one.value || '').replace(/\\s+/g, ' ').trim();
  const form = one.form ? ` in the form ${one.form.method} ${one.form.action}` : '';
  const link = one.href ? ` to ${one.href}` : '';
  return `${one.tagName.toLowerCase()} "${label.slice(0, 200)}"${link}${form}`;
}"""

Masked = Callable[[Any], Any]


async def text(page: Page, most: int = MOST_TEXT) -> str:
    return str(await page.evaluate(_TEXT, most))


async def html(page: Page) -> tuple[Text, bool]:
    """The elements of the page, and whether they were cut."""
    found = await page.content()
    return Text(found[:MOST_HTML]), len(found) > MOST_HTML


async def elements(page: Page, selectors: tuple[str, ...]) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for selector in selectors:
        texts = await page.locator(selector).all_inner_texts()
        found[selector] = "\n".join(texts)[:MOST_HTML] if texts else None
    return found


async def outline(page: Page, secrets: list[str]) -> tuple[str, str]:
    """What a person sees of the page and can use on it, and its digest. Hidden fields, queries of links and the values of
    secret fields are left out: they may differ each time that the page is opened.
    """
    lines: list[str] = []
    for frame in _frames(page):
        lines += map(str, await frame.evaluate(_OUTLINE, secrets))
    seen = "\n".join(lines)
    return seen, sha256(seen.encode("utf-8", "replace")).hexdigest()


async def element(page: Page, selector: str, seconds: float) -> str:
    """A description of the element that a selector finds."""
    return str(await page.locator(selector).evaluate(_ELEMENT, timeout=seconds * 1000))


async def picture(page: Page, masked: Masked) -> Attachment | None:
    """A picture of the visible part, with every element covered that contains a secret; None if the page changes so fast
    that this cannot be checked.
    """
    for _ in range(_TRIES):
        covered = [await _cover(frame, masked) for frame in _frames(page)]
        try:
            taken = await page.screenshot(
                type="jpeg",
                quality=70,
                animations="disabled",
                caret="hide",
                mask=[frame.locator(f"[{_COVERED}]") for frame in _frames(page)] if any(covered) else None,
                mask_color="#000000",
            )
            if [await _secret_elements(frame, masked) for frame in _frames(page)] == covered:
                return Attachment("image/jpeg", Text(base64.b64encode(taken).decode()), "page.jpg")
        finally:
            if any(covered):
                for frame in _frames(page):
                    await frame.evaluate(_COVER, [_MOST_ELEMENTS, [], _COVERED])
    return None


def _frames(page: Page) -> list[Frame]:
    """The frames that show something. One whose page was refused has no URL, and does not answer."""
    return [frame for frame in page.frames if frame.url]


async def _cover(frame: Frame, masked: Masked) -> list[int]:
    numbers = await _secret_elements(frame, masked)
    if numbers:
        await frame.evaluate(_COVER, [_MOST_ELEMENTS, numbers, _COVERED])
    return numbers


async def _secret_elements(frame: Frame, masked: Masked) -> list[int]:
    """The numbers of the elements whose text or value contains a secret, in the order in which `_COVER` counts them."""
    texts = [str(one) for one in await frame.evaluate(_TEXTS, _MOST_ELEMENTS)]
    clean = masked(texts)
    if clean is texts:
        return []
    return [number for number, (one, other) in enumerate(zip(texts, clean, strict=True)) if one != other]
