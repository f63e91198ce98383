"""python -m tests.support.page_shots: takes the pictures in docs/images anew, of a story that is always the same."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, Page, expect, sync_playwright

from onefold.ids import system_clock
from tests.support.helpers import ROOT, Child
from tests.support.page_story import MAIN, tell
from tests.support.page_views import DESK, OPTIONS, PHONE, Served, Shown, found_browser

IMAGES = ROOT / "docs" / "images"
Scheme = Literal["light", "dark"]


def main() -> None:
    IMAGES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        address = Path(folder, "agent.db")
        tell(address, system_clock())
        browser = playwright.chromium.launch(executable_path=found_browser(), args=[*OPTIONS, "--no-sandbox"])
        arguments = {"address": str(address), "tokens": str(Path(folder, "tokens"))}
        with Child("serve", module="tests.support.page_server", **arguments) as child:
            served = Served(address, child)
            take(browser, served)
        browser.close()


def take(browser: Browser, served: Served) -> None:
    for scheme in ("light", "dark"):
        shown = _tab(browser, served, scheme)
        expect(shown.page.locator(".session").nth(5)).to_be_visible()
        _picture(shown.page, f"sessions-{scheme}")
        _picture(_at_the_fold(shown), f"session-{scheme}")
    shown = _tab(browser, served, "light")
    shown.page.goto(f"{served.url}/#/compactions")
    expect(shown.page.locator(".compaction").first).to_be_visible()
    _picture(shown.page, "compactions-light")
    shown = _tab(browser, served, "dark", phone=True)
    _picture(_at_the_fold(shown), "phone-dark")
    shown.page.goto(f"{served.url}/#/")
    expect(shown.page.locator(".session").nth(3)).to_be_visible()
    _picture(shown.page, "phone-sessions-dark")


def _tab(browser: Browser, served: Served, scheme: Scheme, *, phone: bool = False) -> Shown:
    size = PHONE if phone else DESK
    context = browser.new_context(
        viewport=size,
        color_scheme=scheme,
        reduced_motion="reduce",
        is_mobile=phone,
        device_scale_factor=2 if phone else 1,
    )
    return Shown(context.new_page(), served)


def _at_the_fold(shown: Shown) -> Page:
    page = shown.open(MAIN)
    expect(page.locator(".cut").first).to_be_visible()
    page.keyboard.press("[")
    fold = page.locator(".row.fold")
    expect(fold).to_contain_text("Goal.")
    expect(fold).to_be_in_viewport()
    page.evaluate("document.activeElement.blur()")
    expect(page.locator(".found")).to_have_count(0)
    return page


def _picture(page: Page, name: str) -> None:
    expect(page.locator(".row.waits")).to_have_count(0)
    page.screenshot(path=IMAGES / f"{name}.png")


if __name__ == "__main__":
    main()
