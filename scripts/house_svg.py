"""The letters, boxes and arrows of docs/house.svg, as text of an SVG."""

from __future__ import annotations

import math
import textwrap
from dataclasses import dataclass
from html import escape

from house_plan import Box
from house_routes import Route

PADDING = 12
LETTER = 0.57  # a letter's width over its height, in the widest font that is likely
BOLD_LETTER = 0.67
HEAD = 8  # an arrow's head
STYLE = """
  text { font-family: system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; }
  .page { fill: #ffffff; stroke: #d5dae0; }
  .floor { fill: #f4f6f8; stroke: #b9c2cc; }
  .face { fill: #e7f0fb; stroke: #9dbbdf; }
  .ground { fill: #ecebe6; stroke: #bdb9ab; }
  .engine { fill: #fff4de; stroke: #dfbf82; }
  .room { fill: #fffdf8; stroke: #e2cfa8; }
  .name { fill: #1c2530; font-weight: 600; }
  .holds { fill: #47525e; }
  .size { fill: #66717c; }
  .arrow { fill: none; stroke: #8a95a1; stroke-linejoin: round; }
  .head { fill: #8a95a1; }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0f141a; stroke: #2c353f; }
    .floor { fill: #1a212a; stroke: #3d4854; }
    .face { fill: #15263b; stroke: #3a5b84; }
    .ground { fill: #25251f; stroke: #55523f; }
    .engine { fill: #2a2214; stroke: #77602f; }
    .room { fill: #1d1810; stroke: #5b4b2a; }
    .name { fill: #e8edf2; }
    .holds { fill: #b5bfc9; }
    .size { fill: #929da8; }
    .arrow { stroke: #78838f; }
    .head { fill: #78838f; }
  }
"""


@dataclass(frozen=True)
class Letters:
    """Sizes of the letters in a box, and of its lines."""

    name: int
    holds: int
    size: int
    line: int


LARGE = Letters(name=15, holds=12, size=11, line=17)
MEDIUM = Letters(name=13, holds=12, size=11, line=16)


def wrap(text: str, width: int, size: int) -> list[str]:
    """The text in lines that fit."""
    return textwrap.wrap(text, max(int(width / (size * LETTER)), 1))


def text_at(x: float, y: float, kind: str, size: int, text: str, anchor: str = "start") -> str:
    """A line of text whose letters stand on y."""
    end = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text x="{x:g}" y="{y:g}" class="{kind}" font-size="{size}"{end}>{escape(text)}</text>'


@dataclass(frozen=True)
class Words:
    """What is written in a box."""

    name: str
    holds: str
    size: str
    letters: Letters

    def _size_beside_name(self, width: int) -> bool:
        name = len(self.name) * self.letters.name * BOLD_LETTER
        size = len(self.size) * self.letters.size * LETTER
        return name + size + 2 * PADDING + 10 <= width

    def _lines(self, width: int) -> list[tuple[str, int, str]]:
        """Kind, size and text of the lines under the name."""
        letters = self.letters
        wrapped = wrap(self.holds, width - 2 * PADDING, letters.holds)
        lines = [("holds", letters.holds, line) for line in wrapped]
        if not self._size_beside_name(width):
            lines.append(("size", letters.size, self.size))
        return lines

    def height(self, width: int) -> int:
        """How high a box of this width must be."""
        return 2 * PADDING + self.letters.name + self.letters.line * len(self._lines(width)) - 4

    def draw(self, box: Box) -> list[str]:
        """The text, in the middle of the box's height."""
        width = box.right - box.left
        left = box.left + PADDING
        y = box.top + (box.bottom - box.top - self.height(width)) // 2
        y += PADDING + self.letters.name - 3
        drawn = [text_at(left, y, "name", self.letters.name, self.name)]
        if self._size_beside_name(width):
            end = box.right - PADDING
            drawn.append(text_at(end, y, "size", self.letters.size, self.size, "end"))
        for kind, size, line in self._lines(width):
            y += self.letters.line
            drawn.append(text_at(left, y, kind, size, line))
        return drawn


def draw_box(box: Box, kind: str, title: str, inside: list[str]) -> list[str]:
    """A box, what is in it, and what is shown when the pointer rests there."""
    return [
        "<g>",
        f"<title>{escape(title)}</title>",
        f'<rect x="{box.left}" y="{box.top}" width="{box.right - box.left}" '
        f'height="{box.bottom - box.top}" rx="6" class="{kind}"/>',
        *inside,
        "</g>",
    ]


def draw_arrow(route: Route, files: int, title: str) -> list[str]:
    """An arrow, thicker and with a larger number the more files there are."""
    (x, end), corners = route.points[-1], route.points[:-1]
    path = " L".join(f"{across} {down}" for across, down in (*corners, (x, end - HEAD)))
    thickness = 1 + 0.4 * math.log2(files)
    half = 3.5 + thickness / 2
    return [
        "<g>",
        f"<title>{escape(title)}</title>",
        f'<path d="M{path}" class="arrow" stroke-width="{thickness:.1f}"/>',
        f'<path d="M{x - half:.1f} {end - HEAD - 1} h{2 * half:.1f} L{x} {end} z" class="head"/>',
        text_at(x + 8, end - HEAD - 2, "size", MEDIUM.size, str(files)),
        "</g>",
    ]


def document(width: int, height: int, title: str, drawn: list[str]) -> str:
    """The whole SVG."""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" role="img">',
            f"<title>{escape(title)}</title>",
            f"<style>{STYLE}</style>",
            f'<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8" '
            'class="page"/>',
            *drawn,
            "</svg>\n",
        ]
    )
