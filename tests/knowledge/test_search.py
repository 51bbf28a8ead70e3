from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ctxarchive.knowledge.records import LAYERS, Layer, Record, SourceRef
from ctxarchive.knowledge.sqlite import SqliteKnowledgeBase
from ctxarchive.knowledge.store import Hit, Scope, SearchRequest

ANY_TEXT = st.text(st.characters(codec=None, categories=None), max_size=120)
Make = Callable[..., Record]
Open = Callable[..., SqliteKnowledgeBase]

TEXTS = {
    1: "const user = await getUserById(id);",
    2: "def get_user_by_name(name): return None",
    3: "edited src/ctx/foo_bar.py and README.md",
    4: "TypeError: Cannot read properties of undefined (reading 'map') at app.js:41:7",
    5: "今日は東京タワーへ行きました",
    6: "commit 813227e1144add70be0f fixed it in v2.14.3-rc1",
    7: "ship it 🎉 with C++17 and a !== b => c",
    8: "Le café naïve de la Straße, 한국어 검색",
    9: "ENOENT: no such file or directory, open '/etc/app.d/main.conf'",
    10: 'said: "foo-bar"\tand\nfoo bar; max_retries=7 timeout 30s',
    11: "Grüße an user@example.org, see https://example.org/a/b?q=1#x",
}


@pytest.fixture(scope="module", params=["indexed", "scanned", "read-only", "read-only, no index"])
def filled(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    make: Make,
    open_archive: Open,
) -> Iterator[SqliteKnowledgeBase]:
    """The same records, reached in every way that a search has."""
    path = tmp_path_factory.mktemp("archive") / "a.db"
    archive = open_archive(path)
    archive.put([make("s", seq, text) for seq, text in TEXTS.items()])
    archive.put([make("noise", seq, f"noise number {seq} the and of") for seq in range(40)])
    if request.param in {"indexed", "read-only"}:
        assert archive.index_pending() == len(TEXTS) + 40
    if request.param.startswith("read-only"):
        archive.close()
        archive = open_archive(path, mode="ro")
    yield archive
    archive.close()


def ask(archive: SqliteKnowledgeBase, query: str, scope: Scope | None = None) -> tuple[Hit, ...]:
    return archive.search(SearchRequest(query=query, scope=scope or Scope(), limit=20)).hits


@pytest.mark.parametrize(
    ("query", "seq"),
    [
        ("getUserById", 1), ("getuserbyid", 1), ("get_user_by_id", 1), ("user id", 1),
        ("get_user_by_name", 2), ("getUserByName", 2), ("getuserbyname", 2), ("name", 2),
        ("src/ctx/foo_bar.py", 3), ("foo_bar.py", 3), ("ctx/foo_bar", 3), ("README.md", 3),
        ("TypeError: Cannot read properties of undefined (reading 'map')", 4), ("app.js:41", 4),
        ("東", 5), ("東京", 5), ("タワー", 5), ("行きました", 5),
        ("813227e", 6), ("813227e1144add70be0f", 6), ("813*", 6), ("v2.14.3-rc1", 6), ("14.3-rc1", 6),
        ("🎉", 7), ("C++17", 7), ("a !== b", 7), ("b => c", 7),
        ("cafe", 8), ("CAFÉ", 8), ("naive", 8), ("strasse", 8), ("한국", 8), ("검", 8),
        ("ENOENT", 9), ("'/etc/app.d/main.conf'", 9), ("main.conf", 9), ("no such file", 9),
        ("max_retries=7", 10), ("retries", 10), ('"foo-bar" and', 10), ("30s", 10),
        ("user@example.org", 11), ("https://example.org/a/b?q=1#x", 11), ("grusse", 11),
    ],
)  # fmt: skip
def test_what_a_model_would_ask_for_is_the_first_hit(
    filled: SqliteKnowledgeBase, query: str, seq: int
) -> None:
    answer = filled.search(SearchRequest(query=query))
    assert answer.tier == "strict", answer.tried
    assert (answer.hits[0].session, answer.hits[0].seq) == ("s", seq)


def test_a_question_of_ten_words_still_gives_hits_and_says_how(filled: SqliteKnowledgeBase) -> None:
    answer = filled.search(
        SearchRequest(query="which commit was it again that really fixed the ENOENT problem there")
    )
    assert answer.tier == "any"
    assert {6, 9} <= {hit.seq for hit in answer.hits if hit.session == "s"}
    assert [line.split(":")[0] for line in answer.tried] == ["strict", "any"]


@pytest.mark.parametrize(
    ("query", "seq"),
    [
        ("tUserB", 1), ("ropertie", 4), ("京タ", 5), ("d/mai", 9), ("2.14.3", 6),
        ("!==", 7), ("=>", 7),
    ],
)  # fmt: skip
def test_a_part_of_a_word_is_found_too(filled: SqliteKnowledgeBase, query: str, seq: int) -> None:
    answer = filled.search(SearchRequest(query=query))
    assert answer.hits[0].seq == seq


def test_nothing_found_says_what_was_tried(filled: SqliteKnowledgeBase) -> None:
    answer = filled.search(SearchRequest(query="xyzzy plugh"))
    assert (answer.tier, answer.hits) == ("none", ())
    assert [line.split(":")[0] for line in answer.tried] == ["strict", "any", "substring"]


def test_a_quoted_phrase_must_stand_in_the_text(filled: SqliteKnowledgeBase) -> None:
    assert [hit.seq for hit in ask(filled, '"foo-bar"')] == [10]
    assert [hit.seq for hit in ask(filled, '"and foo bar"')] == [10]
    assert [hit.seq for hit in ask(filled, '"foo_bar" edited')] == [3]
    assert ask(filled, '"bar foo"') == ()


def test_a_hit_says_where_in_the_text_it_matched(filled: SqliteKnowledgeBase) -> None:
    for query, seq in [("getUserById", 1), ("タワー", 5), ("cafe", 8), ("user@example.org", 11)]:
        hit = ask(filled, query)[0]
        at = hit.offset
        assert TEXTS[seq][at : at + 2].casefold()[:1] == query[:1].casefold()
        assert hit.chars == len(TEXTS[seq])
        assert hit.snippet == " ".join(TEXTS[seq].split())


def test_a_snippet_of_a_long_text_is_cut_around_the_match(
    archive: SqliteKnowledgeBase, make: Make
) -> None:
    text = "lorem ipsum " * 400 + "needle in\n\n  hay " + "dolor sit " * 400
    archive.put([make("s", 0, text)])
    hit = ask(archive, "needle")[0]
    assert hit.offset == text.index("needle")
    assert "needle in hay" in hit.snippet
    assert len(hit.snippet) <= 202
    assert hit.snippet.startswith("…")
    assert hit.snippet.endswith("…")


WORDS = st.sampled_from(["alpha", "beta", "gammaDelta", "東京", "x_y", "813227e1"])
SOURCE = st.builds(
    SourceRef, session=st.sampled_from(["a", "b", "c", "?"]), layer=st.sampled_from([None, *LAYERS])
)
BOUND = st.none() | st.integers(-2, 8)
SCOPE = st.builds(
    Scope,
    sources=st.none() | st.lists(SOURCE, max_size=3).map(tuple),
    after_seq=BOUND,
    before_seq=BOUND,
    after_time=BOUND,
    before_time=BOUND,
    through=st.dictionaries(st.sampled_from("abcd"), st.integers(-1, 7), max_size=3),
)


def inside(scope: Scope, record: Record) -> bool:
    """What a scope means, said once more in the plainest way."""
    seq, when = record.seq, record.time
    timed = scope.after_time is not None or scope.before_time is not None
    return (
        (
            scope.sources is None
            or any(
                source.session == record.session and source.layer in {None, record.layer}
                for source in scope.sources
            )
        )
        and seq <= scope.through.get(record.session, seq)
        and (scope.after_seq is None or seq > scope.after_seq)
        and (scope.before_seq is None or seq < scope.before_seq)
        and not (timed and when is None)
        and (scope.after_time is None or (when is not None and when > scope.after_time))
        and (scope.before_time is None or (when is not None and when < scope.before_time))
    )


ENTRY = st.tuples(
    st.sampled_from("abc"),
    st.integers(0, 6),
    st.sampled_from(LAYERS),
    st.none() | st.integers(0, 6),
    WORDS,
)


@settings(max_examples=80, deadline=None)
@given(entries=st.lists(ENTRY, max_size=16), cut=st.integers(0, 16), scope=SCOPE, word=WORDS)
def test_a_scope_admits_exactly_what_it_says(  # noqa: PLR0917 - hypothesis and pytest name them
    entries: list[tuple[str, int, Layer, int | None, str]],
    cut: int,
    scope: Scope,
    word: str,
    tmp_path_factory: pytest.TempPathFactory,
    make: Make,
    open_archive: Open,
) -> None:
    """Nothing of another session or layer, and nothing missed, indexed or not."""
    records = {
        (session, seq): make(session, seq, f"say {text}", layer=layer, time=when)
        for session, seq, layer, when, text in entries
    }
    filed = list(records.values())
    with open_archive(tmp_path_factory.mktemp("archive") / "a.db") as archive:
        archive.put(filed[:cut])
        archive.index_pending()
        archive.put(filed[cut:])
        admitted = {record for record in filed if inside(scope, record)}
        assert set(archive.range(scope, 100)) == admitted
        for query in (word, f"{word} or nothing", word[1:-1]):
            hits = ask(archive, query, scope)
            found = {records[hit.session, hit.seq] for hit in hits}
            assert len(found) == len(hits)
            assert found <= admitted
            if query == word:
                assert found == {record for record in admitted if word in record.text}


@settings(deadline=None)
@given(
    query=ANY_TEXT | st.text(st.sampled_from("\"*()^:+-ANDORNEAT\0\ud800 \\%_'é京"), max_size=40)
)
@example(query='"')
@example(query="NEAR(a b, 2)")
@example(query="body : x")
@example(query="a AND")
@example(query="^a")
@example(query="\ud800")
@example(query='"' * 5001)
@example(query="word " * 5000)
@example(query="x" * 100_000)
@example(query="(" * 2000)
@example(query="getUserById_" * 500)
@example(query="東京" * 3000)
def test_no_text_of_a_query_raises(filled: SqliteKnowledgeBase, query: str) -> None:
    answer = filled.search(SearchRequest(query=query))
    assert answer.query == query
    assert (answer.tier == "none") == (not answer.hits)


def test_what_is_filed_is_found_before_it_is_indexed(
    archive: SqliteKnowledgeBase, make: Make
) -> None:
    archive.put([make("s", 5, "an early word")])
    assert archive.index_pending() == 1
    archive.put([make("s", 3, "a later filing of an earlier word"), make("r", 0, "word")])
    assert archive.stats().unindexed == 2
    assert {(hit.session, hit.seq) for hit in ask(archive, "word")} == {
        ("s", 5), ("s", 3), ("r", 0),
    }  # fmt: skip
    assert archive.index_pending() == 2
    assert archive.stats().unindexed == 0
    assert len(ask(archive, "word")) == 3


def test_an_original_outranks_the_checkpoint_that_quotes_it(
    archive: SqliteKnowledgeBase, make: Make
) -> None:
    archive.put(
        [make("s", 1, "the port is 8123"), make("s", 9, "the port is 8123", kind="checkpoint")]
    )
    for _ in range(2):
        assert [hit.kind for hit in ask(archive, "port 8123")] == ["original", "checkpoint"]
        archive.index_pending()


def test_the_identifier_itself_outranks_its_scattered_words(
    archive: SqliteKnowledgeBase, make: Make
) -> None:
    archive.put(
        [
            make("s", 1, "call getUserById here"),
            make("s", 2, "get user by id: get the user by id; get user by id again"),
        ]
    )
    for _ in range(2):
        assert ask(archive, "getUserById")[0].seq == 1
        archive.index_pending()


@pytest.mark.parametrize(
    ("query", "others"),
    [
        ("./cmd/run", "bin/cmd/run cmd run"),
        ("filePath", "file_path filepath"),
        ("E_OK", "eok e-ok"),
    ],
)
def test_what_is_spelt_as_asked_comes_before_any_number_of_other_spellings(
    archive: SqliteKnowledgeBase, make: Make, query: str, others: str
) -> None:
    """Though their words are the same, and theirs are newer, shorter and more."""
    spelt = f"we looked at {query} among a great many other things that day " + "and on " * 50
    archive.put([make("s", 1, spelt), *(make("s", 2 + place, others) for place in range(230))])
    for _ in range(2):
        hits = ask(archive, query)
        assert hits[0].seq == 1
        assert hits[0].score > hits[1].score
        assert len(hits) == 20
        archive.index_pending()


def test_an_empty_limit_or_scope_finds_nothing(filled: SqliteKnowledgeBase) -> None:
    assert filled.search(SearchRequest(query="user", limit=0)).tier == "none"
    assert ask(filled, "user", Scope(sources=())) == ()
    assert ask(filled, "user", Scope(sources=(SourceRef(session="unknown"),))) == ()


def test_a_long_backlog_is_indexed_by_the_search_that_meets_it(
    path: Path, make: Make, open_archive: Open
) -> None:
    with open_archive(path) as archive:
        archive.put([make("s", seq, f"word{seq}") for seq in range(2_500)])
        assert ask(archive, "word17")[0].seq == 17
        assert archive.stats().unindexed == 0
        assert archive.verify() == []


def test_filings_that_overlap_are_each_indexed_once(
    archive: SqliteKnowledgeBase, make: Make
) -> None:
    for seqs in ([0, 6], [3], [1, 5], [2]):
        archive.put([make("s", seq, f"word{seq}") for seq in seqs])
    assert archive.index_pending() == 6
    assert archive.verify() == []


def test_operators_must_stand_in_the_text_beside_the_words(
    archive: SqliteKnowledgeBase, make: Make
) -> None:
    """They are no words of the index, and yet ``C`` is no answer to ``C++``."""
    archive.put([make("s", 1, "written in C"), make("s", 2, "written in C++")])
    for _ in range(2):
        answer = archive.search(SearchRequest(query="C++"))
        assert (answer.tier, [hit.seq for hit in answer.hits]) == ("strict", [2])
        archive.index_pending()


def test_the_words_of_a_long_record_are_found_wherever_they_stand(
    archive: SqliteKnowledgeBase, make: Make
) -> None:
    """One record is one hit, and the hit says where: the passage that matches best."""
    filler = "lorem ipsum dolor " * 400
    text = f"alpha {filler} beta gamma {filler} delta"
    archive.put([make("s", 1, text), *(make("s", 2 + place, filler) for place in range(20))])
    for _ in range(2):
        for query in ("alpha", "beta gamma", "delta", '"beta gamma"', "gamma lorem"):
            answer = archive.search(SearchRequest(query=query))
            assert answer.tier == "strict", query
            assert [hit.seq for hit in answer.hits] == [1], query
            at = answer.hits[0].offset
            assert text[at:].split(maxsplit=1)[0] in query
            if query != "gamma lorem":
                assert "lorem" not in text[at:][:5]
        archive.index_pending()
