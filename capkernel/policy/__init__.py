"""What the operator allows: the policy file, classified, protected and excluded paths, decisions."""

from capkernel.policy.decision import ALLOWED, Allowed, Decision, Denied
from capkernel.policy.errors import PolicyError
from capkernel.policy.excluded import Exclusions
from capkernel.policy.load import default_policy, discovered, load_policy
from capkernel.policy.model import Files, Limits, Policy, Sandbox
from capkernel.policy.paths import PathRules

__all__ = [
    "ALLOWED", "Allowed", "Decision", "Denied", "Exclusions", "Files", "Limits", "PathRules", "Policy", "PolicyError",
    "Sandbox", "default_policy", "discovered", "load_policy",
]  # fmt: skip
