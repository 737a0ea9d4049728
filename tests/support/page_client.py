"""What a script of the Jupyter page can ask of the server, and what programs that pretend to be one can."""

from __future__ import annotations

import base64
import json
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from jupyter_client.blocking import BlockingKernelClient
from jupyter_server_started import TOKEN

from capkernel.vault.seal import unseal

SECONDS = 90
T = TypeVar("T")
OWN = {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Dest": "empty", "Sec-Fetch-Mode": "cors"}
VISIT = {"Sec-Fetch-Site": "none", "Sec-Fetch-Dest": "document", "Sec-Fetch-Mode": "navigate"}


@dataclass
class Key:
    """Of one reveal."""

    private: X25519PrivateKey

    @classmethod
    def fresh(cls) -> Key:
        return cls(X25519PrivateKey.generate())

    @property
    def public(self) -> str:
        return base64.b64encode(self.private.public_key().public_bytes_raw()).decode()

    def open(self, answer: httpx.Response, handle: str) -> dict[str, Any]:
        assert answer.status_code == 200, answer.text
        shown: dict[str, Any] = json.loads(unseal(base64.b64decode(answer.json()["sealed"]), self.private, handle))
        return shown


class Browser:
    """A browser that has logged in: its cookies, and the headers it sends."""

    def __init__(self, port: int, base: str = "/", *, log_in: bool = True) -> None:
        self.origin = f"http://127.0.0.1:{port}"
        self.base = base
        self.http = httpx.Client(base_url=self.origin, timeout=SECONDS, trust_env=False)
        if not log_in:
            self.http.cookies.set("_xsrf", secrets.token_hex(16))  # whoever sends both halves may choose them
        else:
            self.http.get(f"{base}login").raise_for_status()  # a page of Jupyter's, which brings the _xsrf cookie
            # As the address that Jupyter prints: the token buys a login cookie.
            assert self.http.get(f"{base}login", params={"token": TOKEN}).status_code == 302

    @property
    def xsrf(self) -> str:
        return self.http.cookies.get("_xsrf", path=self.base) or self.http.cookies.get("_xsrf") or ""

    def ask(self, name: str, said: dict[str, Any] | str, **headers: str | None) -> httpx.Response:
        """POST as the page's own script, with `headers` (underscores for hyphens) put in, or left out for None."""
        sent: dict[str, str | None] = {**OWN, "Origin": self.origin, "X-XSRFToken": self.xsrf}
        sent |= {"Content-Type": "application/json"}
        sent |= {key.replace("_", "-"): value for key, value in headers.items()}
        present = {key: value for key, value in sent.items() if value is not None}
        body = said if isinstance(said, str) else json.dumps(said)
        return self.http.post(f"{self.base}capkernel/{name}", content=body, headers=present)

    def visit_pairing(self, **headers: str) -> httpx.Response:
        return self.http.get(f"{self.base}capkernel/pair", headers={**VISIT, **headers})

    def reveal(self, kernel: str, handle: str) -> dict[str, Any]:
        key = Key.fresh()
        return key.open(self.ask("reveal", {"kernel": kernel, "handle": handle, "key": key.public}), handle)

    @property
    def _program(self) -> dict[str, str]:
        return {"Authorization": f"token {TOKEN}", "X-XSRFToken": self.xsrf}

    def start_kernel(self, directory: Path, name: str = "capkernel") -> str:
        """By the server's own interface, as a program with the token does."""
        body = {"name": name, "path": str(directory)}
        answer = self.http.post(f"{self.base}api/kernels", json=body, headers=self._program)
        assert answer.status_code == 201, answer.text
        kernel: str = answer.json()["id"]
        return kernel

    def kernels(self, kernel: str, action: str = "") -> httpx.Response:
        """GET a kernel's model, or POST an action on it ("restart"); DELETE for "delete"."""
        url, headers = f"{self.base}api/kernels/{kernel}", self._program
        if action == "delete":
            return self.http.delete(url, headers=headers)
        return self.http.post(f"{url}/{action}", headers=headers) if action else self.http.get(url, headers=headers)

    def state(self, kernel: str) -> dict[str, Any]:
        """What the card is told, when the kernel is up."""
        end = time.monotonic() + SECONDS
        while True:
            answer = self.ask("state", {"kernel": kernel})
            if answer.status_code == 200:
                said: dict[str, Any] = answer.json()
                return said
            assert answer.json()["error"] == "kernel-unreachable", answer.text
            assert time.monotonic() < end, "the kernel did not come up"
            time.sleep(0.1)


def run_cell(environment: dict[str, str], kernel: str, code: str) -> str:
    """Run a cell as any client with the connection file does; all that came out of it."""
    file = Path(environment["JUPYTER_RUNTIME_DIR"]) / f"kernel-{kernel}.json"
    client = BlockingKernelClient(connection_file=str(file))
    client.load_connection_file()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=SECONDS)
        seen: list[dict[str, Any]] = []
        reply = client.execute_interactive(code, timeout=SECONDS, output_hook=seen.append)
        assert reply["content"]["status"] == "ok", reply["content"]
        return json.dumps([message["content"] for message in seen])
    finally:
        client.stop_channels()


def printed_code(log: Path, after: int = 0) -> tuple[str, int]:
    """The pairing code that the server printed after this place of its log, and the place behind it."""
    found = wait(lambda: re.compile(r"pairing code: (\d{4}) (\d{4})").search(log.read_text(), after))
    return found[1] + found[2], found.end()


def wait(look: Callable[[], T | None]) -> T:
    end = time.monotonic() + SECONDS
    while (found := look()) is None:
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.05)
    return found
