"""What the operator allows: the policy file, classified, protected and excluded paths, decisions."""

from capkernel.policy.decision import ALLOWED, Allowed, Decision, Denied
from capkernel.policy.errors import PolicyError
from capkernel.policy.excluded import Exclusions
from capkernel.policy.load import default_policy, load_policy
from capkernel.policy.model import Files, Limits, PatternList, Policy, Sandbox
from capkernel.policy.paths import PathRules
from capkernel.policy.resolve import Resolved, resolve, resolve_ambient

__all__ = [
    "ALLOWED", "Allowed", "Decision", "Denied", "Exclusions", "Files", "Limits", "PathRules", "PatternList", "Policy",
    "PolicyError", "Resolved", "Sandbox", "default_policy", "load_policy", "resolve", "resolve_ambient",
]  # fmt: skip
