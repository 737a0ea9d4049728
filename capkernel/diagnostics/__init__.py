"""What a refusal says: codes, the Diagnostic type, and its renderers for a person, a page and a model."""

from capkernel.diagnostics.codes import CODES, Code
from capkernel.diagnostics.edits import apply_edits, for_client
from capkernel.diagnostics.model import Captured, Diagnostic, Edit, Fix, Note, Span
from capkernel.diagnostics.render_html import render_html
from capkernel.diagnostics.render_json import MIME_TYPE, to_json
from capkernel.diagnostics.render_text import render_concise, render_text

__all__ = [
    "CODES",
    "MIME_TYPE",
    "Captured",
    "Code",
    "Diagnostic",
    "Edit",
    "Fix",
    "Note",
    "Span",
    "apply_edits",
    "for_client",
    "render_concise",
    "render_html",
    "render_text",
    "to_json",
]
