"""A report in a real browser: pointers, search, keys, colours, and texts that try to be code.

Runs where Playwright and a Chromium are installed (Debian's package ``chromium``; another one is named
by CTXARCHIVE_CHROMIUM), and is skipped elsewhere.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ctxarchive.archive.opening import open_archive
from ctxarchive.knowledge.records import Record
from ctxarchive.replay.report.page import page as render
from ctxarchive.replay.report.values import Report, SessionView

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

HOSTILE = (
    "</script><script>window.broken = 1</script>",
    "<img src=x onerror=\"window.broken = 1\"><svg onload='window.broken = 1'>",
    "--><!--<script>",
    "javascript:window.broken=1//'\"`${window.broken=1}",
)
ODD = "caf\u00e9 \ud83d\udc69\u200d\ud83d\udc67 漢字\r\nhalf \ud83d of it \x00 \u2028 end"

EXACT = (
    "() => Array.from(document.querySelector('#panel .exact').textContent, p => p.codePointAt(0))"
)


def chromium() -> str | None:
    """The browser's program."""
    named = os.environ.get("CTXARCHIVE_CHROMIUM")
    return named or next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)


def run(*arguments: str | Path) -> None:
    """The command line, as a process: Playwright's event loop runs in this one."""
    command = [sys.executable, "-m", "ctxarchive", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One headless Chromium for all tests."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    program = chromium()
    if program is None:
        pytest.skip("no Chromium on PATH; install one, or name it in CTXARCHIVE_CHROMIUM")
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def visit(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Opens a file in a window of its own; anything but that file asked for, or any error, fails."""
    asked: list[str] = []
    wrong: list[str] = []
    contexts = []

    def open_file(path: Path, **options: Any) -> Page:
        context = browser.new_context(viewport={"width": 1360, "height": 900}, **options)
        contexts.append(context)
        view = context.new_page()
        view.set_default_timeout(5_000)
        view.on("request", lambda request: asked.append(request.url))
        view.on("pageerror", lambda error: wrong.append(str(error)))
        view.on("console", lambda message: wrong.append(message.text))
        view.goto(path.as_uri())
        view.wait_for_selector("html[data-ready]")
        return view

    yield open_file
    for context in contexts:
        context.close()
    assert {url.partition(":")[0] for url in asked} == {"file"}
    assert len(asked) == len(contexts)
    assert wrong == []


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A log full of hostile and odd texts, as a report and as an archive."""

    page: Path
    archive: Path


@pytest.fixture(scope="module")
def made(talk: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Several compactions of a long talk; its first texts, its title and its name are hostile."""
    folder = tmp_path_factory.mktemp("page")
    told = talk('talk-"<b>')
    told.add("summary", summary=HOSTILE[0], leafUuid="u1")
    for text in HOSTILE:
        told.user(f"{text} {ODD}")
        told.step(
            f"{text} " + "I looked at src/part_0.py and said so. " * 30, text, f"{ODD} {text}"
        )
        told.assistant({"type": "text", "text": text})
    for part in range(24):
        told.user(f"Please look at part {part}. Never touch file_{part}.txt.")
        told.step(
            f"Part {part} was read. " + "It keeps a table of every token it has met. " * 20,
            f"cat src/parser/part_{part}.py",
            "".join(f"def read_{part}_{n}(parser): table.add({n})\n" for n in range(120)),
        )
        told.assistant({"type": "text", "text": f"It is the parser's part {part}."})
    log = folder / "<img src=x onerror=alert(1)>.jsonl"
    log.write_text("".join(json.dumps(record) + "\n" for record in told.records), "utf-8")
    made = Made(page=folder / "r.html", archive=folder / "a.db")
    run("report", log, "--window", "30000", "-o", made.page)
    run("compact", log, "--window", "30000", "--archive", made.archive)
    return made


def pointers(path: Path) -> list[dict[str, Any]]:
    """The pointers of the first checkpoint of a report, in order."""
    found = re.search(r'id="data">([A-Za-z0-9+/=]*)</script>', path.read_text("utf-8"))
    assert found is not None
    report = json.loads(zlib.decompress(base64.b64decode(found[1])))
    entries = report["sessions"][0]["compactions"][0]["checkpoint"]["entries"]
    return [part for entry in entries for part in entry["parts"] if isinstance(part, dict)]


def focused(view: Page) -> str:
    """What has the focus: its id, else its classes."""
    name: str = view.evaluate(
        "() => document.activeElement.id || document.activeElement.getAttribute('class')"
    )
    return name


def test_every_pointer_opens_exactly_what_the_archive_holds(
    visit: Callable[..., Page], made: Made
) -> None:
    """Beside the checkpoint, code point by code point: line ends, NUL and half an emoji included."""
    view = visit(made.page)
    given = pointers(made.page)
    buttons = view.locator("#compaction [data-call]")
    assert buttons.count() == len(given) > 10
    with open_archive(made.archive, mode="ro") as knowledge:
        (info,) = knowledge.sessions()
        compared = 0
        for place, pointer in enumerate(given):
            buttons.nth(place).click()
            assert view.locator("#panel .call").text_content() == pointer["call"]
            if pointer["seq"] is None:
                continue
            record = knowledge.get(info.session, pointer["seq"])
            assert record is not None
            end = None if pointer["length"] is None else pointer["offset"] + pointer["length"]
            wanted = record.text[pointer["offset"] : end]
            assert view.evaluate(EXACT) == [ord(character) for character in wanted]
            compared += 1
    assert compared > 5
    assert any(pointer["length"] for pointer in given)


def test_the_left_out_part_can_be_seen_in_its_message(
    visit: Callable[..., Page], made: Made
) -> None:
    """The whole message, with what was left out marked in it."""
    view = visit(made.page)
    place, pointer = next((n, p) for n, p in enumerate(pointers(made.page)) if p["length"])
    view.locator("#compaction [data-call]").nth(place).click()
    alone = view.locator("#panel .exact").text_content()
    before = view.evaluate("() => window.scrollY")
    view.get_by_role("button", name="Whole message").click()
    assert view.evaluate("() => window.scrollY") == before
    assert view.locator("#panel .elided").is_visible()
    assert view.locator("#panel .elided").text_content() == alone
    around = view.locator("#panel .exact").text_content() or ""
    assert around.index(alone or "") > 0
    assert len(around) > pointer["length"]


def test_no_text_of_a_log_becomes_markup(visit: Callable[..., Page], made: Made) -> None:
    """Titles, names, commands and texts that are HTML stand there as text, and nothing of it runs."""
    view = visit(made.page)
    view.locator("#query").fill("broken")
    view.locator("#panel .hit").first.wait_for()
    for place in range(view.locator("#panel .hit").count()):
        view.locator("#panel .hit").nth(place).click()
        view.get_by_role("button", name="Back to the results").click()
    tabs = view.get_by_role("tab")
    for place in range(tabs.count()):
        tabs.nth(place).click()
        view.get_by_role("button", name="As the model sees it").click()
    made_of_text = "body :is(main, aside, header) :is(script, img, iframe, b[onload], svg[onload])"
    assert view.locator(made_of_text).count() == 0
    assert view.evaluate("() => window.broken") is None
    assert made.page.read_text("utf-8").count("<script") == 2
    assert "onerror" not in made.page.read_text("utf-8").partition("<body>")[2].partition("data")[0]


def test_the_page_itself_refuses_markup_and_the_network(browser: Browser, made: Made) -> None:
    """The content policy holds even where a script would ask for it."""
    view = browser.new_page()
    view.goto(made.page.as_uri())
    view.wait_for_selector("html[data-ready]")
    for attempt in (
        "() => { document.body.innerHTML = '<p>x</p>' }",
        "() => fetch('data:text/plain,x').then(() => null)",
        "() => { document.createElement('script').textContent = 'window.broken = 1' }",
    ):
        with pytest.raises(Exception, match=r"TrustedHTML|TrustedScript|fetch"):
            view.evaluate(attempt)
    view.close()


def test_the_records_can_be_searched(visit: Callable[..., Page], made: Made) -> None:
    """All words first, marked in hit and record; by layer; any of the words where all find nothing."""
    view = visit(made.page)
    query, panel = view.locator("#query"), view.locator("#panel")
    query.fill("Never touch file_3.txt")
    panel.get_by_text("2 records match").wait_for()
    # The message itself, before the checkpoint that quotes it.
    assert "Checkpoint" not in (panel.locator(".hit").first.text_content() or "")
    assert "Checkpoint" in (panel.locator(".hit").last.text_content() or "")
    assert panel.locator(".hit mark").first.text_content() == "Never"
    panel.locator(".hit").first.click()
    assert "Never touch file_3.txt" in (panel.locator(".exact").text_content() or "")
    assert "file_3.txt" in panel.locator(".exact mark").all_text_contents()
    query.fill('"table of every token"')
    panel.locator(".panel-title", has_text="records match").wait_for()
    found = panel.locator(".hit").count()
    panel.get_by_role("button", name="narrative", exact=True).click()
    assert 0 < panel.locator(".hit").count() < found
    assert set(panel.locator(".hit .layer").all_text_contents()) == {"narrative"}
    panel.get_by_role("button", name="All", exact=True).click()
    query.fill("file_3.txt nowhereatall")
    panel.get_by_text("by any of the words").wait_for()
    query.fill("nowhereatall")
    panel.get_by_text("No record holds any of these words").wait_for()
    query.fill("CAFE")
    panel.locator(".hit mark", has_text="café").first.wait_for()


def test_an_anchor_is_a_search(visit: Callable[..., Page], made: Made) -> None:
    """Its records open beside the checkpoint; Esc leads back to it."""
    view = visit(made.page)
    anchor = view.locator("#compaction .anchor").first
    token = anchor.text_content()
    anchor.focus()
    view.keyboard.press("Enter")
    view.locator("#panel .hit mark").first.wait_for()
    assert view.locator("#query").input_value() == token
    view.keyboard.press("Escape")
    assert view.locator("#panel").is_hidden()
    assert view.evaluate("() => document.activeElement.textContent") == token


def test_the_whole_page_works_by_keyboard(visit: Callable[..., Page], made: Made) -> None:
    """From the skip link through search, hits, compactions, pointers and the timeline."""
    view = visit(made.page)
    keyboard = view.keyboard
    keyboard.press("Tab")
    assert focused(view) == "skip"
    keyboard.press("/")
    assert focused(view) == "query"
    keyboard.type("parser")
    keyboard.press("ArrowDown")
    first = view.evaluate("() => document.activeElement.dataset.seq")
    keyboard.press("ArrowDown")
    second = view.evaluate("() => document.activeElement.dataset.seq")
    assert None not in {first, second}
    assert first != second
    keyboard.press("Enter")
    assert focused(view) == "panel-title"
    assert view.locator("#panel .exact mark").count() > 0
    keyboard.press("Escape")
    assert focused(view) == "query"
    reached = []
    for _ in range(400):
        keyboard.press("Tab")
        reached.append(focused(view))
        if reached[-1] in {"gap", "line"}:
            break
        if reached[-1] == "tab-0":
            keyboard.press("ArrowRight")
            assert focused(view) == "tab-1"
            keyboard.press("Enter")
            assert view.locator("#tab-1").get_attribute("aria-selected") == "true"
        if reached[-1] == "plot":
            before = view.locator(".plot").get_attribute("aria-valuetext")
            keyboard.press("ArrowLeft")
            assert view.locator(".plot").get_attribute("aria-valuetext") != before
            assert view.locator(".readout").is_visible()
    assert {"theme", "plot", "tab-0"} <= set(reached)
    call = view.evaluate("() => document.activeElement.dataset.call")
    keyboard.press("Enter")
    assert focused(view) == "panel-title"
    assert view.locator("#panel .call").text_content() == call
    keyboard.press("Escape")
    assert view.evaluate("() => document.activeElement.dataset.call") == call


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_follow_the_system_and_the_button(
    visit: Callable[..., Page], made: Made, scheme: str
) -> None:
    """The button turns them round, by keyboard too, and says which are on."""
    view = visit(made.page, color_scheme=scheme)
    paper = "() => getComputedStyle(document.body).backgroundColor"
    before = view.evaluate(paper)
    assert view.locator("#theme").get_attribute("aria-pressed") == str(scheme == "dark").lower()
    view.locator("#theme").focus()
    view.keyboard.press("Space")
    assert view.evaluate(paper) != before
    assert view.locator("#theme").get_attribute("aria-pressed") == str(scheme == "light").lower()
    view.keyboard.press("Space")
    assert view.evaluate(paper) == before


@pytest.mark.parametrize("width", [360, 820, 1600])
def test_nothing_is_wider_than_the_window(
    visit: Callable[..., Page], made: Made, width: int
) -> None:
    """On a telephone, a tablet and a desk, with the panel open and shut; on paper without a panel."""
    view = visit(made.page)
    view.set_viewport_size({"width": width, "height": 900})
    wider = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert view.evaluate(wider) <= 0
    view.locator("#compaction [data-call]").first.click()
    assert view.evaluate(wider) <= 0
    view.emulate_media(media="print")
    assert view.locator("#panel").is_hidden()
    assert view.locator("header.bar").is_hidden()
    assert view.locator("#compaction").is_visible()


def test_an_archive_of_several_sessions_has_a_menu(
    visit: Callable[..., Page], made: Made, tmp_path: Path
) -> None:
    """Choosing one shows its life and its records, and no others."""
    (log,) = made.page.parent.glob("*.jsonl")
    archive, out = tmp_path / "a.db", tmp_path / "r.html"
    for window in ("30000", "20000"):
        run("compact", log, "--archive", archive, "--window", window)
    run("report", archive, "-o", out)
    view = visit(out)
    menu = view.get_by_label("Session", exact=True).and_(view.locator("select"))
    seen = set()
    for place in range(2):
        menu.select_option(index=place)
        seen.add(view.locator("main .facts").first.text_content())
        assert view.locator("#compaction [data-call]").count() > 0
    assert len(seen) == 2


def test_five_thousand_records_are_searched(visit: Callable[..., Page], tmp_path: Path) -> None:
    """Of one page; the one that holds all words is found, and only so many are laid out."""
    records = tuple(
        Record(
            session="s",
            seq=seq,
            layer="finding",
            role="tool",
            name="bash",
            event="{}",
            text=f"cat part_{seq}.py\n" + "the parser keeps a table of every token met " * 14,
        )
        for seq in range(5_000)
    )
    told = SessionView(
        session="s",
        title=None,
        format=None,
        model=None,
        window=None,
        threshold=None,
        points=(),
        compactions=(),
        records=records,
        warnings=(),
    )
    out = tmp_path / "r.html"
    shown = Report(name="a.db", origin="archive", version="0", sessions=(told,))
    out.write_text(render(shown), "utf-8")
    view = visit(out)
    view.locator("#query").fill("parser")
    view.locator(".panel-title", has_text="5,000 records match").wait_for()
    assert view.locator("#panel .hit").count() < 100
    view.locator("#query").fill("part_4321 token")
    view.locator(".panel-title", has_text="1 record matches").wait_for()
    assert view.locator("#panel .hit").get_attribute("data-seq") == "4321"
