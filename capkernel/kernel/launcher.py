"""Who launched this kernel, and the viewer secret it handed over: what lets a Jupyter server show secrets in its page.

Rule 1: the secret comes from our provisioner (`kernel.provisioner`), through a pipe that is read before any other
process of the session starts (`kernel.secret_pipe`); it is in no argument, environment or file.
Rule 2: whoever proves the secret must also be the process that started us, and must still be there: the id of our
parent changes when it ends, so a process that gets its number later is not taken for it.
"""

from __future__ import annotations

import hmac
import os

from capkernel.kernel import secret_pipe
from capkernel.wire.view import CARD, SECRET_BYTES, proof


class Launcher:
    """The process that started this kernel and handed over `secret`."""

    def __init__(self, secret: bytes, process: int) -> None:
        self._secret = secret
        self._process = process

    @classmethod
    def received(cls, fd: int | None) -> Launcher | None:
        """Read the secret from `fd` and close it. None when there is none: then no page is served."""
        secret, process = secret_pipe.read_once(fd, SECRET_BYTES), os.getppid()
        # Process 0 is what the system calls every process outside of our process namespace.
        return cls(secret, process) if secret is not None and process > 0 else None

    def is_process(self, process: int) -> bool:
        """Whether this is the id of the launcher, which is still there."""
        return process == self._process == os.getppid()

    def proved(self, given: bytes, challenge: bytes) -> bool:
        return hmac.compare_digest(given, proof(self._secret, challenge, CARD))
