"""What holds without a word of the operator: the secret paths and the protected ones.

Rule 1: nothing in a policy file takes an entry of CLASSIFIED away; a file can only add.
Rule 2: TEMPORARY stays classified: contents on their way to a classified file are under such a name for a moment.
"""

from __future__ import annotations

from typing import Final

TEMPORARY_PREFIX: Final = ".capkernel-"
"""First part of the names of temporary files the broker makes next to the file it is about to replace."""

CLASSIFIED: Final[tuple[str, ...]] = (
    TEMPORARY_PREFIX + "*",
    # environment files
    ".env", ".env.*", ".env-*", ".env_*", "*.env", ".flaskenv",
    # whole directories
    "secrets/", ".secrets/", ".secret/", ".ssh/", ".gnupg/", ".aws/", ".azure/", ".kube/", ".password-store/",
    ".config/gcloud/", ".config/gh/", ".huggingface/", ".kaggle/", ".snowsql/", ".oci/",
    # keys and key stores
    "*.pem", "*.key", "*.p8", "*.ppk", "*.p12", "*.pfx", "*.pkcs12", "*.jks", "*.keystore", "*.kdb", "*.kdbx",
    "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "*_rsa", "*_ed25519",
    # credentials of tools
    ".netrc", "_netrc", ".npmrc", ".yarnrc.yml", ".pypirc", ".git-credentials", ".pgpass", ".my.cnf", ".htpasswd",
    ".dockercfg", ".docker/config.json", ".vault-token", ".s3cfg", ".boto", ".databrickscfg", ".terraformrc",
    ".cargo/credentials*", ".gem/credentials", ".composer/auth.json", ".streamlit/secrets.toml", "kaggle.json",
    "kubeconfig", "*.kubeconfig", "*.tfstate", "*.tfstate.*",
    # by name
    "credentials*", ".credentials*", "*.credentials", "secrets.*", "secret.*",
    "service-account*.json", "service_account*.json", "*serviceaccount*.json", "client_secret*.json",
    "application_default_credentials.json",
    "token", ".token", "*.token", "token.*", "tokens.*", "*_token", "*_token.txt", "*_token.json",
    "api_key*", "apikey*", "*.apikey",
    # what version control has kept of all of these, whether it tracks them now or did once
    "**/*.git/objects/", "**/.git/**/objects/", "**/.hg/store/", "**/.svn/pristine/",
)  # fmt: skip
"""gitignore patterns. Editor copies (`x~`, `.x.swp`, `x.bak`, `#x#` ...) follow from `paths.originals`."""

PROTECTED: Final[tuple[str, ...]] = (
    ".git", ".hg", ".envrc", ".mcp.json", ".claude", ".codex", ".vscode", ".idea", ".github",
    "sitecustomize.py", "usercustomize.py", "conftest.py", "*.pth", "*.ipynb",
)  # fmt: skip
"""Names, at any depth, that a cell may read and not write: what is below them runs, or says what runs, later."""
