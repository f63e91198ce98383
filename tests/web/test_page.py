"""The page in a real browser, on the real server in a process of its own.

Where no browser is found they fail, and say what to install.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

import onefold
from onefold import Fact, LabelEnd, Summary
from onefold.ids import system_clock
from onefold.model import Json
from onefold.server.security.tokens import Tokens
from tests.support.helpers import Child
from tests.support.page_server import fill
from tests.support.page_story import MAIN, POLICY, tell
from tests.support.page_views import CONTRAST, DESK, PHONE, Served, Shown, launched, said

pytestmark = pytest.mark.xdist_group("page")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One server for all tests here. Each that writes has a session of its own."""
    folder = tmp_path_factory.mktemp("page")
    address = folder / "agent.db"
    tell(address, system_clock(), large=False)
    with Child(
        "serve", module="tests.support.page_server", address=str(address), tokens=str(folder / "tokens")
    ) as child:
        yield Served(address, child)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launched() as opened:
        yield opened


@pytest.fixture
def shown(browser: Browser, served: Served) -> Iterator[Shown]:
    context = browser.new_context(viewport=DESK)
    tab = Shown(context.new_page(), served)
    yield tab
    context.close()
    assert tab.errors == []


@pytest.fixture
def on_phone(browser: Browser, served: Served) -> Iterator[Shown]:
    context = browser.new_context(viewport=PHONE, has_touch=True, is_mobile=True)
    tab = Shown(context.new_page(), served)
    yield tab
    context.close()
    assert tab.errors == []


def write(served: Served, session: str, *messages: Json) -> None:
    with onefold.open(served.address, policy=POLICY) as store:
        store.session(session).append(list(messages))


def talk(count: int, start: int = 1) -> list[Json]:
    roles = ("user", "assistant")
    return [
        {"role": roles[(n + 1) % 2], "content": f"Message {n}: " + "so much was said about this. " * 20}
        for n in range(start, start + count)
    ]


def row(page: Page, number: int) -> Locator:
    return page.locator(f'.row[data-number="{number}"]')


def confirm(page: Page, label: str) -> str:
    """Reads what a dialog says it will do, and lets it."""
    dialog = page.get_by_role("dialog")
    promise = dialog.inner_text()
    dialog.get_by_role("button", name=label, exact=True).click()
    expect(dialog).to_have_count(0)
    return promise


# ---------------------------------------------------------------------- the list


def test_the_list_has_every_session_with_its_state_its_size_and_its_problems_first(shown: Shown) -> None:
    page = shown.page
    sessions = page.locator(".session")

    expect(sessions.filter(has_text=MAIN).first).to_be_visible()
    running = page.locator('.session[data-session="search/reindex-products"]')
    expect(running.locator(".state")).to_have_text("compacting")
    gauge = page.locator(f'.session[data-session="{MAIN}"] [role="meter"]')
    expect(gauge).to_have_attribute("aria-valuetext", re.compile(r"[\d,]+ of 64,000 tokens, soft limit 39,200"))
    expect(gauge.locator(".tick")).to_have_count(2)


def test_a_session_with_a_problem_stands_before_newer_ones_without(shown: Shown, served: Served) -> None:
    with onefold.open(served.address, policy=POLICY, summarizer=_unreachable) as store:
        session = store.session("troubled")
        session.append(talk(40))
        session.context()
        session.compact(trigger="limit")
    write(served, "newer than the troubled one", *talk(2))

    shown.page.reload()

    first = shown.page.locator(".session").first
    expect(first).to_have_attribute("data-session", "troubled")
    expect(first.locator(".problem").first).to_contain_text("compaction failed")


def _unreachable(material: object) -> str:
    raise ConnectionError("no route to the model")


def test_a_message_that_comes_is_counted_without_asking_the_server(shown: Shown, served: Served) -> None:
    write(served, "counted", *talk(4))
    page = shown.open("counted")
    figures = page.locator(".figures")
    expect(figures).to_contain_text("4 messages")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))

    write(served, "counted", *talk(2, start=5))

    expect(figures).to_contain_text("6 messages")
    assert asked == []
    with onefold.open(served.address, policy=POLICY) as store:
        state = store.session("counted").state
    expect(page.get_by_role("meter")).to_have_attribute("aria-valuetext", re.compile(f"^{state.tokens:,} "))


def test_the_list_is_filtered_as_one_types(shown: Shown) -> None:
    page = shown.page
    expect(page.locator(".session").nth(3)).to_be_visible()

    page.get_by_label("Filter sessions").press_sequentially("embeddings")

    expect(page.locator(".session")).to_have_count(1)
    expect(page.locator(".session .title")).to_contain_text("embedding models")
    page.get_by_label("Filter sessions").fill("no session is called so")
    expect(page.get_by_text("No session matches")).to_be_visible()


def test_a_session_that_another_process_makes_appears_in_the_list(shown: Shown, served: Served) -> None:
    expect(shown.page.locator("#live")).to_have_text("live")

    with Child(
        "append", module="tests.support.page_server", address=served.address, session="made elsewhere", texts=["Hello"]
    ) as it:
        it.hear("done")

    expect(shown.page.locator('.session[data-session="made elsewhere"]')).to_be_visible()


# ---------------------------------------------------------------------- a session


def test_what_another_process_appends_appears_at_once(shown: Shown, served: Served) -> None:
    write(served, "live", *talk(4))
    page = shown.open("live")

    with Child(
        "append", module="tests.support.page_server", address=served.address, session="live", texts=["From elsewhere"]
    ) as it:
        it.hear("done")

    expect(page.get_by_text("From elsewhere")).to_be_in_viewport()


def test_what_comes_while_one_reads_moves_nothing_and_is_counted(shown: Shown, served: Served) -> None:
    write(served, "reading", *talk(60))
    page = shown.open("reading", view="all", at=20)
    expect(row(page, 20)).to_be_in_viewport()
    expect(row(page, 24)).not_to_have_attribute("aria-busy", "true")
    before = _settled_top(page, 20)

    with Child(
        "append", module="tests.support.page_server", address=served.address, session="reading", texts=["a", "b", "c"]
    ) as it:
        it.hear("done")

    pill = page.get_by_role("button", name="3 new")
    expect(pill).to_be_visible()
    assert abs(_top(page, 20) - before) < 2
    pill.click()
    expect(row(page, 64)).to_be_in_viewport()
    expect(pill).to_be_hidden()


def _top(page: Page, number: int) -> float:
    box = row(page, number).bounding_box()
    assert box is not None
    return box["y"]


def _settled_top(page: Page, number: int) -> float:
    """Where a row stands once it has stood still for some frames."""
    place = page.evaluate(
        """async (number) => {
          const at = () => document.querySelector(`.row[data-number="${number}"]`)?.getBoundingClientRect().top ?? -1;
          let before = at();
          for (let still = 0; still < 12; ) {
            await new Promise(requestAnimationFrame);
            still = at() === before ? still + 1 : 0;
            before = at();
          }
          return before;
        }""",
        number,
    )
    return float(place)


def test_compacting_and_undoing_through_the_page(shown: Shown, served: Served) -> None:
    write(served, "acting", *talk(40))
    page = shown.open("acting")

    page.get_by_role("button", name="Compact…").click()
    page.get_by_label("Instructions for the summary").fill("Keep the numbers.")
    promise = confirm(page, "Compact")

    assert "Nothing is deleted" in promise
    fold = page.locator(".row.fold")
    page.keyboard.press("Home")
    expect(fold).to_contain_text("Summary of")
    expect(fold).to_contain_text("Wish: Keep the numbers.")
    expect(page.locator(".cut")).to_have_count(1)
    page.keyboard.press("G")
    expect(row(page, 41)).to_be_in_viewport()
    last = page.locator("article", has_text=re.compile(r"\S")).last  # the summary stands once, in its own place
    expect(last).to_contain_text("Message 40")

    page.get_by_role("button", name="Undo…").click()
    promise = confirm(page, "Take it back")

    assert "Message 39" in promise
    expect(page.get_by_role("button", name="Redo…")).to_be_visible()
    page.get_by_role("radio", name="As it happened").click()
    page.keyboard.press("G")
    expect(page.locator(".row.hidden").first).to_be_attached()

    page.get_by_role("button", name="Redo…").click()
    confirm(page, "Restore")
    expect(page.locator(".row.hidden")).to_have_count(0)


def test_a_fold_opens_to_the_original_messages_and_to_the_fold_before_it(shown: Shown, served: Served) -> None:
    with onefold.open(served.address, policy=POLICY, summarizer=lambda m: f"Summary {len(m.records)}") as store:
        session = store.session("folded")
        for start in (1, 41):
            session.append(talk(40, start))
            session.context()
            assert session.compact().applied
    page = shown.open("folded")
    page.keyboard.press("Home")
    expect(page.locator(".row.fold")).to_have_count(1)
    expect(said(page, "Message 5:")).to_have_count(0)

    page.get_by_role("button", name=re.compile("Unfold")).click()
    page.get_by_role("button", name=re.compile("Unfold")).click()

    expect(page.locator(".row.fold")).to_have_count(2)
    expect(said(page, "Message 1:")).to_be_attached()

    page.get_by_role("button", name="Fold the originals").first.click()

    expect(said(page, "Message 1:")).to_have_count(0)
    expect(page.locator(".row.fold")).to_have_count(1)


def test_a_compaction_is_taken_back_through_the_page_which_says_what_it_costs(shown: Shown, served: Served) -> None:
    with onefold.open(served.address, policy=POLICY, summarizer=lambda m: f"Summary {len(m.records)}") as store:
        session = store.session("taken back")
        for start in (1, 41):
            session.append(talk(40, start))
            session.context()
            assert session.compact().applied
        session.append(talk(2, 81))
        before = session.context()
    page = shown.open("taken back")
    page.keyboard.press("Home")

    page.get_by_role("button", name=re.compile(r"Tell the model the originals again, about \+\S+ tok")).click()
    promise = confirm(page, "Take the compaction back")

    assert re.search(r"word for word: \S+ → \S+ tokens", promise)
    assert "What was said since stays" in promise
    expect(page.locator(".row.fold")).to_contain_text("Compaction 1")
    expect(said(page, "Message 32:")).to_be_attached()
    with onefold.open(served.address) as store:
        assert store.session("taken back").context().messages[-2:] == before.messages[-2:]

    page.get_by_role("button", name="Undo…").click()
    promise = confirm(page, "Fold it again")

    assert "no message is hidden" in promise
    expect(page.locator(".row.fold")).to_contain_text("Compaction 2")
    page.get_by_role("button", name="Redo…").click()
    assert "Takes the compaction back again" in confirm(page, "Restore")
    expect(page.locator(".row.fold")).to_contain_text("Compaction 1")
    with onefold.open(served.address) as store:
        assert len(store.session("taken back").segments()[-1].unfolds) == 1


def test_a_summary_is_written_again_compared_and_taken_or_thrown_away(shown: Shown, served: Served) -> None:
    with onefold.open(served.address, policy=POLICY, summarizer=lambda m: "At first: src/alpha.py was named.") as store:
        session = store.session("written again")
        session.append(talk(40))
        session.context()
        assert session.compact().applied
        session.append(talk(2, 41))
    page = shown.open("written again")
    page.keyboard.press("Home")

    for taken in (False, True):
        page.get_by_role("button", name="Summarise again…").click()
        page.get_by_role("dialog").get_by_role("textbox").fill("Name migration_7")
        page.get_by_role("button", name="Write a draft").click()
        dialog = page.get_by_role("dialog").filter(has_text="The present summary, and the draft")
        expect(dialog).to_contain_text("Only in the present one: src/alpha.py")
        expect(dialog).to_contain_text("Only in the draft: 30, migration_7")
        expect(dialog.locator("section").nth(0).locator("mark").filter(has_text="alpha")).to_have_count(1)
        expect(dialog.locator("section").nth(1).locator("mark").filter(has_text="migration_7")).to_have_count(1)
        dialog.get_by_role("button", name="Take the draft" if taken else "Throw it away", exact=True).click()
        expect(page.get_by_role("dialog")).to_have_count(0)
        expect(page.locator(".row.fold").first).to_contain_text("Wish: Name migration_7" if taken else "src/alpha.py")

    with onefold.open(served.address) as store:
        session = store.session("written again")
        assert "migration_7" in str(session.context().summary)
        assert [r.kind for r in session.read()].count("summary.drafted") == 2
        assert [r.actor for r in session.read() if r.kind == "summary.drafted"] != [None, None]


def test_a_masked_result_says_so_and_opens(shown: Shown, served: Served) -> None:
    with onefold.open(served.address, policy=POLICY) as store:
        session = store.session("masked here")
        session.append({"role": "user", "content": "look"})
        calls = [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}]
        session.append({"role": "assistant", "content": None, "tool_calls": calls})
        number = session.append({"role": "tool", "tool_call_id": "c1", "content": "what it gave " * 60}).numbers[0]
        session.append({"role": "user", "content": "and now?"})
        session.mask(number)
    page = shown.open("masked here")
    row = page.locator(f".row[data-number='{number}']")

    expect(row.locator(".tag", has_text="masked")).to_be_visible()
    expect(row.locator("details[open]")).to_have_count(0)
    row.locator("summary").first.click()
    expect(row.locator("details[open]")).to_contain_text("what it gave " * 59)


def test_what_the_provider_compacted_is_marked_and_not_called_undone(shown: Shown, served: Served) -> None:
    with onefold.open(served.address, policy=POLICY) as store:
        session = store.session("sealed here")
        session.append(talk(4))
        sent = session.context()
        item = {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAAAABo"}
        (number,) = session.append(item, format="openai-responses").numbers
        session.adopt(number, origin=onefold.Origin("openai"), covers=sent)
    page = shown.open("sealed here")
    page.keyboard.press("m")

    expect(page.get_by_role("radio", name="As it happened")).to_be_checked()
    expect(row(page, number).locator(".tag")).to_have_text("provider's")


def test_a_fold_tells_how_it_was_made(shown: Shown) -> None:
    page = shown.open(MAIN)
    page.locator(".cut:not(.other)").first.press("Enter")
    fold = page.locator(".row.fold").first
    expect(fold).to_contain_text("Goal.")

    fold.get_by_text("How it was made").click()
    fold.get_by_text("Quotes").click()

    account = fold.locator(".account")
    for words in ("before", "soft: the soft limit was reached", "1 of 3", "builder (process", "claude-haiku", "1 call"):
        expect(account).to_contain_text(words)
    expect(fold.locator(".covers .ref").first).to_be_visible()


def test_the_two_views_show_what_the_model_sees_and_what_happened(shown: Shown, served: Served) -> None:
    with onefold.open(served.address) as store:
        undone = next(r for r in store.session(MAIN).read() if "Drop the old index" in str(r.body))
    page = shown.open(MAIN)
    page.keyboard.press("Home")
    expect(page.locator(".standing").filter(has_text="Never touch production data").first).to_be_attached()
    expect(page.locator(".row.pinned").first).to_be_attached()
    expect(page.get_by_text("Drop the old index right away")).to_have_count(0)

    page.keyboard.press("#")
    page.keyboard.type(str(undone.number))
    page.keyboard.press("Enter")

    expect(page.get_by_role("radio", name="As it happened")).to_be_checked()
    expect(row(page, undone.number)).to_contain_text("Drop the old index right away")
    expect(row(page, undone.number).locator(".tag")).to_have_text("undone")
    expect(page.get_by_text("Undone:")).to_be_attached()


def test_pinning_forking_and_cancelling_say_first_what_they_do(shown: Shown, served: Served) -> None:
    write(served, "marked", *talk(6))
    with onefold.open(served.address, policy=POLICY) as store:
        store.journal.request("marked", trigger="soft")
    page = shown.open("marked")

    row(page, 3).get_by_role("button", name="Actions for record 3").click()
    page.get_by_role("menuitem", name="Pin…").click()
    assert "stays in every context" in confirm(page, "Pin")
    expect(row(page, 3)).to_have_class(re.compile("pinned"))

    page.get_by_role("button", name="Cancel…").click()
    assert "context stays as it is" in confirm(page, "Cancel the compaction")
    expect(page.locator(".compacting")).to_have_count(0)

    page.get_by_role("button", name="Fork…").click()
    page.get_by_label("Its id").fill("marked/fork")
    assert "Nothing is copied" in confirm(page, "Fork")
    expect(page.locator(".head .tag")).to_contain_text("fork of marked")


def test_exporting_gives_every_record(shown: Shown, served: Served) -> None:
    write(served, "taken along", *talk(3))
    page = shown.open("taken along")

    page.get_by_role("button", name="Export…").click()
    with page.expect_download() as download:
        confirm(page, "Download")

    assert len(download.value.path().read_text().splitlines()) >= 4


def test_a_refusal_is_shown_in_words_with_what_to_do(shown: Shown, served: Served) -> None:
    write(served, "moved on", *talk(4))
    page = shown.open("moved on")
    page.route(
        "**/api/fork**",
        lambda route: route.fulfill(
            status=409, json={"error": {"kind": "Moved", "message": "The session moved on.", "remedy": "Look again."}}
        ),
    )

    page.get_by_role("button", name="Fork…").click()
    page.get_by_role("dialog").get_by_role("button", name="Fork", exact=True).click()

    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("The session moved on.")
    expect(alert).to_contain_text("Look again.")
    shown.errors.clear()  # the browser notes every answer of 409


# ---------------------------------------------------------------------- all compactions, health, search


def test_compactions_of_all_sessions_with_the_causes_of_failures(shown: Shown, served: Served) -> None:
    with onefold.open(served.address, policy=POLICY, summarizer=_unreachable) as store:
        session = store.session("out of reach")
        session.append(talk(40))
        session.context()
        session.compact(trigger="limit")
        store.session("waits for a worker").append(talk(4))
        store.journal.request("waits for a worker", trigger="soft")
    page = shown.page

    page.get_by_role("link", name="Compactions").click()

    expect(page.locator(".group.running")).to_contain_text("search/reindex-products")
    expect(page.locator(".group.waiting")).to_contain_text("waits for a worker")
    expect(page.locator(".group.failed")).to_contain_text("no route to the model")


def test_health_says_in_words_what_verify_finds(shown: Shown) -> None:
    page = shown.page
    page.get_by_role("link", name="Health").click()
    expect(page.get_by_text("Everything agrees with the journal")).to_be_visible()

    finding = {
        "session": "a",
        "what": "the head",
        "found": "3",
        "expected": "9",
        "mended": False,
        "fatal": False,
        "words": "session a, the head: there was 3, and should be 9; it can be mended",
    }
    report = {"sessions": 1, "records": 9, "healthy": False, "left": 1, "findings": [finding]}
    page.route("**/api/verify", lambda route: route.fulfill(json=report))
    page.get_by_role("button", name="Check again").click()

    expect(page.locator(".finding")).to_contain_text("there was 3, and should be 9")
    page.get_by_role("button", name="Repair it…").click()
    expect(page.get_by_role("dialog")).to_contain_text("The journal itself is not changed")


def test_a_hit_of_the_search_opens_at_its_record(shown: Shown, served: Served) -> None:
    write(served, "searched", *talk(30), {"role": "user", "content": "The word is pomegranate."}, *talk(30, 50))
    page = shown.page

    page.keyboard.press("/")
    page.keyboard.type("pomegranate")
    page.keyboard.press("Enter")
    expect(page.locator(".hit mark")).to_have_text("pomegranate")
    page.locator(".hit").click()

    expect(row(page, 32)).to_be_in_viewport()
    expect(row(page, 32)).to_contain_text("pomegranate")


# ---------------------------------------------------------------------- untrusted text

HOSTILE = (
    "<script>window.hurt = 1</script>",
    "<img src=x onerror='window.hurt = 2'>",
    "[click me](javascript:window.hurt=3) javascript:window.hurt=4",
    "<style>body { display: none }</style><link rel=stylesheet href=//evil.example>",
    "<a href='https://evil.example'>free</a> https://evil.example <iframe srcdoc='<script>top.hurt=5</script>'>",
    "before \u202egpj.exe\u202c after \u2066x\u2069 \u0000 nul",
    "<svg onload='window.hurt=6'><details open ontoggle='window.hurt=7'>",
    "x" * 300_000,
    "`<b>code</b>` and **<i>strong</i>**\n```html\n<script>window.hurt=8</script>\n```",
)


def test_nothing_in_a_transcript_takes_effect(shown: Shown, served: Served) -> None:
    name = "<img src=x onerror=window.hurt=9>"
    with onefold.open(
        served.address, policy=POLICY, summarizer=lambda m: "Summary <script>window.hurt=10</script>"
    ) as store:
        session = store.session(name)
        session.append([{"role": "user", "content": text} for text in HOSTILE], actor="<b>mallory</b>")
        session.append(
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": "1",
                        "type": "function",
                        "function": {
                            "name": "<b>rm</b>",
                            "arguments": '{"<i>a</i>": "<script>window.hurt=11</script>", "b": 1}',
                        },
                    }
                ],
            }
        )
        session.append({"role": "tool", "tool_call_id": "1", "content": "<script>window.hurt=12</script>"})
        session.append({"role": "constructor", "content": "odd"}, format="json")
        session.note("<u>rule</u>", "<img src=x onerror=window.hurt=13>")
        session.append(talk(30))
        session.context()
        session.compact(instructions="<script>window.hurt=14</script>")
    asked: list[str] = []
    shown.page.on("request", lambda request: asked.append(request.url))
    page = shown.page
    expect(page.locator(".session").filter(has_text=name).first).to_be_visible()

    for view in ("model", "all"):
        page = shown.open(name, view=view, at=2)
        for step in range(9):
            page.locator("main").evaluate("(main, step) => main.scrollTo(0, (main.scrollHeight * step) / 8)", step)
            expect(page.locator(".row.waits")).to_have_count(0)
            _nothing_came_of_it(page)
    page.goto(f"{served.url}/#/search?q=window")
    expect(page.locator(".hit").first).to_be_visible()
    _nothing_came_of_it(page)

    page = shown.open(name, view="all", at=2)
    expect(row(page, 2)).to_contain_text("<script>window.hurt = 1</script>")
    expect(row(page, 7).locator(".unseen").first).to_have_text("U+202E")
    assert [url for url in asked if not url.startswith(served.url)] == []


def _nothing_came_of_it(page: Page) -> None:
    found: Any = page.evaluate(
        """() => ({
          hurt: window.hurt ?? null,
          made: [...document.querySelectorAll('main :is(script, img, style, link, iframe, u, i, object)')].length,
          links: [...document.querySelectorAll('main a:not([href^="#/"])')].map(a => a.outerHTML),
          wide: document.documentElement.scrollWidth > innerWidth || main.scrollWidth > main.clientWidth,
          turned: /[\\u202a-\\u202e\\u2066-\\u2069]/.test(main.textContent),
        })"""
    )
    assert found == {"hurt": None, "made": 0, "links": [], "wide": False, "turned": False}


# ---------------------------------------------------------------------- many records

MANY = 100_000


@pytest.fixture(scope="module")
def many(served: Served) -> str:
    fill(served.address, "many", MANY)
    return "many"


def test_a_hundred_thousand_records_scroll_with_few_of_them_in_the_document(shown: Shown, many: str) -> None:
    shown.page.goto("about:blank")
    page = shown.open(many, view="all")
    expect(row(page, MANY + 1)).to_be_in_viewport()
    expect(page.locator(".place")).to_have_text("#100,001 of 100,001")
    assert page.evaluate("performance.now()") < 10_000  # since the page was asked for; a second, on a quiet machine

    seen = page.evaluate(
        """async () => {
          const main = document.getElementById('main');
          const frames = [];
          let most = 0;
          for (let i = 0; i < 60; i++) {
            main.scrollTop = i < 30 ? main.scrollTop - 700 : (main.scrollHeight * (60 - i)) / 31;
            const began = performance.now();
            await new Promise(requestAnimationFrame);
            frames.push(performance.now() - began);
            most = Math.max(most, document.querySelectorAll('*').length);
          }
          return { most, frame: frames.sort((a, b) => a - b)[30] };
        }"""
    )

    assert seen["most"] < 3_000
    assert seen["frame"] < 100  # milliseconds; half of them take less


def test_one_can_jump_to_the_middle_of_a_hundred_thousand_records(shown: Shown, many: str) -> None:
    page = shown.open(many, view="all")

    page.keyboard.press("#")
    page.keyboard.type("50,000")
    page.keyboard.press("Enter")

    expect(row(page, 50_000)).to_be_in_viewport()
    expect(row(page, 50_000)).to_contain_text("Line 49999.")
    place = _settled_top(page, 50_000)
    assert 0 < place < DESK["height"]


# ---------------------------------------------------------------------- themes, phones, keys


def test_dark_and_light_by_the_system_and_by_the_switch(browser: Browser, served: Served) -> None:
    context = browser.new_context(color_scheme="dark")
    page = Shown(context.new_page(), served).page
    assert _lightness(page) < 60

    page.get_by_role("button", name="Theme: system").click()
    page.get_by_role("button", name="Theme: dark").click()

    assert _lightness(page) > 200
    page.reload()
    assert _lightness(page) > 200
    context.close()


def _lightness(page: Page) -> int:
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return sum(int(part) for part in re.findall(r"\d+", colour)[:3]) // 3


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_enough_contrast(browser: Browser, served: Served, scheme: Any) -> None:
    context = browser.new_context(color_scheme=scheme, viewport=DESK, reduced_motion="reduce")
    shown = Shown(context.new_page(), served)
    expect(shown.page.locator(".session").first).to_be_visible()
    assert shown.page.evaluate(CONTRAST) == []

    page = shown.open(MAIN, view="all")
    assert page.evaluate(CONTRAST) == []
    page.keyboard.press("m")
    page.keyboard.press("Home")
    expect(page.locator(".row.fold").first).to_be_attached()
    assert page.evaluate(CONTRAST) == []
    context.close()


def test_a_phone_shows_everything_without_scrolling_sideways(on_phone: Shown) -> None:
    page = on_phone.page
    for path in ("#/", "#/compactions", "#/health", "#/search?q=deadlock"):
        page.goto(f"{on_phone.served.url}/{path}")
        expect(page.locator("main h1")).to_be_visible()
        _not_wide(page)
    page = on_phone.open(MAIN)
    _not_wide(page)
    page.get_by_role("radio", name="History").tap()
    _not_wide(page)
    page.get_by_role("button", name="Actions", exact=True).tap()
    page.get_by_role("menuitem", name="Compact…").tap()
    expect(page.get_by_role("dialog")).to_be_in_viewport(ratio=1)
    _not_wide(page)
    page.get_by_role("button", name="Not now").tap()
    expect(page.get_by_role("dialog")).to_have_count(0)


def _not_wide(page: Page) -> None:
    expect(page.locator(".row.waits")).to_have_count(0)
    assert page.evaluate("[document.documentElement.scrollWidth, document.getElementById('main').scrollWidth]") == [
        PHONE["width"],
        PHONE["width"],
    ]


def test_everything_can_be_done_with_the_keyboard_alone(shown: Shown, served: Served) -> None:
    write(served, "by hand", *talk(40))
    page = shown.page
    keys = page.keyboard
    expect(page.locator(".session").first).to_be_visible()

    keys.press("f")
    keys.type("by hand")
    expect(page.locator(".session")).to_have_count(1)
    keys.press("Escape")
    keys.press("j")
    keys.press("Enter")
    expect(page.locator(".head .id")).to_have_text("by hand")
    expect(row(page, 41)).to_be_in_viewport()

    keys.press("k")
    keys.press("k")
    expect(page.locator(".row:focus")).to_have_attribute("data-number", "40")
    keys.press("p")
    expect(page.get_by_role("dialog")).to_be_visible()
    keys.press("Enter")
    expect(row(page, 40)).to_have_class(re.compile("pinned"))
    expect(row(page, 40)).to_be_focused()

    keys.press("c")
    expect(page.get_by_role("dialog")).to_be_visible()
    keys.press("Tab")
    keys.press("Tab")
    keys.press("Enter")
    expect(page.locator(".cut")).to_have_count(1)
    expect(page.get_by_role("dialog")).to_have_count(0)  # until the answer is here, it has the keys
    expect(page.locator(".head")).to_contain_text("1 compaction")  # the curve may know of it before that
    keys.press("[")
    expect(page.locator(".row.fold:focus")).to_have_count(1)
    keys.press("Enter")
    expect(said(page, "Message 1:")).to_be_attached()
    keys.press("m")
    expect(page.get_by_role("radio", name="As it happened")).to_be_checked()

    keys.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    keys.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    keys.press("g")
    keys.press("c")
    expect(page.locator("h1")).to_have_text("Compactions")
    keys.press("Escape")
    expect(page.locator("h1")).to_have_text("Sessions")


def test_who_unfolds_with_the_keyboard_goes_on_from_there(shown: Shown, served: Served) -> None:
    with onefold.open(served.address, policy=POLICY, summarizer=lambda m: f"Summary {len(m.records)}") as store:
        session = store.session("unfolded by keys")
        session.append(talk(40))
        session.context()
        assert session.compact().applied
    page = shown.open("unfolded by keys")
    page.keyboard.press("Home")
    fold = page.locator(".row.fold")
    unfold = fold.locator("button.unfold")
    unfold.focus()

    page.keyboard.press("Enter")
    expect(unfold).to_have_text("Fold the originals")
    expect(unfold).to_be_focused()
    page.keyboard.press("Space")
    expect(unfold).to_contain_text("Unfold")
    expect(unfold).to_be_focused()

    details = fold.locator("details.made > summary")
    details.focus()
    with onefold.open(served.address, policy=POLICY) as store:
        store.session("unfolded by keys").pin(33)
    expect(row(page, 33)).to_have_class(re.compile("pinned"))  # the whole list was drawn again
    expect(details).to_be_focused()


@pytest.mark.parametrize("records", [1, 2, 3, 7])
def test_nothing_that_is_written_on_a_short_curve_lies_on_something_else(
    shown: Shown, served: Served, records: int
) -> None:
    write(served, f"short {records}", *talk(records))
    page = shown.open(f"short {records}")

    expect(page.locator(".curve text.axis").first).to_be_attached()
    boxes = page.locator(".curve text.axis").evaluate_all(
        """(all) => all.map((one) => {
          const box = one.getBoundingClientRect();
          return [box.left, box.top, box.right, box.bottom, one.textContent];
        })"""
    )
    clashes = [
        (a[4], b[4])
        for at, a in enumerate(boxes)
        for b in boxes[at + 1 :]
        if a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
    ]
    assert clashes == []


def test_an_address_that_names_no_view_shows_the_list(shown: Shown) -> None:
    """L11: what every object has is no view. The fixture complains about errors."""
    for name in ("constructor", "__proto__", "toString", "hasOwnProperty", "session", "nowhere"):
        shown.page.goto(f"{shown.served.url}/#/health")
        expect(shown.page.locator("h1")).to_have_text("Health")

        shown.page.goto(f"{shown.served.url}/#/{name}")

        expect(shown.page.locator("h1")).to_have_text("Sessions")
        expect(shown.page.locator("#live")).to_have_text("live")


@pytest.mark.parametrize("cut", [False, True], ids=["followed", "cut off"])
def test_a_page_whose_token_is_revoked_says_so_and_asks_no_more(browser: Browser, served: Served, cut: bool) -> None:
    """L11: whether it is told, or comes again and is refused."""
    tokens = Tokens(Path(served.address).parent / "tokens")
    secret, _ = tokens.new("passing", ["read"])
    context = browser.new_context(viewport=DESK)
    page = context.new_page()
    page.clock.install()
    page.goto(f"{served.url}/?token={secret}")
    lamp = page.locator("#live")
    expect(lamp).to_have_text("live")
    if cut:
        context.set_offline(True)
        page.goto(f"{served.url}/#/compactions")
        expect(lamp).to_have_text("reconnecting")

    tokens.revoke("passing")
    context.set_offline(False)

    expect(lamp).to_have_text("token no longer valid", timeout=20_000)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.clock.fast_forward("10:00")
    page.evaluate("fetch('static/icon.svg')")  # behind whatever the page may have asked for
    assert [url.rpartition("/")[2] for url in asked] == ["icon.svg"]
    context.close()


def test_an_answer_that_nobody_waits_for_any_more_is_no_error(shown: Shown, served: Served) -> None:
    """A page of records is let go of while its body is on the way: one has scrolled on."""
    fill(served.address, "scrolled past", 400)
    page = shown.page
    page.add_init_script(SLOW_RECORDS)
    page.reload()
    shown.open("scrolled past", view="all")

    page.evaluate("window.slow = true")
    page.keyboard.press("Home")
    page.evaluate("window.underWay")
    page.keyboard.press("G")
    page.evaluate("window.cut")

    expect(row(page, 401)).to_be_in_viewport()
    assert page.locator(".toast").all_inner_texts() == []


SLOW_RECORDS = """(() => {
  let began, ended;
  window.underWay = new Promise((done) => { began = done; });
  window.cut = new Promise((done) => { ended = done; });
  const real = window.fetch;
  window.fetch = async (address, options = {}) => {
    const answer = await real(address, options);
    if (!window.slow || !String(address).startsWith("api/records")) return answer;
    window.slow = false;
    // The head is here, and the body comes until somebody says that it is not wanted.
    const body = new ReadableStream({ start: (stream) => options.signal.addEventListener("abort", () => {
      stream.error(options.signal.reason);
      setTimeout(ended, 100);
    }) });
    began();
    return new Response(body, { status: answer.status, headers: answer.headers });
  };
})()"""


def test_a_lost_server_is_said_to_be_lost(shown: Shown, served: Served) -> None:
    expect(shown.page.locator("#live")).to_have_text("live")

    shown.page.route("**/api/**", lambda route: route.abort())
    with Child(
        "append", module="tests.support.page_server", address=served.address, session="unseen", texts=["x"]
    ) as it:
        it.hear("done")

    expect(shown.page.get_by_role("alert")).to_contain_text("The server does not answer.")
    shown.page.unroute_all(behavior="wait")
    again = shown.page.get_by_role("button", name="Try again")
    again.evaluate_all("found => found.forEach((one) => one.click())")  # unless the page has gone on by itself
    expect(shown.page.locator('.session[data-session="unseen"]')).to_be_visible()
    shown.errors.clear()  # the browser notes what did not come


# ---------------------------------------------------------------------- who else has the browser's cookie


class Neighbour(ThreadingHTTPServer):
    """Another server on this machine, which keeps the cookies that browsers send it."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Keeps)
        self.cookies: list[str] = []
        self.url = f"http://127.0.0.1:{self.server_port}"


class _Keeps(BaseHTTPRequestHandler):
    server: Neighbour

    def do_GET(self) -> None:
        if (cookie := self.headers.get("Cookie")) is not None:
            self.server.cookies.append(cookie)
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>a neighbour</title>")

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def neighbour() -> Iterator[Neighbour]:
    with Neighbour() as made:
        thread = threading.Thread(target=made.serve_forever, daemon=True)
        thread.start()
        yield made
        made.shutdown()
        thread.join(10)


def test_what_another_port_gets_of_the_browser_opens_nothing(
    browser: Browser, served: Served, neighbour: Neighbour
) -> None:
    """M9: browsers send cookies to every port of a host. The thief sends it on, with what headers it likes."""
    context = browser.new_context(viewport=DESK)
    page = context.new_page()
    page.goto(f"{served.url}/?token={served.token}")
    expect(page.locator("#live")).to_have_text("live")
    assert "page=" not in page.url
    assert served.token not in page.evaluate("document.cookie + JSON.stringify(localStorage)")

    other = context.new_page()
    other.goto(neighbour.url)
    port = served.url.rpartition(":")[2]
    stolen = next(c for c in neighbour.cookies if f"onefold-{port}=" in c)
    value = stolen.partition(f"onefold-{port}=")[2].partition(";")[0]

    assert served.token not in stolen
    assert other.evaluate("localStorage.length") == 0, "the other half is kept where no other port can read it"
    like_the_page = {"Origin": served.url, "Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}
    for headers in (
        {"Authorization": f"Bearer {value}"}, {"Cookie": stolen}, {"Cookie": stolen, **like_the_page},
        {"Cookie": stolen, **like_the_page, "X-Onefold-Page": value}, {"X-Onefold-Page": value, **like_the_page},
    ):  # fmt: skip
        for path in ("/api/sessions", "/api/rooms", "/api/events", "/metrics", "/debug/sessions", "/api/export"):
            assert httpx.get(f"{served.url}{path}", headers=headers, timeout=10).status_code == 401
        assert httpx.post(f"{served.url}/api/logout", headers=headers, timeout=10).status_code in (401, 403)
        assert httpx.post(f"{served.url}/api/append?session=x", json={}, headers=headers).status_code in (401, 403)
    tried = other.evaluate(
        """async (url) => {
          const options = { credentials: "include" };
          const asked = await fetch(`${url}/api/sessions`, options).then((answer) => answer.status, () => "refused");
          const socket = new WebSocket(url.replace("http", "ws") + "/api/live", ["onefold", "onefold.page.none"]);
          const opened = await new Promise((done) => {
            socket.onopen = () => done("open");
            socket.onerror = () => done("refused");
          });
          return [asked, opened];
        }""",
        served.url,
    )
    assert tried == ["refused", "refused"]

    page.reload()
    expect(page.locator("#live")).to_have_text("live")
    context.close()


def test_a_browser_that_was_let_in_needs_no_link_in_another_tab_and_logs_out_in_all(
    browser: Browser, served: Served
) -> None:
    context = browser.new_context(viewport=DESK)
    first, second = context.new_page(), context.new_page()
    first.goto(f"{served.url}/?token={served.token}")
    expect(first.locator("#live")).to_have_text("live")
    second.goto(f"{served.url}/#/health")
    expect(second.locator("h1")).to_have_text("Health")
    second.goto(f"{served.url}/")
    expect(second.locator("#live")).to_have_text("live")

    first.keyboard.press("?")
    first.get_by_role("button", name="Log out…").click()
    expect(first.get_by_role("dialog")).to_contain_text("until a link with a token is opened again")
    first.get_by_role("dialog").get_by_role("button", name="Log out", exact=True).click()

    expect(second.locator("#live")).to_have_text("token no longer valid", timeout=20_000)
    expect(first.get_by_role("heading", name="Sign in to onefold")).to_be_visible()
    expect(first.locator(".why")).to_have_text("A token is needed.")
    assert first.evaluate("localStorage.length") == 0
    assert context.cookies() == []
    first.goto(f"{served.url}/?token={served.token}")
    expect(first.locator("#live")).to_have_text("live")
    context.close()


def test_labels_stand_by_kind_with_what_ended_them_and_identifiers_folded_together(
    shown: Shown, served: Served
) -> None:
    with onefold.open(served.address, policy=replace(POLICY, tail_tokens=200, quote_tokens=2_000)) as store:
        session = store.session("labelled")
        texts = (
            "The port is 8081 from now on.",
            "Never push to main, ok?",
            "Spend 40 euros at most.",
            "Fine, push again.",
        )
        port, push, cost, over = session.append([{"role": "user", "content": text} for text in texts]).numbers
        session.append(talk(12))
        facts = [Fact("identifier", "port", texts[0], port), Fact("rule", "push", texts[1], push)]
        made = Summary(
            "They set out the rules of the work.",
            facts=(*facts, Fact("limit", "cost", texts[2], cost)),
            ends=(LabelEnd(push, "rule", "push", over, texts[3]),),
        )
        assert session.compact(lambda _: made).applied

    page = shown.open("labelled")

    labels = page.get_by_label("Facts")
    expect(labels.locator("dt")).to_have_text(["limit", "rule"])
    expect(labels.locator("dd.over")).to_contain_text(f"ended by #{over}")
    expect(labels.get_by_text(texts[0])).to_have_count(0)
    labels.get_by_text("1 identifier").click()
    expect(labels.get_by_text(texts[0])).to_be_visible()
