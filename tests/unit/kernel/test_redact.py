"""What records mask. Every kind that docs/audit.md names, and ordinary text that stays."""

from __future__ import annotations

import time

import pytest

from capkernel.kernel.redact import MASK, redacted

# Made up; put together here so that no scanner takes this file for a leak.
AWS = "AKIA" + "QX7ZLM2PVN4KD8WR"
GITHUB = "ghp_" + "a8Kd02LmQp47Zx91BvTyUw35"
OPENAI = "sk-" + "proj-a8Kd02LmQp47Zx91"
JWT = "eyJhbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiIxMjM0In0" + ".c2lnbmF0dXJl"
PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nqqq\n-----END RSA PRIVATE KEY-----"
HEX = "9f86d081884c7d659a2feaa0c55ad015"
BASE64 = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYq9zEXAMPLE"


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        (f"key = {AWS}", AWS),
        (f"print('{GITHUB}')", GITHUB),
        (f"client({OPENAI!r})", OPENAI),
        (f"x = '{JWT}'", JWT),
        (f"k = '''{PEM}'''", "MIIEow"),
        ("-----BEGIN PRIVATE KEY-----\nMIIEow\nnever ends", "MIIEow"),
        (f"digest {HEX} here", HEX),
        (f"s = b'{BASE64}'", BASE64[22:]),
        ("Authorization: Bearer hunter2hunter2", "hunter2"),
        ("{'Authorization': 'Basic dXNlcjpwYXNz'}", "dXNlcjpwYXNz"),
        ("password = 'hunter2'", "hunter2"),
        ("db_password: str = 'hunter2'", "hunter2"),
        ("PASSWORD='it''s hunter2'", "hunter2"),
        ("password = ('hun'\n   'ter2')", "ter2"),
        ('password = """first\nhunter2"""', "hunter2"),
        ("password = r'hunter2", "hunter2"),
        ("connect(host, password='hunter2', port=1)", "hunter2"),
        ('{"user": "a", "api_key": "hunter2"}', "hunter2"),
        ("config['token'] = 'hunter2'", "hunter2"),
        ("set('secret', 'hunter2')", "hunter2"),
        ("if password == 'hunter2':", "hunter2"),
        ("password: hunter2", "hunter2"),
        ("MY_SECRET_VALUE=hunter2", "hunter2"),
        ("https://ann:hunter2@example.org/x", "hunter2"),
        ("postgresql://ann:hunter2@localhost:5432/db", "hunter2"),
        ("https://example.org/x?sig=hunter2&b=1", "hunter2"),
        ("https://example.org/x#hunter2", "hunter2"),
    ],
)
def test_it_is_masked(text, hidden):
    assert hidden in text
    after = redacted(text)
    assert hidden not in after
    assert MASK in after


@pytest.mark.parametrize(
    "text",
    [
        "import numpy as np\nx = np.arange(10).reshape(2, 5)\nprint(x.sum())",
        "def test_the_kernel_that_was_killed_is_started_again_later() -> None: ...",
        "token = next(tokens)",
        "password = getpass_replacement()",
        "def login(password: str, token: bytes) -> None:",
        "secret = None",
        "key = env.map(lambda text: text.split('=')[1])",
        "https://docs.python.org/3/library/re.html",
        "Classified[str](***)",
        "0.12345678901234567890123456789 12345678901234567890123456789012345",
        "12345678901234567890123456789012",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        "=" * 80,
        "with request_file_system('data') as fs:\n    text = fs.access('a.txt').read()",
        "",
    ],
)
def test_ordinary_text_stays(text):
    assert redacted(text) == text


def test_twice_is_the_same_as_once():
    text = f"password = 'hunter2'; key = {AWS}\nhttps://ann:x@example.org/?q=1\n{PEM}\n{BASE64}"
    assert redacted(redacted(text)) == redacted(text)


@pytest.mark.parametrize(
    "piece",
    ["a", "password", "password=", "password: a ", "=", "'", '"""', "-----BEGIN A", "http://", "a://a@", "\\",
     "Bearer ", "+/", " (", "eyJ"],
)  # fmt: skip
def test_a_text_made_to_be_slow_ends(piece):
    """No time is asserted: what is quadratic here would run for hours."""
    text = piece * (2_000_000 // len(piece))
    begun = time.monotonic()
    assert redacted(text) is not None
    print(f"{time.monotonic() - begun:.1f} s")
