"""Anchors: which tokens are found, how they are ranked, and what of them is shown."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxarchive.archive.anchor_ranking import (
    Moment,
    Room,
    Use,
    grouped,
    ranked,
    score,
    select,
    tally,
)
from ctxarchive.archive.anchors import (
    READ_AT_MOST,
    bare,
    commands,
    distinct,
    excerpt,
    holds,
    kind_of,
    tokens,
)
from ctxarchive.archive.settings import AnchorWeights
from ctxarchive.session.log import Session

WEIGHTS = AnchorWeights()
MOMENT = Moment(first_seq=0, last_seq=100, earlier=())


@pytest.mark.parametrize(
    ("text", "token", "kind"),
    [
        ("open src/retry/policy.py.", "src/retry/policy.py", "paths"),
        ("see policy.Backoff, then", "policy.Backoff", "names"),
        ("call getUserById()", "getUserById", "names"),
        ("class RetryBudget:", "RetryBudget", "names"),
        ("max_attempts=3", "max_attempts", "names"),
        ("raise ConnectionResetError(104)", "ConnectionResetError", "errors"),
        ("spawn ENOENT: no such file", "ENOENT", "errors"),
        ("killed by SIGKILL", "SIGKILL", "errors"),
        ("src/a.ts(3,1): error TS2345: x", "TS2345", "errors"),
        ("see CVE-2024-12345.", "CVE-2024-12345", "errors"),
        ("use std::sync::Arc;", "std::sync::Arc", "names"),
        ("class HTTPServerConfig", "HTTPServerConfig", "names"),
        ("edit my-config.prod.yaml", "my-config.prod.yaml", "names"),
        ("def test_keeps_order():", "test_keeps_order", "names"),
        ("the billing-api-worker pod", "billing-api-worker", "names"),
        ("größe_max = 3", "größe_max", "names"),
        (
            "id 0af3bc12-1234-4abc-9def-0123456789ab",
            "0af3bc12-1234-4abc-9def-0123456789ab",
            "hashes",
        ),
        ("see /srv/job/config.toml:", "/srv/job/config.toml", "paths"),
        ("in ~/notes/todo.md", "~/notes/todo.md", "paths"),
        ("go test ./cmd/...", "./cmd/...", "paths"),
        ("from @scope/pkg", "@scope/pkg", "paths"),
        ("请修改src/app.py文件", "src/app.py", "paths"),
        ("看 文档/设计.md。", "文档/设计.md", "paths"),
        ("set MAX_RETRIES=5 first", "MAX_RETRIES=5", "values"),
        ("node --max-old-space=4096", "--max-old-space=4096", "values"),
        ("took 250ms of 512MiB", "250ms", "values"),
        ("took 250ms of 512MiB", "512MiB", "values"),
        ("at localhost:8080", "localhost:8080", "values"),
        ("commit 72a7142b6550", "72a7142b6550", "hashes"),
        ("port 18473 is", "18473", "values"),
        ("version 2.14.0 of", "2.14.0", "values"),
        ("run with --no-retry now", "--no-retry", "values"),
        ("(https://example.org/a?b=c#d)", "https://example.org/a?b=c#d", "urls"),
    ],
)
def test_each_kind_of_token_is_found_whole(text: str, token: str, kind: str) -> None:
    """As it is printed, without the punctuation around it."""
    assert token in set(tokens(text))
    assert kind_of(token) == kind


def test_ordinary_words_are_no_anchors() -> None:
    """They are in every text, and find nothing in particular."""
    assert list(tokens("Now let me look at the first test and fix what is wrong, 42 times.")) == []


def test_an_escape_makes_no_name_of_an_ordinary_word() -> None:
    """In a call's JSON a line break is two characters; a name behind it is kept as printed."""
    text = json.dumps({"new": "x\nThis is\n\tgetUser\n\nWhen\nIDLE_TIME \tName \u00e9some_name"})
    assert list(tokens(text)) == ["\\tgetUser", "\\nIDLE_TIME", "\\tName", "some_name"]
    assert bare("\\tgetUser") == "getUser"
    assert list(tokens(r"\bclass_name \d+some_name")) == ["class_name", "some_name"]


def test_what_a_command_runs_is_an_anchor() -> None:
    """A program and what it is told to do, each once; a bare word of few letters says nothing."""
    line = "cd /x && CI=1 go test ./... 2>&1 | tail -3; npm run lint\nmake check"
    found = commands(json.dumps({"command": line}))
    assert found == {"go test", "npm run lint", "make check"}
    assert {kind_of(command) for command in found} == {"commands"}
    assert commands(json.dumps({"path": "go test"})) == set()


@given(st.text())
def test_any_text_is_read_and_each_token_stands_in_it(text: str) -> None:
    """The token as printed is the query that finds it."""
    for token in tokens(text):
        assert token in text
        assert not re.search(r"\s", token)
        assert holds(token, token)


@given(st.text())
def test_the_tokens_of_a_text_are_the_same_each_once(text: str) -> None:
    """Counted or not."""
    assert distinct(text) == set(tokens(text))


def test_a_huge_text_without_a_break_is_read_in_passing() -> None:
    """Encoded bytes hold no names, and no expression walks them again and again."""
    for piece in (
        "A" * 400_000,
        "a/" * 200_000,
        "a.b-" * 100_000,
        "x_" * 150 + " " + "1" * 400_000,
    ):
        assert len(distinct(piece)) <= 1


def everything() -> Room:
    """Room without bounds."""
    return Room(10**9, None, len)


def test_a_path_shows_its_suffixes_and_a_dotted_name_its_names() -> None:
    """What stands inside a longer token is in view with it, and not printed twice."""
    for part in ("src/a/b.py", "a/b.py", "b.py", "src/a"):
        assert holds("src/a/b.py", part)
    assert not holds("src/a/b.py", "rc/a")
    assert select(["b.py", "src/a/b.py", "a/b.py"], "", everything()) == ["src/a/b.py"]
    assert select(["src/a/b.py"], "see src/a/b.py:3", everything()) == []
    assert select(["some_name"], "see some_names", everything()) == ["some_name"]


def test_a_name_behind_an_escape_shows_the_name() -> None:
    """It is not printed once more without."""
    assert select(["\\tgetUser", "getUser"], "", everything()) == ["\\tgetUser"]


def test_a_call_outranks_a_mention_and_late_outranks_early() -> None:
    """What the agent used in a call, and used last, it needs again."""
    said = Use(mentions=9, last_seq=100)
    early = Use(mentions=1, calls=1, last_seq=5, last_call_seq=5)
    late = Use(mentions=1, calls=1, last_seq=95, last_call_seq=95)
    uses = {"aaa_said": said, "bbb_earl": early, "ccc_late": late}
    assert ranked(uses, WEIGHTS, MOMENT) == ["ccc_late", "bbb_earl", "aaa_said"]


def test_what_was_not_used_since_earlier_compactions_fades() -> None:
    """Half for each, by default."""
    use = Use(mentions=1, calls=1, last_seq=5, last_call_seq=5)
    now = Moment(first_seq=200, last_seq=300, earlier=())
    later = Moment(first_seq=200, last_seq=300, earlier=(50, 150))
    assert score("a_token", use, WEIGHTS, later) == score("a_token", use, WEIGHTS, now) / 4


@given(st.dictionaries(st.text(min_size=5, max_size=20), st.integers(0, 50), max_size=30))
def test_the_ranking_is_the_same_every_time(counts: dict[str, int]) -> None:
    """Whatever order the uses were met in."""
    uses = {token: Use(mentions=count, calls=count, last_seq=3) for token, count in counts.items()}
    backwards = dict(reversed(uses.items()))
    assert ranked(uses, WEIGHTS, MOMENT) == ranked(backwards, WEIGHTS, MOMENT)


@given(st.lists(st.from_regex(r"[a-z]{3}_[a-z]{1,30}", fullmatch=True)), st.integers(0, 300))
def test_selection_keeps_to_its_room(candidates: list[str], room: int) -> None:
    """And takes the best first."""
    chosen = select(candidates, "", Room(10**6, room, len))
    assert len(" ".join(chosen)) <= room
    assert len(set(chosen)) == len(chosen)
    if candidates and len(candidates[0]) < room:
        assert holds(" ".join(chosen), candidates[0])


def test_what_a_command_says_is_no_command() -> None:
    """A commit's message, in a here-document or in quotes, names no program."""
    said = "fix: trailers\n\ncausing json.Unmarshal to fail when\nstring. is read\n"
    for command in (
        f"git commit -m \"$(cat <<'EOF'\n{said}EOF\n)\" && git push origin",
        f'git commit -m "{said}" && git push origin',
        f"git commit -m '{said}' && git push origin",
        f"cat > notes.md <<-END\n{said}\tEND\ngit push origin",
    ):
        found = commands(json.dumps({"command": command}))
        assert found - {"git commit"} == {"git push origin"}, command
    assert "git push" in commands(json.dumps({"command": "wc -w <<< word; git push"}))
    assert "git push" in commands(json.dumps({"command": "echo $((1<<20)); git push"}))


def test_a_part_of_a_number_is_no_anchor() -> None:
    """The fraction of a second, in a log's times, finds nothing that the agent asks for."""
    text = "2026-02-15T20:46:51.014139+11:00 0.12345678 at 46.481236123 seq 48123 v1.2.34567"
    assert distinct(text) == {"48123", "v1.2.34567"}


def test_a_path_beside_a_match_is_the_path() -> None:
    """Where grep prints lines around a match, a path and its line number part at a hyphen."""
    text = "cmd/cli/hooks.go-397-\tname\ncmd/cli/hooks.go-398-import\ncmd/cli/hooks.go:399:"
    assert distinct(text) == {"cmd/cli/hooks.go"}
    kept = "https://example.org/a.go-12", "lib/node-18/x.py", "feature/fix-342", "a/v1.2-3"
    assert distinct(" ".join(kept)) == set(kept)


def test_a_cut_makes_no_anchor() -> None:
    """Where a long output is read at its ends, the word that the cut goes through is not read."""
    for pad in range(40):
        output = "x" * pad + " src/retry/policy_of_backoff.py" * 600
        assert distinct(excerpt(output)) == {"src/retry/policy_of_backoff.py"}


def test_a_long_output_is_read_at_its_ends() -> None:
    """So that one huge result costs no more than a large one."""
    text = "first_token " + "x " * READ_AT_MOST + " last_token"
    read = set(tokens(excerpt(text)))
    assert {"first_token", "last_token"} <= read
    assert len(excerpt(text)) == READ_AT_MOST + 1


def message(role: str, *blocks: dict[str, Any], **source: str) -> dict[str, Any]:
    return {"role": role, "content": list(blocks), **({"source": source} if source else {})}


def test_an_event_is_counted_by_how_it_uses_a_token() -> None:
    """Calls, edits, the user's words, failures; a checkpoint's text counts for nothing."""
    session = Session.create("s")
    session.append(
        "user/message",
        message("user", {"type": "text", "text": "fix some_name"}, kind="user"),
        surface_op="append",
    )
    arguments = json.dumps({"path": "a/some_file.py", "old_string": "some_name", "new_string": "x"})
    call = {"type": "tool-call", "id": "c", "name": "edit", "arguments": arguments}
    session.append(
        "assistant/message", {"message": message("assistant", call)}, surface_op="append"
    )
    result = {
        "type": "tool-result",
        "toolCallId": "c",
        "content": [{"type": "text", "text": "no some_name in a/some_file.py"}],
        "isError": True,
    }
    session.append("tool/result", {"message": message("user", result)}, surface_op="append")
    session.append(
        "user/message",
        message(
            "user",
            {"type": "text", "text": "only_in_checkpoint"},
            kind="compact-checkpoint",
            compactionId="x",
        ),
        surface_op="append",
    )
    uses: dict[str, Use] = {}
    for event in session.events:
        tally(event, uses)
    assert uses["some_name"] == Use(
        mentions=3,
        calls=1,
        edits=1,
        asked=1,
        failures=1,
        first_asked_seq=0,
        last_asked_seq=0,
        last_seq=2,
        last_call_seq=1,
    )
    assert uses["a/some_file.py"].calls == 1
    assert "only_in_checkpoint" not in uses


def test_anchors_are_grouped_bare_and_whole() -> None:
    """One line a kind, in a fixed order, nothing abbreviated."""
    text = grouped(["a_name", "src/x.py", "12345", "make check", "src/y.py", "npm run lint"])
    assert text == (
        "paths: src/x.py src/y.py\nnames: a_name\nvalues: 12345\ncommands: make check, npm run lint"
    )
    assert grouped([]) == ""
