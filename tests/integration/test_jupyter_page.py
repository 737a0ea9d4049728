"""A Jupyter server with our extension and a kernel it launched: what its page gets, and what nobody else gets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from jupyter_server_started import jupyter_environment, jupyter_server
from page_client import Browser, run_cell

from capkernel.viewer import sessions
from capkernel.viewer.link import Link

pytestmark = pytest.mark.timeout(300)

CANARY = "canary-7c1f-in-the-page"
READ = """\
with request_file_system('.') as fs:
    s = fs.read_classified('secrets/canary.txt')
n = s.map(lambda t: len(t))
"""


@dataclass
class Served:
    """A server with one kernel that has two classified values."""

    port: int
    log: Path
    environment: dict[str, str]
    directory: Path
    browser: Browser
    kernel: str
    handle: str
    number: str


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    place = tmp_path_factory.mktemp("page")
    directory = place / "notebooks"
    (directory / "secrets").mkdir(parents=True)
    (directory / "secrets" / "canary.txt").write_text(CANARY)
    environment = jupyter_environment(place / "jupyter")
    log = place / "server.log"
    with pytest.MonkeyPatch.context() as patch, jupyter_server(directory, environment, log) as port:
        patch.setenv("XDG_RUNTIME_DIR", environment["XDG_RUNTIME_DIR"])  # where the sessions are looked for
        browser = Browser(port)
        kernel = browser.start_kernel(directory)
        browser.state(kernel)
        assert CANARY not in run_cell(environment, kernel, READ)
        (session,) = sessions.running("test")
        with Link.open(session.runtime, "test") as link:
            number, handle = (value.handle for value in link.values().values)
        yield Served(port, log, environment, directory, browser, kernel, handle, number)


def test_a_value_is_revealed_to_the_page_that_made_the_key(served: Served) -> None:
    assert served.browser.state(served.kernel) == {
        "reveal": "card", "why": "", "pair_url": "/capkernel/pair", "paired": False,
    }  # fmt: skip
    about = served.browser.ask("about", {"kernel": served.kernel, "handle": served.handle}).json()
    assert about == {
        "type": "str", "origins": ["file:secrets/canary.txt"], "label": "", "cell": 1, "how": "read", "high": False,
    }  # fmt: skip
    shown = served.browser.reveal(served.kernel, served.handle)
    assert shown == {"kind": "text", "text": CANARY, "length": len(CANARY)}
    assert served.browser.reveal(served.kernel, served.number)["text"] == str(len(CANARY))
