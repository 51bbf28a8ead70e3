"""Which messages and sentences of a user are rule-like, by their words, in several languages."""

from __future__ import annotations

import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ctxarchive.archive.rules import LONGEST, RULE_LIKE, rule_sentences, sentences, worth

STANDING = [
    "Always use tabs, never spaces.",
    "From now on, write the test first.",
    "We never push to main.",
    "从现在开始都用中文回答",
    "一律用制表符。",
    "必ずテストを書いてください",
    "絶対に main へ push しない",
    "Verwende immer Leerzeichen",
    "Ab jetzt nur noch auf Deutsch!",
    "Usa siempre tabuladores.",
    "De ahora en adelante, responde en español.",
    "Ne touche jamais à main",
    "Nunca faça push.",
    "Всегда пиши тесты",
    "항상 한국어로 대답해",
]
RULES = [
    "Don't touch config.yml",
    "Don\u2019t touch config.yml",
    "Do not commit anything.",
    "You must answer in French.",
    "No, use pnpm instead.",
    "no, not X; take Y",
    "Only the newest three.",
    "I don't want you to use mocks.",
    "Keep the port at 8443.",
    "不要修改 vendor 目录",
    "别动这个文件",
    "只能用标准库",
    "テストは消さないでください",
    "3つだけ",
    "Das darf nicht passieren",
    "Nimm stattdessen pnpm",
    "No toques el archivo",
    "Debe ser en español",
    "Il ne faut pas utiliser de mocks",
    "Não use mocks",
    "Нельзя трогать этот файл",
    "그 파일은 지우지 마",
]
CHAT = [
    "ok thanks",
    "Can you look at the parser and tell me what it does?",
    "I don't know what happened there",
    "It has always been slow.",
    "好的，谢谢",
    "特别好",
    "ありがとう",
    "Danke, sieht gut aus",
    "perfecto, gracias",
    "should we do it now?",
]


@pytest.mark.parametrize("text", STANDING)
def test_what_is_to_hold_from_now_on_is_worth_most(text: str) -> None:
    """In nine languages."""
    assert worth(text) >= 0.95


@pytest.mark.parametrize("text", RULES)
def test_a_demand_a_restriction_or_a_correction_is_a_rule(text: str) -> None:
    """Worth less than one that says that it holds for good."""
    assert RULE_LIKE <= worth(text) < 0.95
    assert rule_sentences(text)


@pytest.mark.parametrize("text", CHAT)
def test_what_is_said_in_passing_is_no_rule(text: str) -> None:
    """Nor is a question, or a statement about the past."""
    assert worth(text) < RULE_LIKE
    assert rule_sentences(text) == ()


def test_numbers_and_names_are_worth_more_than_nothing_and_less_than_a_rule() -> None:
    """So among messages without rules those that state something stay longer."""
    for text in ("The limit is 500 requests", "It is in src/app.py", "call it `RetryBudget`"):
        assert 0 < worth(text) < RULE_LIKE


def test_a_rule_in_a_long_message_is_found_and_counts_less_than_one_alone() -> None:
    """A short standing rule outlives a long chat that holds the same sentence."""
    rule = "Never rename public functions."
    chat = "So yesterday I was looking at how this came along and it reads nicely by now. " * 40
    text = f"{chat}{rule} {chat}"
    (found,) = rule_sentences(text)
    assert text[found.start : found.end] == rule
    assert 0.2 < worth(text) < worth(rule) / 2


def test_the_items_of_a_list_belong_to_the_line_that_introduces_it() -> None:
    """They say what must never be touched; what follows the list does not."""
    text = "Never touch:\n- a.py\n- b.py\n\nThanks for all of it"
    assert [text[found.start : found.end] for found in rule_sentences(text)] == [
        "Never touch:",
        "- a.py",
        "- b.py",
    ]


def test_pasted_code_is_no_rule() -> None:
    """What stands between fences was not said by the user."""
    assert rule_sentences("look:\n```\n# must never be None\nraise ValueError\n```\nwhy?") == ()


def test_a_sentence_that_is_too_long_to_be_kept_is_no_rule_sentence() -> None:
    """It still tells something of what the message is worth."""
    text = "always " + "word " * LONGEST
    assert rule_sentences(text) == ()
    assert 0 < worth(text) < RULE_LIKE


@given(st.text(st.characters(codec=None, categories=None)) | st.text("nevr dot'！？。.!? \n-1`"))
@example("")
@example("```")
def test_any_text_is_read_and_its_sentences_lie_in_order(text: str) -> None:
    """Between 0 and 1, always alike, and no sentence begins or ends with white space."""
    assert 0 <= worth(text) <= 1
    assert worth(text) == worth(text)
    place = 0
    for sentence in sentences(text):
        assert place <= sentence.start < sentence.end <= len(text)
        assert 0 <= sentence.score <= 1
        said = text[sentence.start : sentence.end]
        assert said == said.strip()
        place = sentence.end


UNITS = [
    *("a\n", "a. ", "must not. ", "don't ", "word ", " ", "'", ".", "0", "别", "。", "别。", "…\n"),
    *("!' !'  ", "\"')]", "\n", "\r\n", "```\n", "- a:\n", "never", "\ud800", "e.g. "),
]


@pytest.mark.parametrize("unit", UNITS)
def test_a_megabyte_is_read_in_little_time(unit: str) -> None:
    """Whatever it repeats: its ends are read, once over."""
    text = (unit * (1_000_000 // len(unit) + 1))[:1_000_000]
    started = time.process_time()
    worth(text)
    assert time.process_time() - started < 2


def test_both_ends_of_a_long_text_are_read() -> None:
    """A rule stands before a paste or behind it."""
    paste = "some line of a log that somebody pasted\n" * 30_000
    before, after = "Never do this again.\n", "\nAlways do that."
    text = before + paste + after
    assert [text[found.start : found.end] for found in rule_sentences(text)] == [
        before.strip(),
        after.strip(),
    ]
