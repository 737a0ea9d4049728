"""What a cell sees: every name here is pre-imported in every session.

Everything is typed and documented, because this is what completion, help and the checker show. Capabilities are granted
by `with` blocks and are dead after the block, in every process. A refusal by policy is `CapabilityDenied`; a use after
the block is `CapabilityRevoked`.
"""

from capkernel.api.classified import Classified, classify
from capkernel.api.errors import CapabilityDenied, CapabilityRevoked
from capkernel.api.files import Capability, FileEntry, FileSystem, request_file_system
from capkernel.api.person import request_declassify, request_secret
from capkernel.api.search import GrepMatch

__all__ = [
    "Capability",
    "CapabilityDenied",
    "CapabilityRevoked",
    "Classified",
    "FileEntry",
    "FileSystem",
    "GrepMatch",
    "classify",
    "request_declassify",
    "request_file_system",
    "request_secret",
]
