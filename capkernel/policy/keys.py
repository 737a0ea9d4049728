"""Every key of a policy, for people: type, meaning, who may set it. A test holds this to `model`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from capkernel.policy.approvable import COVERED

_NARROWER: Final = "trusted files; an untrusted one only "


@dataclass(frozen=True)
class Key:
    """type: in words. meaning: what it does. who: who may set it, beside the operator, who may always."""

    name: str
    type: str
    meaning: str
    who: str


KEYS: Final[dict[str, Key]] = {
    key.name: key
    for key in (
        Key(
            "profile",
            '"strict", "standard" or "relaxed"',
            "How much of the type checker (mypy) refuses: every error, what is certain, or nothing. The rules about "
            "capabilities and secrets refuse in all three.",
            _NARROWER + "makes it stricter. A launcher's --profile may be stricter, never wider",
        ),
        Key(
            "files.roots",
            "list of directories; relative to the policy file, `~/` is the home directory",
            "The trees in which cells may ask for files with request_file_system(root). Without it: the directory of "
            "the policy file (of the notebook when there is none), but never `/`, the home directory or one above it.",
            _NARROWER + "makes them smaller: what both it and the policy name",
        ),
        Key(
            "files.classified",
            "list of patterns in gitignore syntax",
            "Paths whose content is secret, added to the built-in list. A pattern with a slash starts at the policy's "
            "directory; `/x` and `~/x` also mean that very path. `!` takes back only what the same list matched, "
            "never a built-in.",
            _NARROWER + "adds patterns",
        ),
        Key(
            "files.classified_write",
            '"new", true or false',
            'Which classified files cells may write secrets into: "new" creates, and replaces what this session '
            "created; true replaces any; false writes none.",
            _NARROWER + 'makes it stricter (true, "new", false)',
        ),
        Key(
            "files.hide_classified_names",
            "true or false",
            "Whether cells are told nothing of what lies under classified names, not even that it exists: listings and "
            "searches leave the names out, reading what is missing gives a secret that is poison, and a write that "
            "cannot be done looks like one that can. Folders cannot be deleted then.",
            _NARROWER + "switches it on",
        ),
        Key(
            "files.memory",
            "true or false",
            "Whether the session's files are in memory and nothing on the disk is granted: request_file_system() then "
            "gives an empty root, which is gone when the session ends. The other keys hold for it as for any root.",
            "trusted files; never an untrusted one",
        ),
        Key(
            "files.unprotect",
            "list of protected names, as `capkernel policy explain files.unprotect` shows them",
            "Names that cells may write although what they hold runs, or says what runs, later.",
            "trusted files; never an untrusted one",
        ),
        Key(
            "limits.cell_seconds",
            "seconds, more than 0, at most 86400",
            "How long a cell may run before it is interrupted, then killed.",
            _NARROWER + "lowers it",
        ),
        Key(
            "limits.checker_seconds",
            "seconds, more than 0, at most 86400",
            "How long the check of a cell may take; a cell that takes longer is refused.",
            _NARROWER + "lowers it",
        ),
        Key(
            "limits.map_seconds",
            "seconds, more than 0, at most 86400",
            "How long one pure function may take in the vault; its value is then poison.",
            _NARROWER + "lowers it",
        ),
        Key(
            "limits.cell_memory_mb",
            "MiB, at least 256, at most 2^20",
            "How much memory the cells of a session and what they left may take together; a cell that wants more gets "
            "a MemoryError. Most of the machine's memory is the limit anyway.",
            _NARROWER + "lowers it",
        ),
        Key(
            "limits.output_bytes",
            "bytes, more than 0, at most 2^40",
            "How much a cell may put out; what is more is cut off.",
            _NARROWER + "lowers it",
        ),
        Key(
            "limits.kept_values",
            "a number, at most 10000",
            "How many classified values the vault keeps for you when no cell can reach them any more, those that were "
            "shown before others; the rest is given up.",
            _NARROWER + "lowers it",
        ),
        Key(
            "limits.approval_seconds",
            "seconds, more than 0, at most 86400",
            "How long a question waits for your decision; then the answer is no. A cell's own time stands still "
            "meanwhile.",
            _NARROWER + "lowers it",
        ),
        Key(
            "sandbox.minimum",
            '"full", "standard", "partial" or "none"',
            "The lowest isolation of the worker at which a session starts; `capkernel doctor` says what this machine "
            'has. "none" also starts without any, and says so in every session.',
            _NARROWER + "raises it",
        ),
        Key(
            "records.keep",
            "true or false",
            "Whether the code of each execution and what it put out are kept as files, redacted, in the user's state "
            "directory. docs/audit.md says what is masked.",
            "trusted files; never an untrusted one",
        ),
        Key(
            "records.max_bytes",
            "bytes, more than 0, at most 2^40",
            "How much the records of one session may take; beyond it the oldest are removed.",
            "trusted files; never an untrusted one",
        ),
        Key(
            "output.secure_file",
            'path of a file; relative to the policy file, `~/` is the home directory; "" for none',
            "Where every classified value that a cell prints or displays also goes, in clear text, for you alone. Only "
            "appended to; made with mode 0600 when it is not there. It must lie outside of the roots and of the "
            "notebook's directory, and be a regular file of yours that nobody else may read: otherwise nothing goes "
            "there, and the session says why.",
            "trusted files; never an untrusted one",
        ),
        Key(
            "output.active",
            "true or false",
            "Whether outputs may act in the page that shows them: scripts, SVG, plotly, ipywidgets and anywidget, with "
            "their messages in both directions. A script in an output acts as you: it can use your Jupyter login. "
            "Secrets are then shown outside of that page only, and every session says so.",
            _NARROWER + "switches it off",
        ),
        Key(
            "viewer.pairing",
            "true or false",
            "Whether values are shown in a Jupyter page only after you typed the code that the Jupyter server printed "
            "where it was started.",
            _NARROWER + "switches it on",
        ),
        Key(
            "viewer.high",
            "list of patterns in gitignore syntax",
            "Origins whose values are always shown in a Jupyter page only after pairing: paths of files, read as in "
            "files.classified, or other origins as the card shows them.",
            _NARROWER + "makes all values need pairing",
        ),
        Key(
            "approvals.ask",
            "list of effects: " + ", ".join(COVERED),
            "What waits for your decision in `capkernel view` or `capkernel approve`, each time. files.write asks for "
            "everything that makes or changes a file or folder, files.overwrite_classified lets you allow what "
            'files.classified_write = "new" refuses.',
            _NARROWER + "adds effects",
        ),
        Key(
            "approvals.declassify",
            "true or false",
            "Whether a cell may ask you to release a classified value to it (request_declassify). Nothing is ever "
            "released without your decision about that very value.",
            _NARROWER + "switches it off",
        ),
        Key(
            "secrets",
            'tables: [secrets.NAME] env = "VARIABLE"',
            "Secrets that request_secret(NAME) takes from an environment variable that the kernel was started with, "
            "as a classified value. Every other name you are asked to type.",
            "trusted files; never an untrusted one",
        ),
    )
}

RISKS: Final[dict[str, str]] = {
    ".git": "hooks and configuration in it run programs at the next git command",
    ".hg": "hooks and configuration in it run programs at the next hg command",
    ".envrc": "direnv runs it when someone enters the directory",
    ".mcp.json": "it names programs that agents and editors start",
    ".claude": "it configures an agent: commands, hooks and permissions",
    ".codex": "it configures an agent: commands, hooks and permissions",
    ".vscode": "its tasks and settings name programs that the editor starts",
    ".idea": "its run configurations name programs that the editor starts",
    ".github": "its workflows run in continuous integration, with its secrets",
    "sitecustomize.py": "Python runs it at every start",
    "usercustomize.py": "Python runs it at every start",
    "conftest.py": "pytest runs it",
    "*.pth": "Python runs lines of it at every start",
    "*.ipynb": "a notebook's cells run when a person opens and runs it, this one included",
}
"""Why each protected name is protected."""

STARTING_FILE: Final = """\
# What a capkernel session in this directory may do. `capkernel policy explain KEY` says more about every key.
# This file grants nothing until you trust exactly what it says:   capkernel policy trust capkernel.toml
# Trust it again after every change. Look for mistakes:            capkernel policy lint

# How much of the type checker refuses: strict, standard or relaxed.
#profile = "standard"

# Secrets that request_secret("API_KEY") takes from the environment that the kernel is started with.
#secrets = { API_KEY = { env = "API_KEY" } }

[files]
# Where cells may ask for files, relative to this file.
roots = ["."]

# What is secret, in gitignore syntax, added to the usual places (.env, secrets/, private keys, credential files ...).
classified = [
    # "salaries.csv",
    # "private/",
]

# Which classified files cells may write: "new" creates, and replaces what the session created; true; false.
#classified_write = "new"
#hide_classified_names = false
#memory = false

# Protected names that cells may write after all. Each of them runs, or says what runs, later.
#unprotect = ["*.ipynb"]

[limits]
#cell_seconds = 60
#checker_seconds = 10
#map_seconds = 30
#cell_memory_mb = 1_048_576
#output_bytes = 10_485_760
#approval_seconds = 120
#kept_values = 100

[sandbox]
# full, standard, partial or none: below it no session starts.
#minimum = "standard"

[records]
# Keep the code and the output of each execution, with what looks like a key masked.
#keep = false
#max_bytes = 67_108_864

[output]
# A file outside of this directory that gets, in clear text, what cells show of secrets. Without it: no such file.
#secure_file = ""
# Widgets, plotly and other outputs with scripts. A script in an output acts as you in your Jupyter page.
#active = false

[viewer]
# Show secrets in a Jupyter page only after a pairing code: all of them, or those from some places ("secrets/prod/").
#pairing = false
#high = []

[approvals]
# What waits for your decision in `capkernel view` or `capkernel approve`.
# (files.write, files.delete, files.overwrite_classified ...)
#ask = []
#declassify = true
"""
