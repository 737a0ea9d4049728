"""policy ∩ plan ∩ now, verb by verb: a worker that asks for more than the plan lists for a scope is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from capkernel.api.errors import CapabilityDenied
from capkernel.wire.plan import VERB_OF_METHOD, VERBS, Plan, ScopeSite, Span, Use

from .conftest import Session, Start, plan

SPAN = Span(1, 0, 1, 1)


def site(argument: str | None, *uses: Use) -> ScopeSite:
    return ScopeSite("file_system", argument, 1, SPAN, uses)


def uses(*verbs: str, paths: tuple[str, ...] | None = None) -> tuple[Use, ...]:
    return tuple(Use(verb, paths) for verb in verbs)


_PATHS = {
    "children": "data", "walk": "data", "files": "data", "read_many": "data", "mkdir": "made",
    "create": "data/new.txt", "may_create": "data/newer.txt", "delete": "data/g.txt",
}  # fmt: skip


def do(session: Session, scope: str, method: str, path: str = "data/f.txt") -> None:
    if method == "write_classified":
        secret = session.do(scope, "data/f.txt", "read_classified")
        session.do(scope, "secrets/new", method, secret=secret)
    else:
        session.do(scope, path, method, b"x" if method in ("write", "append") else b"")


@pytest.fixture
def asking(start: Start, project: Path) -> Session:
    (project / "data").mkdir(exist_ok=True)
    (project / "data" / "f.txt").write_text("text")
    (project / "data" / "g.txt").write_text("text")
    return start()


def test_every_method_of_the_wire_has_a_verb(asking: Session) -> None:
    known = {
        *asking.broker._invocations._methods, "children", "walk", "open_read", "read_many", "read_classified",
        "read_classified_bytes", "write_classified",
    }  # fmt: skip
    assert known == VERB_OF_METHOD.keys()
    assert set(VERB_OF_METHOD.values()) == set(VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_what_the_plan_lists_works_and_nothing_else_does(asking: Session, verb: str) -> None:
    """The same lying worker, asking for everything: with a plan that lists a verb it gets it, without it does not."""
    methods = [method for method, needs in VERB_OF_METHOD.items() if needs == verb]
    for method in methods:
        listed = uses(verb, "read_classified") if verb == "write_classified" else uses(verb)
        asking.cell(Plan(scopes=(site(".", *listed),), sinks=("write_classified",)))
        path = _PATHS.get(method, "data/f.txt")
        do(asking, asking.open(), method, path)
        others = tuple(other for other in VERBS if other != verb)
        asking.cell(Plan(scopes=(site(".", *uses(*others)),), sinks=("write_classified",)))
        with pytest.raises(CapabilityDenied, match="does not list " + verb.replace("_", " ")):
            do(asking, asking.open(), method, path)
        last = json.loads(asking.audit_file.read_text().splitlines()[-1])
        assert (last["what"], last["decision"]) == (f"files.{method}", "denied")


def test_literal_paths_bind(asking: Session, project: Path) -> None:
    asking.cell(Plan(scopes=(site("data", Use("read", ("f.txt",)), Use("list")),)))
    scope = asking.open("data")
    assert asking.do(scope, "./f.txt", "read_bytes") == b"text"
    with pytest.raises(CapabilityDenied, match="read for this path"):
        asking.do(scope, "g.txt", "read_bytes")
    (project / "data" / "x").mkdir()
    with pytest.raises(CapabilityDenied, match="read for this path"):
        asking.do(scope, "x/../f.txt", "read_bytes")  # the same file, but not the path that was shown
    assert asking.do(scope, "g.txt", "exists") is True


def test_uses_belong_to_their_own_root(asking: Session, project: Path) -> None:
    (project / "out").mkdir()
    both = Plan(scopes=(site("data", *uses("read")), site("out", *uses("write"))))
    asking.cell(both)
    data, out = asking.open("data"), asking.open("out")
    assert asking.do(data, "f.txt", "read_bytes") == b"text"
    asking.do(out, "f.txt", "write", b"new")
    with pytest.raises(CapabilityDenied):
        asking.do(data, "f.txt", "write", b"new")
    with pytest.raises(CapabilityDenied):
        asking.do(out, "f.txt", "read_bytes")
    assert (project / "data" / "f.txt").read_text() == "text"


def test_a_computed_root_counts_for_every_root(asking: Session) -> None:
    asking.cell(Plan(scopes=(site(None, *uses("read")), site("data", *uses("list")))))
    scope = asking.open("data")
    assert asking.do(scope, "f.txt", "read_bytes") == b"text"
    assert asking.do(scope, "f.txt", "size") == 4
    with pytest.raises(CapabilityDenied):
        asking.do(scope, "f.txt", "write", b"")


def test_entries_of_a_listing_are_bound_too(asking: Session) -> None:
    from capkernel.wire.worker import Invoke

    asking.cell(Plan(scopes=(site("data", *uses("list")),)))
    found = asking.result(Invoke(asking.access(asking.open("data"), "."), "children"))[0]
    handle = next(handle for handle, name in found if name == "f.txt")
    with pytest.raises(CapabilityDenied):
        asking.result(Invoke(handle, "read_bytes"))


def test_what_nobody_worked_out_is_left_to_the_policy(asking: Session) -> None:
    asking.cell(plan("data"))
    assert asking.do(asking.open("data"), "f.txt", "read_bytes") == b"text"


def test_the_authority_of_every_cell_is_in_the_audit(asking: Session) -> None:
    asking.cell(Plan(scopes=(site("data", Use("read", ("f.txt",))),)))
    asking.cell(Plan())
    entries = [json.loads(line) for line in asking.audit_file.read_text().splitlines()]
    cells = [(entry["cell"], entry.get("authority")) for entry in entries if entry["what"] == "cell"]
    assert cells == [(1, "may: read data/f.txt · nothing else"), (2, None)]


def test_a_refused_cell_is_in_the_audit_with_its_codes(asking: Session) -> None:
    asking.broker.refuse_cell(7, ("ambient-authority", "purity"))
    last = json.loads(asking.audit_file.read_text().splitlines()[-1])
    assert (last["what"], last["decision"], last["cell"]) == ("cell", "denied", 7)
    assert last["reason"] == "ambient-authority, purity"
