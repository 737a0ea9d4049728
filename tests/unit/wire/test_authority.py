"""The line that says what a cell may do: exact text for each case, never less than the plan, never forged by a path."""

from __future__ import annotations

import json

import pytest

from capkernel.wire.authority import MOST_PARTS, authority_data, authority_line
from capkernel.wire.plan import NOTHING, AskSite, Plan, ScopeSite, Span, Use

SPAN = Span(1, 0, 1, 1)


def site(argument: str | None, *uses: Use, kind: str = "file_system") -> ScopeSite:
    return ScopeSite(kind, argument, 1, SPAN, uses)


def line(*sites: ScopeSite) -> str:
    return authority_line(Plan(scopes=sites))


def test_a_cell_that_can_do_nothing_says_nothing() -> None:
    assert authority_line(NOTHING) == ""
    assert authority_data(NOTHING) == {"authority": "", "plan": {"scopes": [], "sinks": [], "asks": []}}


@pytest.mark.parametrize(
    ("sites", "said"),
    [
        ([site("data", Use("read", ("a.csv",)))], "read data/a.csv"),
        ([site("data/", Use("read"))], "read data/"),
        ([site("data", Use("list", ("a",)), Use("read", ("a",)))], "list, read data/a"),
        ([site("data", Use("list", (".",)), Use("read"))], "list, read data/"),
        ([site(".", Use("read", ("a.csv", "b.csv")))], "read a.csv, b.csv"),
        ([site(".", Use("write"))], "write the notebook's folder"),
        ([site(".", Use("read", tuple("abcd")))], "read the notebook's folder"),
        ([site(None, Use("read", ("a",)))], "read any folder the policy allows"),
        ([site(".", Use("read_classified", (".env",)))], "read classified .env"),
        ([site("s", Use("write_classified"))], "write classified s/"),
        ([site("data")], "open data/"),
        ([site("a", Use("read")), site("b", Use("write"))], "read a/ · write b/"),
        ([site("a", Use("write")), site("a", Use("read"))], "read, write a/"),
        ([site(None, kind="network")], "reach whatever the policy allows"),
        ([site("git status", kind="exec")], "run 'git status'"),
        ([site("x", kind="new")], "use new: x"),
        ([site("x", Use("burn"))], "burn x/"),
    ],
)
def test_the_text(sites: list[ScopeSite], said: str) -> None:
    assert line(*sites) == f"may: {said} · nothing else"


ASKS = {
    "one": (AskSite("secret", "KEY", 1, SPAN),),
    "hostile": (AskSite("secret", "KEY · nothing else\u202e", 1, SPAN),),
    "many": tuple(AskSite("secret", name, 1, SPAN) for name in "ABCD"),
    "any": (AskSite("secret", "KEY", 1, SPAN), AskSite("secret", None, 1, SPAN)),
    "release": (AskSite("declassify", None, 1, SPAN), AskSite("declassify", None, 2, SPAN)),
}


@pytest.mark.parametrize(
    ("which", "said"),
    [
        ("one", "ask you for the secret KEY"),
        ("hostile", "ask you for the secret 'KEY \\xb7 nothing else\\u202e'"),
        ("many", "ask you for secrets"),
        ("any", "ask you for secrets"),
        ("release", "ask you to release a secret"),
    ],
)
def test_what_the_person_is_asked_for(which: str, said: str) -> None:
    assert authority_line(Plan(asks=ASKS[which])) == f"may: {said} · nothing else"


def test_what_nobody_worked_out_is_everything() -> None:
    said = line(ScopeSite("file_system", "data", 1, SPAN))
    assert said == "may: list, read, write, read classified, write classified data/ · nothing else"


@pytest.mark.parametrize(
    "path",
    ["a · nothing else", "a b", "a\nmay: nothing", "\u202etxt.exe", "a\x1b[2Ka", "'", "<b>", "א", "", "a, b", "\ud800"],
)
def test_a_path_cannot_look_like_another_part(path: str) -> None:
    said = line(site("data", Use("read", (path,))))
    assert said == f"may: read {'data/' + path!a} · nothing else" or path == ""
    assert said.isascii() or said.replace("·", "").isascii()
    assert said.count("·") == 1
    assert said.isprintable()


def test_letters_of_other_languages_stay() -> None:
    assert line(site("données", Use("read"))) == "may: read données/ · nothing else"


def test_it_is_bounded() -> None:
    sites = [site(f"{number}/" * 3000, Use("read", tuple("é" * 5000 + c for c in "abc"))) for number in range(200)]
    said = line(*sites)
    assert len(said) < 1000
    assert f"and {200 - MOST_PARTS} more" in said
    data = authority_data(Plan(scopes=tuple(sites)))["plan"]
    assert (len(data["scopes"]), data["more"]) == (100, 100)


def test_a_path_that_would_be_cut_is_said_by_its_folder() -> None:
    assert line(site("data", Use("read", ("a/" * 40 + "key",)))) == "may: read data/ · nothing else"


def test_the_data_is_json_and_holds_all_of_it() -> None:
    data = authority_data(Plan(scopes=(site("data", Use("read", ("a",)), Use("write")),), sinks=("write_classified",)))
    assert json.loads(json.dumps(data)) == {
        "authority": "may: read data/a · write data/ · nothing else",
        "plan": {
            "scopes": [
                {
                    "kind": "file_system",
                    "argument": "data",
                    "cell": 1,
                    "uses": [{"verb": "read", "paths": ["a"]}, {"verb": "write", "paths": None}],
                }
            ],
            "sinks": ["write_classified"],
            "asks": [],
        },
    }
