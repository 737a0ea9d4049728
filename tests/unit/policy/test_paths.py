"""Which paths are classified and which protected, by their names."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest

from capkernel.policy import Files, Limits, PathRules, Policy, Sandbox
from capkernel.policy.decision import ALLOWED, Denied
from capkernel.policy.model import Viewer
from capkernel.policy.paths import below, originals


def rules(base: Path, *classified: str, roots: tuple[str, ...] = (".",), unprotect: tuple[str, ...] = ()) -> PathRules:
    files = Files(roots=roots, classified=classified, unprotect=unprotect)
    return PathRules(Policy("standard", files, Limits(), Sandbox(), base))


SECRET = """
.env .env.local .env.production prod.env .ENV .Env.Local config/.env .envs/.env secrets/x secrets secrets/a/b/c
SECRETS/x a/secrets/x server.pem SERVER.PEM a/b.key id_rsa id_rsa.pub id_ed25519 .ssh/config .ssh .aws/credentials
.gnupg/x credentials credentials.json Credentials.JSON .netrc .npmrc .pypirc .git-credentials x.kdbx x.p12 x.pfx
service-account.json service-account-prod.json token token.json api.token x.tfstate .docker/config.json .kube/config
.env~ .env.bak .env.swp ..env.swp #.env# .#.env .env.orig server.pem~ .server.pem.swp server.pem.bak id_rsa.old
.env.~1~ .env.save .env.bak2 .env___jb_tmp___ .ipynb_checkpoints/.env-checkpoint .env.bak~ secrets.bak/x secrets~/x
.ipynb_checkpoints/credentials-checkpoint.json x.pem/y .capkernel-0011 id_rsa/x a\nb/x.pem secrets/\nx
""".replace("\\n", "\n")
PLAIN = (
    "a.txt data/a.csv environment.yml envs/x.txt secretary.txt keyboard.py monkey.txt main.tokens.py pem.txt .gitignore"
)


@pytest.mark.parametrize("path", SECRET.replace("a\nb", "a|b").replace("/\nx", "/|x").split())
def test_secret_paths(tmp_path, path):
    assert rules(tmp_path).is_classified(f"{tmp_path}/{path.replace('|', chr(10))}")


@pytest.mark.parametrize("path", PLAIN.split())
def test_plain_paths(tmp_path, path):
    assert not rules(tmp_path).is_classified(f"{tmp_path}/{path}")


def test_names_of_other_composition(tmp_path):
    composed, decomposed = (unicodedata.normalize(form, "gehälter.csv") for form in ("NFC", "NFD"))
    for listed in (composed, decomposed):
        for asked in (composed, decomposed, composed.upper(), decomposed.upper()):
            assert rules(tmp_path, listed).is_classified(f"{tmp_path}/{asked}")


def test_negation_works_inside_one_list_and_never_against_the_defaults(tmp_path):
    found = rules(tmp_path, "data/*", "!data/public.csv", "!.env", "!*.pem")
    assert found.is_classified(f"{tmp_path}/data/x.csv")
    assert not found.is_classified(f"{tmp_path}/data/public.csv")
    assert found.is_classified(f"{tmp_path}/.env")
    assert found.is_classified(f"{tmp_path}/x.pem")


def test_negation_counts_for_the_spelling_it_names(tmp_path):
    found = rules(tmp_path, "*.csv", "!public.csv")
    assert not found.is_classified(f"{tmp_path}/public.csv")
    assert found.is_classified(f"{tmp_path}/PUBLIC.CSV")


def test_nothing_is_taken_back_below_a_classified_directory(tmp_path):
    found = rules(tmp_path, "private/", "!private/open.txt", "!open.txt")
    assert found.is_classified(f"{tmp_path}/private/open.txt")
    assert not found.is_classified(f"{tmp_path}/open.txt")


def test_a_directory_pattern_also_covers_a_file_of_that_name(tmp_path):
    assert rules(tmp_path, "vaulted/").is_classified(f"{tmp_path}/vaulted")


def test_patterns_with_a_slash_are_anchored(tmp_path):
    found = rules(tmp_path, "data/x.csv", "/top.csv", "./here.csv")
    assert found.is_classified(f"{tmp_path}/data/x.csv")
    assert not found.is_classified(f"{tmp_path}/sub/data/x.csv")
    assert found.is_classified(f"{tmp_path}/top.csv")
    assert not found.is_classified(f"{tmp_path}/sub/top.csv")
    assert found.is_classified(f"{tmp_path}/here.csv")


def test_other_roots_are_anchors_and_roots_below_the_policy_are_not(tmp_path):
    base, other = tmp_path / "base", tmp_path / "other"
    (base / "inner").mkdir(parents=True)
    other.mkdir()
    found = rules(base, "data/x.csv", roots=("inner", str(other)))
    assert found.is_classified(f"{base}/data/x.csv")
    assert found.is_classified(f"{other}/data/x.csv")
    assert not found.is_classified(f"{base}/inner/data/x.csv")
    assert found.is_classified(f"{tmp_path}/elsewhere/anything")  # under no anchor: nothing is known


def test_absolute_patterns_mean_that_path_with_links_resolved(tmp_path, monkeypatch):
    base, real = tmp_path / "base", tmp_path / "real[1]"
    base.mkdir()
    real.mkdir()
    (tmp_path / "link").symlink_to(real)
    monkeypatch.setenv("HOME", str(tmp_path))
    for pattern in (f"{tmp_path}/link/x.csv", "~/link/x.csv", f"{tmp_path}/link/*.csv"):
        found = rules(base, pattern, roots=(".", str(real)))
        assert found.is_classified(f"{real}/x.csv")
        assert not found.is_classified(f"{real}/y.txt")
    assert not rules(base, "~/link/x.csv", roots=(".", str(real))).is_classified(f"{base}/x.csv")


def test_a_pattern_that_leads_through_a_link_covers_the_real_place(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "data").symlink_to("real")
    found = rules(tmp_path, "data/*.csv", "!data/open.csv")
    assert found.is_classified(f"{tmp_path}/real/x.csv")
    assert not found.is_classified(f"{tmp_path}/real/open.csv")


@pytest.mark.parametrize(
    ("path", "entry"),
    [
        (".git/config", ".git"),
        (".GIT/x", ".git"),
        ("a/.vscode/settings.json", ".vscode"),
        ("book.ipynb", "*.ipynb"),
        ("x/Conftest.PY", "conftest.py"),
        ("a.pth/b", "*.pth"),
        ("git/config", None),
        (".gitignore", None),
        ("a.ipynb.txt", None),
    ],
)
def test_protected_paths(tmp_path, path, entry):
    assert rules(tmp_path).protected_by(f"{tmp_path}/{path}") == entry


def test_unprotect_takes_exactly_one_entry_away(tmp_path):
    found = rules(tmp_path, unprotect=("*.ipynb",))
    assert found.protected_by(f"{tmp_path}/a.ipynb") is None
    assert found.protected_by(f"{tmp_path}/.git/a.ipynb") == ".git"


def test_outside_of_the_roots_nothing_is_writable(tmp_path):
    assert rules(tmp_path).protected_by("/etc/x") is not None


def test_paths_are_shown_below_their_root(tmp_path):
    (tmp_path / "base").mkdir()
    other = tmp_path / "other"
    other.mkdir()
    found = rules(tmp_path / "base", roots=(".", str(other)))
    assert found.relative_to_root(f"{tmp_path}/base/data/x") == "data/x"
    assert found.relative_to_root(str(other)) == "."
    assert found.relative_to_root("/etc/passwd") == "(outside)"


def test_below_compares_whole_parts():
    assert below("/data/x", "/data") == "x"
    assert below("/data", "/data") == ""
    assert below("/data-private/x", "/data") is None
    assert below("/x", "/") == "x"


def test_originals_of_a_plain_name_are_none():
    assert list(originals("notes.txt")) == []
    assert ".env" in list(originals("..env.swp~"))


def test_decisions_have_no_truth_value():
    for decision in (ALLOWED, Denied("x")):
        with pytest.raises(TypeError, match="no truth value"):
            bool(decision)


# ── origins that need a paired page ──────────────────────────────────────────────────────────────────────────────────


def high(base: Path, *patterns: str, roots: tuple[str, ...] = (".",)) -> PathRules:
    return PathRules(Policy("standard", Files(roots=roots), Limits(), Sandbox(), base, viewer=Viewer(high=patterns)))


@pytest.mark.parametrize(
    ("pattern", "origin", "is_high"),
    [
        ("secrets/prod/**", "file:secrets/prod/key.txt", True),
        ("secrets/prod/**", "file:secrets/prod/a/b.txt", True),
        ("secrets/prod/**", "file:secrets/test/key.txt", False),
        ("secrets/prod/", "file:secrets/prod/key.txt", True),
        ("secrets/prod/", "file:SECRETS/Prod/key.txt", True),
        ("*.pem", "file:a/b/server.pem", True),
        ("*.pem", "file:a/b/server.pem.bak", True),  # an editor's copy of it
        ("*.pem", "file:a/b/server.txt", False),
        (".env", "file:.env", True),
        ("/data/x.csv", "file:data/x.csv", True),
        ("*", "cell:3", True),
        ("cell:*", "cell:3", True),
        ("cell:*", "file:.env", False),
        ("*.pem", "cell:3", False),
        ("*.pem", "file:(outside)", True),  # where it was is not known
    ],
)
def test_high_origins(tmp_path, pattern, origin, is_high):
    assert high(tmp_path, pattern).is_high(origin) is is_high
    assert not high(tmp_path).is_high(origin)


def test_a_high_path_is_found_in_whichever_root_the_file_was(tmp_path):
    for name in ("data/prod", "other/prod"):
        (tmp_path / name).mkdir(parents=True)
    found = high(tmp_path, "data/prod/", roots=("data", "other"))
    assert found.is_high("file:prod/key.txt"), "below the root `data` this is data/prod/key.txt"
    assert not found.is_high("file:test/key.txt")
    assert high(tmp_path, f"{tmp_path}/data/prod/", roots=("data",)).is_high("file:prod/key.txt")
    assert high(tmp_path, f"{tmp_path}/data/prod/", roots=(".",)).is_high("file:data/prod/key.txt")
    # Calling an origin high says nothing about what is a secret.
    assert not high(tmp_path, "data/").is_classified(f"{tmp_path}/data/prod/a.txt")
