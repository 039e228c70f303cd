"""Every text of a page against what lies behind it, as Chromium computes both: WCAG 2.1 AA, 4.5 to 1, or 3 to 1 for large
letters."""
from __future__ import annotations

# Returns a line for each pair of colours that is too close, and how many texts were looked at, and the page's ground.
SCRIPT = r"""
const pen = new OffscreenCanvas(1, 1).getContext('2d', { willReadFrequently: true }), known = new Map();
const rgba = (color) => {
  if (!known.has(color)) {
    pen.clearRect(0, 0, 1, 1);
    pen.fillStyle = color;
    pen.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = pen.getImageData(0, 0, 1, 1).data;
    known.set(color, [r, g, b, a / 255]);
  }
  return known.get(color);
};
const over = ([r, g, b, a], below) => [r, g, b].map((c, i) => c * a + below[i] * (1 - a)).concat(1);
const light = (color) => {
  const [r, g, b] = color.map((c) => c / 255).map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const grounds = new Map();
const ground = (element) => {
  if (!element) return [255, 255, 255, 1];
  if (!grounds.has(element)) {
    const color = rgba(getComputedStyle(element).backgroundColor);
    grounds.set(element, color[3] === 1 ? color : over(color, ground(element.parentElement)));
  }
  return grounds.get(element);
};
// Behind a text of a drawing: the last filled shape before it that holds its middle.
const behind = (text) => {
  const svg = text.ownerSVGElement, box = text.getBoundingClientRect(), x = box.x + box.width / 2, y = box.y + box.height / 2;
  let color = ground(svg.parentElement);
  for (const shape of svg.querySelectorAll('rect, circle, ellipse, text')) {
    if (shape === text) break;
    if (shape.tagName === 'text') continue;
    const { left, right, top, bottom } = shape.getBoundingClientRect(), style = getComputedStyle(shape);
    if (left > x || right < x || top > y || bottom < y || style.fill === 'none' || shape.closest('defs')) continue;
    const [r, g, b, a] = rgba(style.fill);
    color = over([r, g, b, a * style.fillOpacity * style.opacity], color);
  }
  return color;
};
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), seen = new Set(), faint = new Map();
while (walker.nextNode()) {
  const element = walker.currentNode.parentElement, text = walker.currentNode.textContent.trim();
  if (!text || seen.has(element) || element.closest('script, style, desc, title, .katex-mathml, option')) continue;
  seen.add(element);
  if (!element.checkVisibility({ opacityProperty: true, visibilityProperty: true }) || element.closest(':disabled')) continue;
  const style = getComputedStyle(element), svg = element.ownerSVGElement;
  const below = svg ? behind(element.closest('text')) : ground(element);
  const [a, b] = [light(over(rgba(svg ? style.fill : style.color), below)), light(below)].sort((a, b) => b - a);
  const ratio = (a + 0.05) / (b + 0.05), size = parseFloat(style.fontSize);
  const wanted = size >= 24 || (size >= 18.66 && style.fontWeight >= 700) ? 3 : 4.5;
  const pair = `${svg ? style.fill : style.color} on rgb(${below.slice(0, 3).map(Math.round)})`;
  if (ratio < wanted && !faint.has(pair)) {
    faint.set(pair, `${pair} is ${ratio.toFixed(2)}: ${text.slice(0, 30)} in ${element.outerHTML.slice(0, 60)}`);
  }
}
return [[...faint.values()], seen.size, getComputedStyle(document.body).backgroundColor];
"""
