"""Diagnostics as HTML for the notebook page: the text form, escaped, with the message and the help set apart.

No script, no link that loads, no colour that a dark theme would hide: only JupyterLab's own variables.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence

from capkernel.diagnostics.model import Diagnostic
from capkernel.diagnostics.render_text import render_text


def render_html(diagnostics: Sequence[Diagnostic], sources: Mapping[int, str]) -> str:
    """One block for the whole refusal."""
    errors = sum(diagnostic.severity == "error" for diagnostic in diagnostics)
    title = "Refused: nothing ran, nothing changed" if errors else "Accepted with warnings"
    colour = "--jp-error-color1" if errors else "--jp-warn-color1"
    body = html.escape(render_text(diagnostics, sources))
    return (
        f'<div style="border-left: 4px solid var({colour}, #c33); padding: 4px 12px">'
        f"<strong>{title}</strong>"
        '<pre style="margin: 4px 0 0; white-space: pre-wrap; word-break: normal; overflow-wrap: anywhere">'
        f"{body}</pre></div>"
    )
