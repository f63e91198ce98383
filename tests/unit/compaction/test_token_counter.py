"""Tokens: made once, kept as hashes, revoked while a server runs, written by several processes at once."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from onefold.server.security.tokens import SCOPES, Principal, Tokens, TokensError, digest_of, link
from tests.conftest import NOON, StoppedClock
from tests.support.command_line import clean, run

HOUR = 3600.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config" / "onefold" / "tokens.json"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# ---------------------------------------------------------------------- made, found, revoked


def test_a_token_is_found_by_itself_and_by_nothing_else(path: Path) -> None:
    tokens = Tokens(path)
    secret, made = tokens.new("ci", ["compact", "read", "read"])

    found = tokens.find(secret)

    assert found is not None
    assert found.who == Principal("ci", frozenset({"read", "compact"})) == made.who
    assert tokens.find(secret[:-1]) is None
    assert tokens.find(secret + "x") is None
    assert tokens.find("") is None
    assert tokens.find("\ud800") is None
    assert tokens.find(made.digest) is None, "who reads the file has no token"


def test_only_a_hash_of_a_token_is_kept(path: Path) -> None:
    secret, made = Tokens(path).new("ci", ["read"])

    kept = path.read_text()

    assert secret not in kept
    assert secret.removeprefix("onefold_") not in kept
    assert made.digest in kept
    assert digest_of(secret) == made.digest


def test_no_two_tokens_are_alike_and_each_is_256_bits_long(path: Path) -> None:
    tokens = Tokens(path)

    secrets = {tokens.new(f"t{n}", ["read"])[0] for n in range(5)}

    assert len(secrets) == 5
    assert all(len(s.removeprefix("onefold_")) == 43 for s in secrets)


def test_admin_may_everything_and_every_other_scope_only_itself() -> None:
    assert all(Principal("a", frozenset({"admin"})).may(scope) for scope in SCOPES)
    assert [s for s in SCOPES if Principal("a", frozenset({"write"})).may(s)] == ["write"]


def test_a_name_is_given_once_and_is_one(path: Path) -> None:
    tokens = Tokens(path)
    tokens.new("ci", ["read"])

    with pytest.raises(TokensError, match="there is a token 'ci' already; `onefold token revoke ci`"):
        tokens.new("ci", ["read"])
    for name in ("", "a b", "a:b", "x" * 65, "-x", "a\n"):
        with pytest.raises(TokensError, match="cannot be a token's name"):
            tokens.new(name, ["read"])
    for scopes in ([], ["root"], ["read", "*"]):
        with pytest.raises(TokensError, match="is not a scope; scopes are: read, write, agents, compact, admin"):
            tokens.new("other", scopes)
    assert [t.name for t in tokens.known()] == ["ci"]


def test_a_running_server_notices_a_revoked_and_an_added_token_at_once(path: Path) -> None:
    server, elsewhere = Tokens(path), Tokens(path)
    old, token = server.new("old", ["read"])
    found = server.find(old)
    assert found is not None

    elsewhere.revoke("old")
    new, _ = elsewhere.new("new", ["read"])

    assert server.find(old) is None
    assert not server.counts(token)
    assert server.find(new) is not None


def test_a_token_that_is_not_there_cannot_be_revoked(path: Path) -> None:
    with pytest.raises(TokensError, match=r"there is no token 'ci' in .*tokens\.json"):
        Tokens(path).revoke("ci")


def test_a_token_ends_with_its_time(path: Path, clock: StoppedClock) -> None:
    tokens = Tokens(path, clock=clock)
    secret, token = tokens.new("ci", ["read"], expires=60)

    clock.advance(59)
    assert tokens.find(secret) is not None
    assert tokens.seconds_left(token) == 1

    clock.advance(1)
    assert tokens.find(secret) is None
    assert not tokens.counts(token)
    with pytest.raises(TokensError, match="would expire before it is made"):
        tokens.new("past", ["read"], expires=-1)


def test_a_token_that_lost_a_scope_no_longer_counts_for_what_is_open(path: Path) -> None:
    tokens = Tokens(path)
    secret, token = tokens.new("ci", ["read", "write"])

    path.write_text(path.read_text().replace('"read","write"', '"write"'))

    assert not tokens.counts(token)
    found = tokens.find(secret)
    assert found is not None
    assert found.scopes == ("write",)


# ---------------------------------------------------------------------- the first start


def test_the_first_start_makes_one_token_for_everything_and_the_second_makes_none(path: Path) -> None:
    secret = Tokens(path).first()

    assert secret is not None
    assert Tokens(path).first() is None
    found = Tokens(path).find(secret)
    assert found is not None
    assert found.scopes == ("admin",)
    assert link("http://127.0.0.1:8642", secret) == f"http://127.0.0.1:8642/?token={secret}"


def test_a_server_with_a_token_from_outside_makes_none(path: Path, tmp_path: Path) -> None:
    assert Tokens(path, environ={"ONEFOLD_TOKEN": "x" * 40}).first() is None
    assert Tokens(None, environ={"ONEFOLD_TOKEN": "x" * 40}).first() is None
    assert not path.exists()


# ---------------------------------------------------------------------- the file


def test_the_file_and_its_folder_are_for_their_owner_alone(path: Path) -> None:
    before = os.umask(0)
    try:
        Tokens(path).first()
    finally:
        os.umask(before)

    assert mode(path) == 0o600
    assert mode(path.parent) == 0o700
    assert mode(path.with_name("tokens.json.lock")) == 0o600


@pytest.mark.parametrize("open_to", [0o640, 0o604, 0o660, 0o602])
def test_a_file_that_others_can_reach_is_refused(path: Path, open_to: int) -> None:
    tokens = Tokens(path)
    secret = tokens.first()
    assert secret is not None
    path.chmod(open_to)

    for use in (lambda: tokens.find(secret), lambda: Tokens(path).known(), lambda: tokens.new("more", ["read"])):
        with pytest.raises(TokensError, match=r"can be reached by other users .* `chmod 600 "):
            use()

    path.chmod(0o600)
    assert tokens.find(secret) is not None


def test_a_folder_in_which_others_can_replace_the_file_is_refused(path: Path) -> None:
    tokens = Tokens(path)
    tokens.first()
    path.parent.chmod(0o777)

    with pytest.raises(TokensError, match=r"other users can replace files in .* `chmod 700 "):
        Tokens(path).known()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_is_refused(path: Path) -> None:
    Tokens(path).first()
    os.chown(path, 12345, -1)

    with pytest.raises(TokensError, match="belongs to another user"):
        Tokens(path).known()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"version": 1}',
        '{"version": 1, "tokens": [7]}',
        '{"version": 1, "tokens": [{"name": "a", "digest": "b", "scopes": ["read"], "expires_at": "never"}]}',
        '{"version": 1, "tokens": [{"name": "a", "digest": "b", "scopes": ["all"]}]}',
        '{"version": 2, "tokens": []}',
        "\udcff",
    ],
)
def test_a_damaged_file_lets_nobody_in_and_is_not_written_over(path: Path, text: str) -> None:
    tokens = Tokens(path)
    secret = tokens.first()
    assert secret is not None
    damaged = text.encode("utf-8", "surrogateescape")
    path.write_bytes(damaged)

    for use in (lambda: tokens.find(secret), tokens.first, lambda: tokens.new("more", ["read"])):
        with pytest.raises(TokensError):
            use()

    assert path.read_bytes() == damaged


def test_what_a_killed_writer_left_behind_is_in_nobodys_way(path: Path) -> None:
    tokens = Tokens(path)
    tokens.first()
    beside = path.with_name("tokens.json.new")
    beside.write_text('{"version": 1, "tok')
    beside.chmod(0o644)

    secret, _ = tokens.new("ci", ["read"])

    assert tokens.find(secret) is not None
    assert mode(path) == 0o600
    assert sorted(p.name for p in path.parent.iterdir()) == ["tokens.json", "tokens.json.lock"]


_CHILD = """
import sys
from onefold.server.security.tokens import Tokens
tokens = Tokens(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
print("first" if tokens.first() else "not the first")
for n in range(5):
    tokens.new(f"{sys.argv[2]}-{n}", ["read"])
    tokens.new("passing-" + sys.argv[2], ["read"])
    tokens.revoke("passing-" + sys.argv[2])
"""


def test_processes_that_write_at_once_lose_nothing_and_one_of_them_is_the_first(path: Path) -> None:
    def start(name: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", _CHILD, str(path), name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    children = [start(name) for name in "abcd"]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    said = [child.communicate(timeout=60)[0] for child in children]

    assert [child.returncode for child in children] == [0] * 4
    assert sorted(said) == ["first\n", *["not the first\n"] * 3]
    assert {t.name for t in Tokens(path).known()} == {"first", *(f"{c}-{n}" for c in "abcd" for n in range(5))}


# ---------------------------------------------------------------------- last used


def due(tokens: Tokens) -> bool:
    return tokens.unsaved


def test_the_last_use_is_written_once_an_hour(path: Path, clock: StoppedClock) -> None:
    tokens = Tokens(path, clock=clock)
    secret, _ = tokens.new("ci", ["read"])

    tokens.find(secret)
    assert due(tokens)
    tokens.save_uses()
    assert Tokens(path).known()[0].last_used == NOON
    before = path.stat()

    clock.advance(HOUR - 1)
    tokens.find(secret)
    assert not due(tokens)
    assert path.stat() == before

    clock.advance(1)
    tokens.find(secret)
    assert due(tokens)
    tokens.save_uses()
    assert Tokens(path).known()[0].last_used == NOON + HOUR


def test_a_use_brings_back_no_token_that_was_revoked_meanwhile(path: Path) -> None:
    tokens = Tokens(path)
    secret, _ = tokens.new("ci", ["read"])
    tokens.find(secret)

    Tokens(path).revoke("ci")
    tokens.save_uses()

    assert tokens.known() == ()


# ---------------------------------------------------------------------- containers


def test_the_environment_gives_one_token_for_everything() -> None:
    tokens = Tokens(None, environ={"ONEFOLD_TOKEN": "s3cret-that-is-long-enough"})

    found = tokens.find("s3cret-that-is-long-enough")

    assert found is not None
    assert (found.name, found.scopes) == ("environment", ("admin",))
    assert not tokens.unsaved
    with pytest.raises(TokensError, match="cannot be changed here"):
        tokens.new("more", ["read"])
    for weak in ("short", "with spaces in the middle of it", "semicolon;semicolon;semicolon"):
        with pytest.raises(TokensError, match="ONEFOLD_TOKEN has no token that is safe"):
            Tokens(None, environ={"ONEFOLD_TOKEN": weak})


def test_a_file_gives_tokens_one_a_line_and_is_read_again_when_it_changes(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(f"# for the dashboards\nboard:read,compact:{'b' * 40}\n\n{'a' * 40}\n")
    tokens = Tokens(None, token_file=file)

    board, bare = tokens.find("b" * 40), tokens.find("a" * 40)
    assert board is not None
    assert bare is not None
    assert (board.name, board.scopes) == ("board", ("read", "compact"))
    assert (bare.name, bare.scopes) == ("line-4", ("admin",))

    replacement = tmp_path / "rotated"
    replacement.write_text("c" * 40)
    replacement.replace(file)
    assert tokens.find("b" * 40) is None
    assert tokens.find("c" * 40) is not None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "has no token in it"),
        ("short", "line 1 of the token file .* 20 characters or more"),
        ("a:read:" + "x" * 30 + "\na:read:" + "y" * 30, "line 2 .* a name of its own"),
        ("a:all:" + "x" * 30, "'all' is not a scope"),
        ("a:read:b:" + "x" * 30, "line 1"),
    ],
)
def test_a_token_file_that_makes_no_sense_is_refused_without_its_content(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "secret"
    file.write_text(text)

    with pytest.raises(TokensError, match=words) as refused:
        Tokens(None, token_file=file).known()

    assert "xxxx" not in str(refused.value)


def test_a_token_file_that_is_missing_is_an_error_and_not_a_server_without_tokens(tmp_path: Path) -> None:
    with pytest.raises(TokensError, match="there is no token file"):
        Tokens(None, token_file=tmp_path / "nowhere").known()


# ---------------------------------------------------------------------- the command


def test_a_token_is_made_listed_and_revoked_on_the_command_line(tmp_path: Path) -> None:
    made = run(tmp_path, "token", "new", "ci", "--scope", "read", "--scope", "compact", "--expires", "30d", "--json")
    shown = json.loads(made.stdout)
    kept = Tokens(tmp_path / ".config/onefold/tokens.json")

    assert made.returncode == 0
    assert shown["link"] == f"http://127.0.0.1:8642/?token={shown['token']}"
    assert shown["expires_at"] - shown["created_at"] == 30 * 86_400
    found = kept.find(shown["token"])
    assert found is not None
    assert found.scopes == ("read", "compact")

    listed = run(tmp_path, "token", "list", "--json")
    assert [row["name"] for row in json.loads(listed.stdout)] == ["ci"]
    assert shown["token"] not in listed.stdout + run(tmp_path, "token", "list").stdout

    assert run(tmp_path, "token", "revoke", "ci").stdout == "token ci is revoked\n"
    assert kept.find(shown["token"]) is None
    assert run(tmp_path, "token", "revoke", "ci").returncode == 1


def test_a_person_sees_the_token_and_its_link_once(tmp_path: Path) -> None:
    made = run(tmp_path, "token", "new", "phone", "--tokens", tmp_path / "here.json", ONEFOLD_URL="https://x.example")

    head, secret, in_browser = made.stdout.splitlines()

    assert head == "token phone, for read; it is shown this once:"
    assert in_browser == f"in a browser: https://x.example/?token={secret}"
    assert Tokens(tmp_path / "here.json").find(secret) is not None
    listed = run(tmp_path, "token", "list", "--tokens", tmp_path / "here.json").stdout
    assert "phone" in listed
    assert "never" in listed
    assert secret not in listed


def test_the_tokens_lie_beside_the_config_file(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("")

    run(tmp_path, "token", "new", "a", ONEFOLD_CONFIG=str(tmp_path / "mine.toml"))
    run(tmp_path, "token", "new", "b", XDG_CONFIG_HOME=str(tmp_path / "xdg"))

    assert [t.name for t in Tokens(tmp_path / "tokens.json").known()] == ["a"]
    assert [t.name for t in Tokens(tmp_path / "xdg/onefold/tokens.json").known()] == ["b"]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["new", "ci", "--scope", "everything"], 1, "is not a scope"),
        (["new", "a b"], 1, "cannot be a token's name"),
        (["new", "ci", "--expires", "soon"], 2, "'soon' is not a duration"),
        (["new", "ci", "--expires", "0d"], 2, "'0d' is not a duration"),
        (["revoke", "nobody"], 1, "there is no token 'nobody'"),
    ],
)
def test_what_makes_no_sense_is_refused_with_words(tmp_path: Path, arguments: list[str], code: int, words: str) -> None:
    done = run(tmp_path, "token", *arguments)

    assert (done.returncode, done.stdout) == (code, "")
    assert words in done.stderr


def test_the_command_starts_without_the_server(tmp_path: Path) -> None:
    heavy = "{m for m in sys.modules if m.split('.')[0] in ('fastapi', 'starlette', 'uvicorn', 'pydantic')}"
    code = f"import sys; from onefold.cli.app import app; print({heavy})"

    done = subprocess.run(
        [sys.executable, "-c", code], env=clean(tmp_path), capture_output=True, text=True, timeout=60, check=True
    )

    assert done.stdout == "set()\n"
