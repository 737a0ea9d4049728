"""The document of the card's frame: one file, and a policy that lets exactly it run."""

from __future__ import annotations

import base64
import hashlib
import re

import pytest

from capkernel.viewer import frame
from capkernel.viewer.frame import document


def element(page: str, tag: str) -> str:
    (found,) = re.findall(rf"<{tag}\b[^>]*>(.*?)</{tag}>", page, re.DOTALL)
    return str(found)


def test_it_is_one_file_and_the_policy_names_what_is_in_it() -> None:
    body, headers = document()
    page, policy = body.decode(), headers["Content-Security-Policy"]
    for tag, directive in (("script", "script-src"), ("style", "style-src")):
        digest = base64.b64encode(hashlib.sha256(element(page, tag).encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert "sandbox allow-scripts;" in policy
    assert "unsafe" not in policy
    assert "http" not in re.sub(r"<!--.*?-->", "", page).replace("http-equiv", "")
    assert not re.search(r"\s(on\w+|src|href|style)=", re.sub(r"<script.*</script>", "", page, flags=re.DOTALL))
    assert "innerHTML" not in re.sub(r"/\*.*?\*/", "", element(page, "script"), flags=re.DOTALL)


def test_the_modules_are_in_it_each_in_its_own_scope() -> None:
    script = element(document()[0].decode(), "script")
    assert not re.search(r"^\s*(import|export)\b", script, re.MULTILINE)
    assert re.search(r"^const \{ [\w, ]*\bdraw\b[\w, ]* \} = \(\(\) => \{$", script, re.MULTILINE)
    assert re.search(r"^const \{ freshKey \} = \(\(\) => \{$", script, re.MULTILINE)
    assert re.search(r"^return \{ .*\bdraw\b.* \};$", script, re.MULTILINE)


BROKEN = {
    "an import of another kind": {"frame.js": 'import * as all from "./open.js";\n'},
    "an export of another kind": {
        "open.js": "const x = 1;\nexport { x };\n",
        "frame.js": 'import { x } from "./open.js";\n',
    },
    "a loop": {"frame.js": 'import { x } from "./open.js";\n', "open.js": 'import { x } from "./open.js";\n'},
    "an end of the element": {"frame.js": 'const x = "</ScRipt>";\n'},
    "no place for the script": {"frame.html": "<style></style>"},
}
WHY = {
    "an import of another kind": "not known here",
    "an export of another kind": "not known here",
    "a loop": "imports itself",
    "an end of the element": "ends its own element",
    "no place for the script": "has no place",
}


@pytest.mark.parametrize("what", BROKEN)
def test_what_cannot_be_one_file_is_refused(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    real = frame._text
    monkeypatch.setattr(frame, "_text", lambda name: BROKEN[what].get(name) or real(name))
    with pytest.raises(ValueError, match=WHY[what]):
        document.__wrapped__()
