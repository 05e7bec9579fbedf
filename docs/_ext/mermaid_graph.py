"""Draws ```mermaid flowcharts by Graphviz, so that pages need no script from the network."""

from __future__ import annotations

import re

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.ext.graphviz import graphviz
from sphinx.util.docutils import SphinxDirective

ARROW = re.compile(r"^\s*([\w/]+)\s*-->\s*([\w/]+)\s*$")


def dot_of(text: str) -> str:
    """The graph of a flowchart in which each line is one arrow."""
    lines = []
    for line in text.splitlines()[1:]:
        arrow = ARROW.match(line)
        if arrow is None:
            raise ValueError(f"expected an arrow, found: {line}")
        lines.append('"{}" -> "{}";'.format(*arrow.groups()))
    style = (
        'bgcolor=transparent; rankdir=TB; node [shape=box, fontname="sans-serif", fontsize=11, '
        'color="#888888", fontcolor="#888888"]; edge [color="#888888"];'
    )
    return f"digraph layers {{ {style} {' '.join(lines)} }}"


class Mermaid(SphinxDirective):
    """A flowchart."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """The picture."""
        node = graphviz()
        node["code"] = dot_of("\n".join(self.content))
        node["options"] = {}
        node["alt"] = "flowchart"
        return [node]


def setup(app: Sphinx) -> dict[str, bool]:
    """Registers the directive."""
    app.add_directive("mermaid", Mermaid)
    return {"parallel_read_safe": True}
