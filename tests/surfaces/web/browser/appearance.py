"""Checks of a page's appearance: elements beyond its edges, and words that are too faint to read."""

from __future__ import annotations

from typing import Any

from playwright.async_api import Page

# Everything that reaches beyond the screen and is not in a scrollable container.
_OVERFLOW = """() => {
  const wide = document.documentElement.clientWidth;
  const found = document.documentElement.scrollWidth > wide ? [`the page is ${document.documentElement.scrollWidth} wide`] : [];
  const boxed = (one) => {
    for (let up = one.parentElement; up && up !== document.body; up = up.parentElement) {
      if (['auto', 'scroll', 'hidden', 'clip'].includes(getComputedStyle(up).overflowX)) return true;
    }
    return false;
  };
  for (const one of document.body.querySelectorAll('*')) {
    const box = one.getBoundingClientRect();
    if (box.width && box.height && box.right > wide + 1 && !boxed(one)) {
      found.push(`${one.localName}#${one.id}.${one.getAttribute('class')} ends at ${box.right}`);
    }
  }
  return found;
}"""

# Words with less contrast to their background than WCAG AA requires.
_FAINT = """() => {
  const canvas = document.createElement('canvas');
  canvas.width = canvas.height = 1;
  const pen = canvas.getContext('2d', { willReadFrequently: true });
  const known = new Map();
  const rgba = (colour) => {
    if (!known.has(colour)) {
      pen.clearRect(0, 0, 1, 1);
      pen.fillStyle = colour;
      pen.fillRect(0, 0, 1, 1);
      const [r, g, b, a] = pen.getImageData(0, 0, 1, 1).data;
      known.set(colour, [r, g, b, a / 255]);
    }
    return known.get(colour);
  };
  const over = ([r, g, b, a], [R, G, B]) => [r * a + R * (1 - a), g * a + G * (1 - a), b * a + B * (1 - a), 1];
  const behind = (one) => {
    const layers = [];
    for (let up = one; up; up = up.parentElement) {
      const layer = rgba(getComputedStyle(up).backgroundColor);
      if (layer[3] > 0) layers.push(layer);
      if (layer[3] === 1) break;
    }
    return layers.reverse().reduce((below, layer) => over(layer, below), [...rgba('Canvas').slice(0, 3), 1]);
  };
  const light = (colour) => {
    const [r, g, b] = colour.map((part) => {
      const one = part / 255;
      return one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const found = [];
  let seen = 0;
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const words = walker.currentNode.data.trim();
    const one = walker.currentNode.parentElement;
    if (!words || ['script', 'style', 'noscript', 'title', 'option'].includes(one.localName)) continue;
    if (!one.checkVisibility({ opacityProperty: true, visibilityProperty: true }) || one.closest(':disabled')) continue;
    const style = getComputedStyle(one);
    const drawn = one instanceof SVGElement;
    let ground = behind(drawn ? one.closest('svg').parentElement : one);
    if (drawn) {
      const shape = one.closest('g')?.querySelector('rect, polygon, path');
      const fill = shape && getComputedStyle(shape).fill;
      if (fill && fill !== 'none') ground = over(rgba(fill), ground);
    }
    let ink = rgba(drawn ? style.fill : style.color);
    for (let up = one; up; up = up.parentElement) ink = [...ink.slice(0, 3), ink[3] * getComputedStyle(up).opacity];
    const [a, b] = [light(over(ink, ground)), light(ground)];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    seen += 1;
    if (ratio < (large ? 3 : 4.5)) {
      found.push(`${ratio.toFixed(2)} ${one.localName}.${one.getAttribute('class')}: ${words.slice(0, 40)}`);
    }
  }
  return { seen, found: [...new Set(found)] };
}"""


async def sticks_out(page: Page) -> list[str]:
    return list(await page.evaluate(_OVERFLOW))


async def faint(page: Page) -> list[str]:
    message: dict[str, Any] = await page.evaluate(_FAINT)
    assert message["seen"] > 5, "there is something to read"
    return list(message["found"])
