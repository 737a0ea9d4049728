"""The comments mypy gives a meaning to: `# type: ignore`, and `# mypy:`, which no cell may hold.

mypy itself never sees a comment of a cell; what they may silence is decided here, by profile. Found by the tokenizer,
because the same words inside a string mean nothing.
"""

from __future__ import annotations

import io
import tokenize
from dataclasses import dataclass, field

import mypy.build  # noqa: F401  (must be the first mypy module: the others import each other in a circle)
from mypy.fastparse import parse_type_ignore_tag


@dataclass
class Comments:
    """`ignores`: line to the codes ignored there, empty for all. `settings`: places of `# mypy:`, in characters."""

    ignores: dict[int, list[str]] = field(default_factory=dict)
    settings: list[tuple[int, int, int]] = field(default_factory=list)  # line, column, end column

    def ignores_code(self, line: int, code: str) -> bool:
        codes = self.ignores.get(line)
        return codes is not None and (not codes or code in codes)


def comments_of(text: str) -> Comments:
    """The comments of a text that parses."""
    found = Comments()
    if "#" not in text or ("type:" not in text and "mypy:" not in text):
        return found
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type != tokenize.COMMENT:
            continue
        words = token.string.lstrip("#").strip()
        line, column = token.start
        if words.startswith("mypy:"):
            found.settings.append((line, column, token.end[1]))
        elif words.startswith("type:"):
            rest = words.removeprefix("type:").strip()
            if rest.startswith("ignore"):
                codes = parse_type_ignore_tag(rest.removeprefix("ignore"))
                if codes is not None:
                    found.ignores[line] = codes
    return found
