"""Secrets: into the vault, through it, and out to the one sink there is here."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import stat

import msgspec
import pytest

from capkernel.api.errors import CapabilityDenied
from capkernel.broker.functions import NOTHING
from capkernel.policy import Policy, default_policy
from capkernel.wire import values
from capkernel.wire.plan import CodeKey, FreeName, Plan, PureFunction, ScopeSite, Span
from capkernel.wire.vault import FunctionBundle
from capkernel.wire.worker import Classify, FunctionRef, MapClassified, ZipClassified

SITE = ScopeSite("file_system", None, 1, Span(1, 0, 1, 1))

pytestmark = pytest.mark.usefixtures("opener")  # with the system call, and without it


def with_files(policy: Policy, **changes: object) -> Policy:
    files = msgspec.structs.replace(policy.files, **changes)
    return Policy(policy.profile, files, policy.limits, policy.sandbox, policy.base_dir)


@pytest.fixture
def scope(session):
    return session.open()


# ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_classified_read_goes_to_the_vault_and_only_a_number_comes_back(session, scope):
    handle = session.do(scope, "secrets/key.txt", "read_classified")
    assert len(handle) == 32
    assert int(handle, 16) >= 0
    assert session.vault.fills == [(handle, b"not-the-canary\n", "str", "file:secrets/key.txt")]
    other = session.do(scope, ".env", "read_classified_bytes")
    assert session.vault.fills[1] == (other, b"NAME=shop\n", "bytes", "file:.env")
    assert other != handle


def test_a_plain_file_may_be_read_as_a_secret(session, scope):
    handle = session.do(scope, "data/a.txt", "read_classified")
    assert session.vault.fills[0][0] == handle


def test_the_origin_does_not_depend_on_the_root_the_cell_chose(session):
    session.do(session.open("secrets"), "key.txt", "read_classified")
    assert session.vault.fills[0][3] == "file:secrets/key.txt"


def test_a_missing_secret_is_an_ordinary_error(session, scope):
    with pytest.raises(FileNotFoundError) as caught:
        session.do(scope, "secrets/none", "read_classified")
    assert caught.value.filename == "secrets/none"
    assert session.vault.fills == []


# ── writing ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def value(session, scope):
    """A secret the vault knows, and one that is poison there."""
    handle = session.do(scope, "secrets/key.txt", "read_classified")
    session.vault.content[handle] = b"the secret content"
    return handle


def test_the_name_is_taken_at_once_and_filled_later(session, scope, project, value):
    session.vault.gate = asyncio.Event()
    assert session.do(scope, "secrets/out/new.txt", "write_classified", secret=value) is None
    path = project / "secrets/out/new.txt"
    assert path.read_bytes() == b""
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    session.vault.gate.set()
    session.settle()
    assert path.read_bytes() == b"the secret content"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert session.vault.writes[0][0] == value
    assert session.vault.writes[0][1] == 0  # it had no name while it was filled
    assert os.listdir(path.parent) == ["new.txt"]


def test_the_content_also_arrives_where_files_cannot_be_nameless(session, scope, project, value, monkeypatch):
    from capkernel.broker import atomic

    real = os.open

    def refuse(path: object, flags: int, *rest: object, **more: object) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(95, "Operation not supported")
        return real(path, flags, *rest, **more)

    monkeypatch.setattr(atomic.os, "open", refuse)
    session.vault.gate = asyncio.Event()
    session.do(scope, ".env.out", "write_classified", secret=value)
    session.loop.run_until_complete(asyncio.sleep(0.2))
    [temporary] = [name for name in os.listdir(project) if name.startswith(".capkernel-")]
    listed = [name for _handle, name in session.do(scope, ".", "children")]
    assert temporary not in listed  # its end would tell when the value became known
    with pytest.raises(CapabilityDenied):
        session.do(scope, temporary, "read_bytes")
    session.vault.gate.set()
    session.settle()
    assert (project / ".env.out").read_bytes() == b"the secret content"
    assert session.vault.writes[0][1] == 1
    assert not [name for name in os.listdir(project) if name.startswith(".capkernel-")]


def test_poison_looks_like_success_and_leaves_the_reservation(session, scope, project, value):
    poison = session.do(scope, "secrets/key.txt", "read_classified")
    results = [
        session.do(scope, f"secrets/{name}", "write_classified", secret=handle)
        for name, handle in (("good", value), ("bad", poison))
    ]
    assert results == [None, None]
    session.settle()
    assert (project / "secrets/good").read_bytes() == b"the secret content"
    assert (project / "secrets/bad").read_bytes() == b""
    for name in ("good", "bad"):  # the cell may ask this, and it must not tell them apart
        assert session.do(scope, f"secrets/{name}", "exists") is True
        with pytest.raises(CapabilityDenied):
            session.do(scope, f"secrets/{name}", "size")


def test_new_means_new_or_written_by_this_session(session, scope, project, value):
    with pytest.raises(CapabilityDenied, match="this session did not write it"):
        session.do(scope, "secrets/key.txt", "write_classified", secret=value)
    assert (project / "secrets/key.txt").read_bytes() == b"not-the-canary\n"
    session.do(scope, "secrets/mine", "write_classified", secret=value)
    session.do(scope, "secrets/mine", "write_classified", secret=value)
    session.settle()
    session.vault.content[value] = b"second"
    session.do(scope, "secrets/mine", "write_classified", secret=value)
    session.settle()
    assert (project / "secrets/mine").read_bytes() == b"second"
    (project / "secrets/mine").unlink()
    (project / "secrets/mine").write_bytes(b"the person's own")
    with pytest.raises(CapabilityDenied, match="this session did not write it"):
        session.do(scope, "secrets/mine", "write_classified", secret=value)


def test_a_file_that_the_person_replaced_meanwhile_stays(session, scope, project, value):
    session.vault.gate = asyncio.Event()
    session.do(scope, "secrets/mine", "write_classified", secret=value)
    (project / "secrets/mine").unlink()
    (project / "secrets/mine").write_bytes(b"the person's own")
    session.vault.gate.set()
    session.settle()
    assert (project / "secrets/mine").read_bytes() == b"the person's own"
    assert sorted(os.listdir(project / "secrets")) == ["key.txt", "mine"]


def test_writes_to_one_name_land_in_the_order_of_the_calls(session, scope, project, value):
    second = session.do(scope, ".env", "read_classified")
    session.vault.content[second] = b"second"
    session.vault.slow[value] = 0.3  # the first value takes longer than the second
    for handle in (value, second):
        session.do(scope, "secrets/mine", "write_classified", secret=handle)
    session.settle()
    assert (project / "secrets/mine").read_bytes() == b"second"


@pytest.mark.parametrize("path", ["data/out.txt", "secretive/x", "plain", "env"])
def test_only_classified_paths_are_sinks(session, scope, project, value, path):
    with pytest.raises(CapabilityDenied, match="not classified"):
        session.do(scope, path, "write_classified", secret=value)
    session.settle()
    assert not (project / path).exists()
    assert session.vault.writes == []


def test_a_link_at_a_classified_name_is_no_way_out(session, scope, project, value):
    (project / "secrets" / "gone").symlink_to("../data/leak.txt")
    (project / "secrets" / "there").symlink_to("../data/a.txt")
    for path in ("secrets/gone", "secrets/there"):
        with pytest.raises(CapabilityDenied):
            session.do(scope, path, "write_classified", secret=value)
    session.settle()
    assert os.listdir(project / "data") == ["a.txt"]
    assert (project / "data/a.txt").read_bytes() == b"hello\n"


def test_the_sink_must_be_in_the_plan(start):
    session = start()
    session.cell(Plan(scopes=(SITE,)))
    scope = session.open()
    handle = session.do(scope, "secrets/key.txt", "read_classified")
    with pytest.raises(CapabilityDenied, match="plan of the running cell"):
        session.do(scope, "secrets/new", "write_classified", secret=handle)


def test_the_policy_can_forbid_and_widen(start, project):
    for mode, path, allowed in ((False, "secrets/new", False), (True, "secrets/key.txt", True)):
        session = start(with_files(default_policy(project), classified_write=mode))
        session.cell(Plan(scopes=(SITE,), sinks=("write_classified",)))
        scope = session.open()
        handle = session.do(scope, ".env", "read_classified")
        session.vault.content[handle] = b"replaced"
        if not allowed:
            with pytest.raises(CapabilityDenied, match="classified_write = false"):
                session.do(scope, path, "write_classified", secret=handle)
            continue
        session.do(scope, path, "write_classified", secret=handle)
        session.settle()
        assert (project / path).read_bytes() == b"replaced"


def test_made_up_secrets_are_refused_by_their_number_alone(session, scope, project):
    for handle in ("", "f" * 32, "F" * 32, "g" * 32, secrets.token_hex(16), "../x"):
        with pytest.raises(ValueError, match="no Classified value"):
            session.do(scope, "secrets/new", "write_classified", secret=handle)
    assert not (project / "secrets/new").exists()


def test_classified_writes_are_counted_per_call(session, scope, value, monkeypatch):
    from capkernel.broker import classified_files

    monkeypatch.setattr(classified_files, "MAX_WRITES_PER_CELL", 2)
    for number in range(2):
        session.do(scope, f"secrets/n{number}", "write_classified", secret=value)
    with pytest.raises(CapabilityDenied, match="at most 2"):
        session.do(scope, "secrets/n2", "write_classified", secret=value)
    session.cell()
    session.do(session.open(), "secrets/n2", "write_classified", secret=value)


def test_contents_never_reach_the_audit(session, scope, project, value):
    session.do(scope, "secrets/new", "write_classified", secret=value)
    session.settle()
    text = session.audit_file.read_text()
    assert "secret content" not in text
    assert "canary" not in text
    said = [(line["what"], line["decision"], line["who"]) for line in map(json.loads, text.splitlines())]
    assert ("files.write_classified", "allowed", "cell") in said
    assert ("files.write_classified", "done", "broker") in said


# ── posts ────────────────────────────────────────────────────────────────────────────────────────────────────────────


KEY = CodeKey(1, 1, "<lambda>", (1, 0, 1, 9))
HELPER = CodeKey(1, 2, "helper", (2, 0, 3, 9))
LOST = CodeKey(1, 3, "lost", (3, 0, 3, 9))
FUNCTION = PureFunction(KEY, "lambda", "<lambda>", "lambda s: helper(s)", (FreeName("helper", "function", "", HELPER),))
HELP = PureFunction(HELPER, "def", "helper", "def helper(s):\n    return s")
BROKEN = PureFunction(LOST, "lambda", "<lambda>", "lambda s: gone(s)", (FreeName("gone", "function", "", None),))


@pytest.fixture
def mapping(start):
    session = start()
    session.cell(Plan(scopes=(SITE,), pure=(FUNCTION, HELP, BROKEN), tables=("builtins.len",)))
    source = secrets.token_hex(16)
    session.broker.post(Classify(source, "a label"), b"blob")
    return session, source


def test_classify_puts_the_blob(mapping):
    session, source = mapping
    assert session.vault.puts == [(source, b"blob", "cell:1", "a label")]


def test_map_sends_the_checked_source_with_all_it_reaches(mapping):
    session, source = mapping
    new, other = secrets.token_hex(16), secrets.token_hex(16)
    session.broker.post(MapClassified(new, source, FunctionRef(KEY), True), b"captured")
    session.cell(Plan())  # a function of an earlier cell stays usable
    session.broker.post(MapClassified(other, new, FunctionRef(None, "builtins.len")), b"")
    assert session.vault.maps == [
        (new, source, FunctionBundle(KEY, "", (FUNCTION, HELP)), b"captured", True),
        (other, new, FunctionBundle(None, "builtins.len"), b"", False),
    ]


@pytest.mark.parametrize(
    "ref",
    [
        FunctionRef(),
        FunctionRef(LOST),
        FunctionRef(CodeKey(9, 1, "f", (1, 0, 1, 1))),
        FunctionRef(None, "os.system"),
        FunctionRef(KEY, "builtins.len"),
        FunctionRef(msgspec.structs.replace(KEY, line=2)),
    ],
)
def test_a_function_that_is_not_of_an_accepted_cell_makes_poison(mapping, ref):
    session, source = mapping
    new = secrets.token_hex(16)
    session.broker.post(MapClassified(new, source, ref), b"captured")
    assert session.vault.maps == []
    assert session.vault.spoils == [(new, "the function or the source is not of an accepted cell")]


def test_unknown_sources_make_poison(mapping):
    session, source = mapping
    mapped, zipped = secrets.token_hex(16), secrets.token_hex(16)
    session.broker.post(MapClassified(mapped, "f" * 32, FunctionRef(KEY)), b"")
    session.broker.post(ZipClassified(zipped, source, "f" * 32), b"")
    assert [new for new, _reason in session.vault.spoils] == [mapped, zipped]
    assert session.vault.maps == []
    assert session.vault.zips == []


def test_a_handle_is_accepted_once_and_only_when_it_is_one(mapping):
    session, source = mapping
    for new in (source, "", "0" * 31, "A" * 32, "0" * 32 + "\n", "x" * 32):
        session.broker.post(Classify(new), b"other")
        session.broker.post(ZipClassified(new, source, source), b"")
        session.broker.post(MapClassified(new, source, FunctionRef(KEY)), b"")
    assert len(session.vault.puts) == 1
    assert session.vault.maps == []
    assert session.vault.zips == []


def test_zip_of_known_values(mapping):
    session, source = mapping
    new = secrets.token_hex(16)
    session.broker.post(ZipClassified(new, source, source), b"")
    assert session.vault.zips == [(new, source, source)]


def test_posts_do_nothing_while_no_cell_runs_or_nobody_writes_them_down(mapping):
    session, source = mapping
    late, unwritten = secrets.token_hex(16), secrets.token_hex(16)
    session.end()
    session.broker.post(MapClassified(late, source, FunctionRef(KEY)), b"")
    session.cell()
    session.audit.close()
    session.broker.post(Classify(unwritten), b"blob")
    assert session.vault.maps == []
    assert [new for new, _reason in session.vault.spoils] == [late, unwritten]
    assert len(session.vault.puts) == 1


def test_a_vault_that_takes_no_more_stops_nothing(mapping):
    session, source = mapping
    scope = session.open()
    session.vault.full = True
    session.broker.post(MapClassified(secrets.token_hex(16), source, FunctionRef(KEY)), b"")
    session.broker.post(Classify(secrets.token_hex(16)), b"blob")
    with pytest.raises(CapabilityDenied, match="as many classified values"):
        session.do(scope, "secrets/key.txt", "read_classified")
    assert session.do(scope, "data/a.txt", "read_bytes") == b"hello\n"


def test_the_client_of_the_vault_fulfils_the_port(session, project):
    """What the port says of descriptors and captured data, asked of the real client without its processes."""
    from capkernel.vault.client import VaultClient

    def spawn(_fd: int) -> None:
        raise AssertionError("not started here")

    client = VaultClient(spawn_keeper=spawn, spawn_runner=spawn)
    with open(project / ".env", "rb") as file:
        client.fill("0" * 32, file.fileno(), "str", "file:.env")
        file.read()  # still open
    client.put("1" * 32, values.encode(1), "cell:1", "")
    client.map("2" * 32, "0" * 32, NOTHING, values.encode({}), False)
    client.zip("3" * 32, "0" * 32, "1" * 32)
    client.spoil("4" * 32, "why")
    assert client.origins("4" * 32) == frozenset()
    assert client.origins("3" * 32) == {"file:.env", "cell:1"}


def test_a_write_that_lands_meanwhile_does_not_show(session, scope, project, value):
    """Whether an earlier write succeeded must not be told by how later calls on the same name end."""
    for _ in range(60):
        session.do(scope, "secrets/mine", "write_classified", secret=value)
        assert session.do(scope, "secrets/mine", "exists") is True
        assert session.do(scope, "secrets/mine", "is_classified") is True
    session.settle()
    assert len(session.vault.writes) == 60
