"""Tokens and the cookies made from them."""

from __future__ import annotations

import pytest

import tidegate as tg
from tidegate.errors import SettingsError
from tidegate.settings import resolve, shown_setting
from tidegate.web.auth import SESSION_SECONDS, Tokens, cookie_name, tokens_of
from tidegate.web.guard import is_loopback

OPERATOR, READER = "o" * 16, "r" * 16
BOTH = Tokens(OPERATOR, READER)


@pytest.mark.parametrize(
    ("tokens", "given", "role"),
    [
        (BOTH, OPERATOR, "operator"),
        (BOTH, READER, "read"),
        (BOTH, "", None),
        (BOTH, "o" * 15, None),
        (BOTH, "o" * 17, None),
        (BOTH, "\ud800", None),
        (Tokens(read=READER), READER, "read"),
        (Tokens(read=READER), "", None),
        (Tokens(), "", None),
    ],
)
def test_what_a_token_allows(tokens: Tokens, given: str, role: str | None) -> None:
    assert tokens.role_of(given) == role


def test_a_session_lasts_its_time_and_no_longer() -> None:
    cookie = BOTH.session("operator", now=1000.0)
    assert BOTH.role_of_session(cookie, now=1000.0 + SESSION_SECONDS) == "operator"
    assert BOTH.role_of_session(cookie, now=1002.0 + SESSION_SECONDS) is None


def test_a_session_ends_with_its_token() -> None:
    cookie = BOTH.session("operator")
    assert Tokens(OPERATOR, "x" * 16).role_of_session(cookie) == "operator", "the other token does not matter"
    assert Tokens("x" * 16, READER).role_of_session(cookie) is None
    assert Tokens(None, READER).role_of_session(cookie) is None


@pytest.mark.parametrize("cookie", ["", ".", "..", "operator", "operator.1.", "operator.²." + "0" * 64, "none.1.x"])
def test_nonsense_is_no_session(cookie: str) -> None:
    assert BOTH.role_of_session(cookie, now=0.0) is None
    assert Tokens().role_of_session(cookie, now=0.0) is None


@pytest.mark.parametrize("token", ["short", "with a space in the middle", "übergroß-und-lang-genug", "x" * 15])
def test_a_token_that_could_be_guessed_or_not_be_sent_is_refused(token: str) -> None:
    with pytest.raises(SettingsError, match="the read_token has fewer than 16") as refused:
        tokens_of(OPERATOR, token)
    assert token not in str(refused.value)


def test_the_two_must_differ() -> None:
    with pytest.raises(SettingsError, match="are the same"):
        tokens_of(OPERATOR, OPERATOR)


def test_tokens_are_settings_that_may_be_secrets_and_are_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_TOKEN", READER)
    monkeypatch.setenv("TIDEGATE_TOKEN", OPERATOR)
    resolved = resolve({"read_token": tg.secret("env:SOME_TOKEN")})
    tokens = tokens_of(resolved.values.token, resolved.values.read_token)

    assert tokens.role_of(OPERATOR) == "operator"
    assert tokens.role_of(READER) == "read"
    shown = [repr(tokens), repr(resolved), str(resolved.values)]
    shown += [str(shown_setting(name, getattr(resolved.values, name))) for name in ("token", "read_token")]
    assert not any(OPERATOR in text or READER in text for text in shown)
    with pytest.raises(SettingsError, match=r"setting token=None|setting token=7 "):
        resolve({"token": 7})


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("localhost:8642", "tidegate_8642"),
        ("[::1]:80", "tidegate_80"),
        ("example.com", "tidegate"),
        ("[::1]", "tidegate"),
        ("", "tidegate"),
    ],
)
def test_servers_on_several_ports_have_cookies_of_their_own(host: str, name: str) -> None:
    assert cookie_name(host) == name


@pytest.mark.parametrize(
    ("host", "is_here"),
    [
        ("localhost", True),
        ("localhost.", True),
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("0.0.0.0", False),  # noqa: S104  # a name that is judged, not bound
        ("::", False),
        ("", False),
        ("example.com", False),
        ("localhost.example.com", False),
    ],
)
def test_which_names_lead_to_this_machine_alone(host: str, is_here: bool) -> None:
    assert is_loopback(host) == is_here
