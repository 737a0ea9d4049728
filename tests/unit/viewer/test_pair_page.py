"""The pairing page's document: what is put into it stays text."""

from __future__ import annotations

from capkernel.viewer.jupyter import pair_page


def test_what_is_put_in_stays_text() -> None:
    hostile = "</script><script>alert(1)</script>"
    document = pair_page.document("n0nce", hostile, hostile, hostile)
    assert document.count("<script") == 1
    assert document.count("</script>") == 1
    assert "{" + "nonce}" not in document
    assert "&lt;/script&gt;" in document
    for left in ("{xsrf}", "{address}", "{problem}", "{hidden}"):
        assert left not in document


def test_without_a_code_there_is_no_form_to_fill() -> None:
    assert 'autocomplete="off" hidden>' in pair_page.document("n", "x", "/", "In two minutes.")
    assert "hidden>" not in pair_page.document("n", "x", "/")


def test_its_policy_lets_nothing_load_and_nobody_frame_it() -> None:
    policy = pair_page.policy("n0nce")
    for part in ("default-src 'none'", "script-src 'nonce-n0nce'", "frame-ancestors 'none'", "form-action 'none'"):
        assert part in policy
    assert "unsafe" not in policy
