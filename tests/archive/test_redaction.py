"""Keys and tokens are masked before they are filed, and nothing else changes."""

from __future__ import annotations

import importlib.util
import json
import time
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxarchive.archive.engine import ArchiveCompactionEngine
from ctxarchive.archive.opening import open_archive
from ctxarchive.archive.redaction import Redactor
from ctxarchive.compaction.engine import Routing
from ctxarchive.compaction.policy import CompactionPolicy
from ctxarchive.errors import ConfigError
from ctxarchive.knowledge.masking import MASK, events_equal_but_masked, masked
from ctxarchive.knowledge.sqlite import SqliteKnowledgeBase
from ctxarchive.metering.meter import TokenMeter
from ctxarchive.metering.tokenizers import CharacterEstimator
from ctxarchive.replay.check import check_session
from ctxarchive.session.log import Session
from ctxarchive.tools.ctx_search import CtxSearchTool

# In two parts each, so that no scanner of sources takes them for real.
BODY = "Ab3dEf6hIj9lMn2pQr5tUv8xYz1B4D7F0H3J"
B64 = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj"
SAMPLES = {
    "aws id": "AKIA" + "IOSFODNN7EXAMPLE",
    "github": "ghp_" + BODY,
    "github fine-grained": "github_pat_" + "11ABCDEFG0abcdefghijkl_" + BODY,
    "gitlab": "glpat-" + BODY[:20],
    "anthropic": "sk-ant-" + "api03-" + BODY * 2,
    "openai": "sk-" + BODY + BODY[:12],
    "openai project": "sk-proj-" + BODY * 3,
    "slack": "xoxb-" + "123456789012-1234567890123-" + BODY[:24],
    "slack app": "xapp-" + "1-A0123-456-" + BODY,
    "google key": "AIza" + BODY[:35],
    "google token": "ya29." + BODY * 2,
    "stripe": "sk_live_" + BODY[:24],
    "stripe restricted": "rk_test_" + BODY[:24],
    "npm": "npm_" + BODY[:36],
    "jwt": "eyJ" + "hbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0." + BODY,
}
"""Tokens that are masked as a whole, wherever they stand."""

INSIDE = {
    "aws secret": (
        "aws_secret_access_key = ",
        "wJalrXUtnFEMI/K7MDENG/" + "bPxRfiCYEXAMPLEKEY",
        "\n",
    ),
    "bearer": ("Authorization: Bearer ", "abc.def-" + BODY, "\r\n"),
    "basic": ('{"authorization": "Basic ', "dXNlcjpwYXNz" + "d29yZA==", '"}'),
    "api key header": ("x-api-key: ", "k-" + BODY, "\n"),
    "slack hook": ("https://hooks.slack.com/services/", "T000/B000/" + BODY[:24], " is it"),
    "url password": ("postgres://me:", "hunter2-" + "Secret!", "@db.local:5432/x"),
    "dsn password": ("Server=x;User=sa;Password=", "Hunter2" + "Secret", ";Encrypt=1"),
}
"""Before, secret, behind: only the secret is masked."""


def key_block(line_break: str = "\n", kind: str = "RSA ") -> str:
    """A private key as its file has it."""
    lines = [
        f"-----BEGIN {kind}PRIVATE" + " KEY-----",
        *[B64] * 5,
        "a1b2c3==",
        f"-----END {kind}PRIVATE KEY-----",
    ]
    return line_break.join(lines)


REDACTOR = Redactor()


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize(
    "frame", ["{}", "x={} y", '"{}"', "\\n{}\\n", "({})", "漢{}字", "https://h/?k={}&b"]
)
def test_a_token_of_a_well_known_format_is_masked_whole(name: str, frame: str) -> None:
    """At every place, also behind an escape inside of a JSON string."""
    secret = SAMPLES[name]
    if frame.startswith("漢"):
        frame = frame.replace("{}", " {} ")
    text = frame.replace("{}", secret)
    assert REDACTOR.text(text) == frame.replace("{}", MASK * len(secret))


@pytest.mark.parametrize("name", INSIDE)
def test_of_a_header_an_assignment_or_a_url_only_the_secret_is_masked(name: str) -> None:
    before, secret, behind = INSIDE[name]
    assert REDACTOR.text(before + secret + behind) == before + MASK * len(secret) + behind


@pytest.mark.parametrize("line_break", ["\n", "\r\n", "\\n"])
@pytest.mark.parametrize("kind", ["RSA ", "", "OPENSSH ", "ENCRYPTED "])
def test_a_private_key_block_is_masked_between_its_ends(line_break: str, kind: str) -> None:
    """Line breaks stay, escaped or not; and so of a block that was cut off before its end."""
    block = key_block(line_break, kind)
    clean = REDACTOR.text(f"see {block} there")
    assert B64 not in clean
    assert "a1b2c3" not in clean
    assert len(clean) == len(f"see {block} there")
    assert clean.count(line_break) == block.count(line_break)
    assert clean.startswith(f"see -----BEGIN {kind}PRIVATE KEY-----")
    cut = block[: block.index("a1b2c3") - len(line_break)]
    assert B64 not in REDACTOR.text(cut)


@pytest.mark.parametrize(
    "text",
    [
        "the task-list of sk-learn-extras-and-other-long-package-names",
        "-----BEGIN PRIVATE KEY----- is how a block begins; see the docs for more.",
        "AKIA is a prefix, and ghp_ is one, too",
        "password = input('password: ')",
        "Authorization: Bearer ${TOKEN}",
        "https://example.org:8080/a@b",
        "git@github.com:user/repo.git",
        "eyJ is how a token begins",
        "xoxo-hugs",
        "bearer of good news everywhere",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert REDACTOR.text(text) == text


tokens = st.sampled_from([*SAMPLES.values(), key_block(), key_block("\\n")])
strings = st.lists(
    st.one_of(st.text(st.characters(), max_size=12), tokens, st.sampled_from(["\n", '"', "\\"])),
    max_size=4,
).map(" ".join)
values = st.recursive(
    st.one_of(strings, st.integers(), st.booleans(), st.none()),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=150)
@given(value=values, nested=st.booleans())
def test_json_stays_json_of_the_same_shape_and_lengths(value: object, nested: bool) -> None:  # noqa: FBT001
    """Also JSON inside of a string, as a call's arguments are."""
    given_value = {"arguments": json.dumps(value)} if nested else {"value": value}
    text = json.dumps(given_value)
    clean = REDACTOR.json(text)
    after = json.loads(clean)
    assert events_equal_but_masked(text, clean)
    for sample in SAMPLES.values():
        assert sample not in clean
    if nested:
        inside = json.loads(after["arguments"])
        assert events_equal_but_masked(json.dumps(value), json.dumps(inside))
    assert REDACTOR.json(clean) == clean


@given(text=st.text(st.characters()))
def test_a_mask_keeps_length_white_space_and_escapes(text: str) -> None:
    clean = masked(text)
    assert len(clean) == len(text)
    assert [c.isspace() for c in clean if c.isspace()] == [c.isspace() for c in text if c.isspace()]
    assert set(clean) - {MASK, '"', "\\"} <= set(text)


HOSTILE = [
    "a",
    "eyJ",
    "eyJa.",
    "sk-",
    "sk-ant-",
    "://",
    "://a:",
    "a://b:c",
    "ghp_",
    "github_pat_",
    "xoxb-",
    "-----BEGIN PRIVATE KEY-----",
    "-----BEGIN RSA PRIVATE KEY-----\nAAAA ",
    "-----BEGIN " + "A " * 20,
    "authorization:",
    "Authorization: Bearer ",
    "bearer a",
    "password=",
    "pwd=a",
    "ya29.",
    "AKIA",
    "aws_secret_access_key=",
    "aws_",
    "hooks.slack.com/services/",
    "\\n",
    "\\nsk-",
    "1//0",
    "whsec_",
    "pypi-AgE",
    "-",
]


@pytest.mark.parametrize("piece", HOSTILE)
def test_a_megabyte_of_anything_is_masked_in_no_time(piece: str) -> None:
    """No text makes a format read the same part of it again and again."""
    text = piece * (1_000_000 // len(piece))
    began = time.process_time()
    assert len(REDACTOR.text(text)) == len(text)
    assert time.process_time() - began < 4


@settings(max_examples=15)
@given(pieces=st.lists(st.sampled_from(HOSTILE) | st.text(max_size=3), min_size=1, max_size=5))
def test_a_mixture_of_anything_takes_time_in_proportion(pieces: list[str]) -> None:
    piece = "".join(pieces) or "x"
    text = piece * (300_000 // len(piece))
    began = time.process_time()
    assert len(REDACTOR.text(text)) == len(text)
    assert time.process_time() - began < 4


needs_re2 = pytest.mark.skipif(importlib.util.find_spec("re2") is None, reason="extra redact")


@needs_re2
def test_own_patterns_mask_whole_matches_or_their_group_secret() -> None:
    own = Redactor(well_known=False, own=[r"EMP-\d+", r"pin (?P<secret>\d{4})"])
    assert own.text("EMP-123 pin 4711, \ud800 ghp_x") == f"{MASK * 7} pin {MASK * 4}, \ud800 ghp_x"


@needs_re2
def test_an_own_pattern_that_would_run_for_ever_elsewhere_does_not() -> None:
    own = Redactor(well_known=False, own=[r"(a+)+$", r"(x|xx)+y"])
    began = time.process_time()
    own.text("a" * 500_000 + "!" + "x" * 500_000)
    assert time.process_time() - began < 5


@needs_re2
@pytest.mark.parametrize("pattern", ["(", r"(a)\1", "a*"])
def test_an_own_pattern_that_cannot_serve_is_refused(pattern: str) -> None:
    with pytest.raises(ConfigError, match="redact_patterns"):
        Redactor(own=[pattern])


def test_an_own_pattern_without_the_extra_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "re2", None)
    with pytest.raises(ConfigError, match=r"ctxarchive\[redact\]"):
        Redactor(own=["x"])


# --- through a compaction ---------------------------------------------------------------------


@pytest.fixture
def knowledge(tmp_path: Path) -> Iterator[SqliteKnowledgeBase]:
    with open_archive(tmp_path / "a.db") as base:
        yield base


class Host:
    """The owner of a session of one secret in many places."""

    def __init__(self) -> None:
        self.session = Session.create("s")
        self.options = Routing(provider="p", model="m", context_window=100_000)
        self.secret = SAMPLES["github"]

    async def run_maintenance(self, task):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
        """Run ``task`` at once."""
        return await task()

    def work(self) -> None:
        """A user, a call and a result that all hold the secret, and much besides."""
        append = self.session.append
        said = [{"type": "text", "text": f"use {self.secret} and never print it. " + "why " * 500}]
        append("user/message", {"content": said, "source": {"kind": "user"}}, surface_op="append")
        for number in range(3):
            call = {
                "type": "tool-call",
                "id": f"c{len(self.session)}",
                "name": "bash",
                "arguments": json.dumps({"command": f"curl -H 'x: {self.secret}' h/{number}"}),
            }
            prose = {"type": "text", "text": f"I call it with {self.secret} now. " * 40}
            append(
                "assistant/message",
                {"message": {"role": "assistant", "content": [prose, call]}},
                surface_op="append",
            )
            block = {
                "type": "tool-result",
                "toolCallId": call["id"],
                "content": [{"type": "text", "text": f"token {self.secret} works\n" * 200}],
            }
            append(
                "tool/result",
                {"message": {"role": "user", "content": [block]}},
                surface_op="append",
            )


def engine(knowledge: SqliteKnowledgeBase, redactor: Redactor | None) -> ArchiveCompactionEngine:
    return ArchiveCompactionEngine(
        knowledge,
        redactor=redactor,
        policy=CompactionPolicy(min_span_tokens=0, min_reclaim_tokens=0),
        meter=TokenMeter(CharacterEstimator()),
    )


def test_no_file_and_no_addition_holds_a_secret_and_every_pointer_still_resolves(
    knowledge: SqliteKnowledgeBase, tmp_path: Path
) -> None:
    """Over two compactions: the first checkpoint is filed itself."""
    host = Host()
    for _ in range(2):
        host.work()
        result = anyio.run(engine(knowledge, REDACTOR).compact_now, host)
        assert result is not None
        checkpoint = host.session.event_at(result.checkpoint_seq).wire()["data"]["content"][0][
            "text"
        ]
        _, _, additions = checkpoint.partition("</summary>")
        assert host.secret not in additions
        assert MASK in additions
        assert "ctx_search(" in additions
    filed = host.session.last("archive/filed")
    assert filed is not None
    assert filed.wire()["data"]["redacted"] >= 7
    for file in tmp_path.iterdir():
        content = file.read_bytes()
        assert host.secret.encode() not in content, file.name
        assert host.secret.lower().encode() not in content, file.name
    tool = CtxSearchTool(knowledge, session="s")
    answer = tool.run({"seq": 0})
    assert f"use {MASK * len(host.secret)} and never" in answer
    said = host.session.event_at(0).wire()["data"]["content"][0]["text"]
    record = knowledge.get("s", 0)
    assert record is not None
    assert len(record.text) == len(said)
    assert knowledge.verify() == []


def test_a_log_compared_with_what_was_masked_is_redacted_not_different(
    knowledge: SqliteKnowledgeBase,
) -> None:
    host = Host()
    host.work()
    anyio.run(engine(knowledge, REDACTOR).compact_now, host)
    found = check_session(knowledge, host.session)
    assert found.findings == ()
    assert found.redacted == found.compared >= 5


@pytest.mark.parametrize(
    "first", [None, REDACTOR], ids=["clear, then masked", "masked, then clear"]
)
def test_a_setting_that_changed_meanwhile_is_no_conflict(
    knowledge: SqliteKnowledgeBase, first: Redactor | None
) -> None:
    """What was filed first stands; what comes later is filed as the setting says then."""
    host = Host()
    host.work()
    anyio.run(engine(knowledge, first).compact_now, host)
    host.work()
    second = REDACTOR if first is None else None
    result = anyio.run(engine(knowledge, second).compact_now, host)
    assert result is not None
    assert host.session.last("archive/failed") is None
    assert check_session(knowledge, host.session).findings == ()
