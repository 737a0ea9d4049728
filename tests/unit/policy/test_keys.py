"""What is said about the keys is said about every key, and about no other."""

from __future__ import annotations

import tomllib

from capkernel.policy.defaults import PROTECTED
from capkernel.policy.keys import KEYS, RISKS, STARTING_FILE
from capkernel.policy.load import Source, parse
from capkernel.policy.resolve import all_keys


def test_every_key_is_explained():
    assert tuple(sorted(KEYS)) == tuple(sorted(all_keys()))
    assert all(key.type and key.meaning and key.who for key in KEYS.values())


def test_every_protected_name_has_its_reason():
    assert set(RISKS) == set(PROTECTED)


def test_the_starting_file_says_the_defaults(tmp_path):
    file = tmp_path / "capkernel.toml"
    empty = parse(Source(file, b"")).said
    assert parse(Source(file, STARTING_FILE.encode())).said == empty
    # Its commented lines are entries as well, and say the defaults but for the examples.
    lines = [line.removeprefix("#") if line.startswith("#") and " = " in line else line for line in
             STARTING_FILE.splitlines()]  # fmt: skip
    uncommented = "\n".join(line for line in lines if not line.startswith(("unprotect", "secrets")))
    assert tomllib.loads(uncommented)
    parsed = parse(Source(file, uncommented.encode()))
    assert parsed.problems == ()
    assert parsed.said == empty
    assert set(parsed.stated) == set(all_keys()) - {"files.unprotect", "secrets"}
