"""Writes the results of a run as one page of Markdown."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from comparison.bounds import Verdict
from comparison.results import Results
from comparison.sizes import show_size
from comparison.table import Table, notes_of, show_ratio, tables_of


def settings_table(results: Results) -> Table:
    """Makes a table of the contestants and their settings."""
    table = Table("", ["contestant", "ranks", "settings"], numbers=False)
    for about in results.about.get("contestants", {}).values():
        if "missing" in about:
            table.rows.append([about["title"], "", about["missing"]])
        for ranks, words in about["settings"].items():
            table.rows.append([about["title"], ranks, words])
    return table


def verdicts_table(verdicts: Sequence[Verdict]) -> Table:
    """Makes a table of the bounds and the measured ratios."""
    headers = ["bound", "contestant", "ranks", "call", "against", "ratio", "at most"]
    headers += ["until then", "holds"]
    table = Table("", headers, numbers=False)
    for verdict in verdicts:
        bound = verdict.bound
        size = f" {show_size(bound.cell.bytes)}" if bound.cell.bytes else ""
        table.rows.append(
            [
                bound.name,
                bound.contestant,
                str(bound.ranks),
                bound.cell.collective + size,
                verdict.rival or ", ".join(bound.against),
                show_ratio(verdict.ratio),
                bound.limit(),
                bound.limit_until_then(),
                {"holds": "yes", "BROKEN": "no"}.get(verdict.word(), verdict.word()),
            ]
        )
    return table


def section(results: Results, verdicts: Sequence[Verdict], pictures: Sequence[str]) -> str:
    """Returns the whole section as Markdown."""
    about = results.about
    parts = [
        f"{about.get('machine', 'This machine')}, {about.get('date', 'undated')}; median of "
        f"{about.get('rounds', '?')} rounds. Command: `{about.get('command', 'make bench')}`.",
        *([f"Between the cores: {about['steadiness']}."] if about.get("steadiness") else []),
        "## Settings",
        settings_table(results).markdown(),
        "## Times and ratios",
        *(f"![median time of a call over its size]({picture})" for picture in pictures),
        *(table.markdown() for table in tables_of(results)),
    ]
    notes = notes_of(results)
    if notes:
        parts += ["Not measured:", "\n".join(f"- {note}" for note in notes)]
    if verdicts:
        parts += ["## Bounds", verdicts_table(verdicts).markdown()]
    return "\n\n".join(parts)


def write_page(
    path: Path, results: Results, verdicts: Sequence[Verdict], pictures: Sequence[Path]
) -> None:
    """Writes the page, with links to the pictures."""
    links = [os.path.relpath(picture, path.parent) for picture in pictures]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"# MCCL beside its peers\n\n{section(results, verdicts, links)}\n")
