"""Who broke the protocol: we did (a bug here), or the process at the other end (kill it)."""


class ProtocolError(Exception):
    """Base of the two; never raised itself."""


class LocalProtocolError(ProtocolError):
    """This side tried to send what the protocol does not allow. A bug of ours; nothing was sent."""


class RemoteProtocolError(ProtocolError):
    """The peer sent what the protocol does not allow. The link is finished: kill the peer and tell the user."""
