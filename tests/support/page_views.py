"""The page in a real browser."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, ViewportSize, expect, sync_playwright

from tests.support.helpers import Child

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge")
OPTIONS = [
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
PHONE: ViewportSize = {"width": 360, "height": 740}
DESK: ViewportSize = {"width": 1280, "height": 860}


# ---------------------------------------------------------------------- a browser, a store, a server


def found_browser() -> str:
    named = os.environ.get("ONEFOLD_BROWSER")
    found = next((path for name in ([named] if named else BROWSERS) if (path := shutil.which(name))), None)
    if found is None:
        pytest.fail(
            f"no browser was found for the tests of the page (looked for {named or ', '.join(BROWSERS)}): "
            "install one, on Debian `apt-get install chromium`, or name yours with ONEFOLD_BROWSER"
        )
    return found


@contextmanager
def launched() -> Iterator[Browser]:
    options = [*OPTIONS, "--no-sandbox"] if os.geteuid() == 0 else OPTIONS
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=found_browser(), args=options)
        yield opened
        opened.close()


class Served:
    """A store, and the server on it."""

    def __init__(self, address: Path, child: Child) -> None:
        ready = child.hear("ready")
        self.address = str(address)
        self.url = str(ready["url"])
        self.token = str(ready["token"])


class Shown:
    """A tab of the browser, let in, which complains about errors in the page."""

    def __init__(self, page: Page, served: Served) -> None:
        self.page = page
        self.served = served
        self.errors: list[str] = []
        page.set_default_timeout(10_000)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda said: self.errors.append(said.text) if said.type == "error" else None)
        page.goto(f"{served.url}/?token={served.token}")

    def open(self, session: str, view: str = "model", at: int | None = None) -> Page:
        """Opens a session, and waits until its conversation is there and followed live."""
        place = f"&at={at}" if at else ""
        self.page.goto(f"{self.served.url}/#/session/{_quoted(session)}?view={view}{place}")
        expect(self.page.locator("#live")).to_have_text("live")
        expect(self.page.locator(".row:not(.waits)").first).to_be_attached()
        return self.page


def _quoted(session: str) -> str:
    from urllib.parse import quote

    return quote(session, safe="")


def said(page: Page, text: str) -> Locator:
    return page.locator(".row .text").filter(has_text=text)


CONTRAST = """() => {
  const paint = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const rgb = (colour) => {
    paint.clearRect(0, 0, 1, 1); paint.fillStyle = colour; paint.fillRect(0, 0, 1, 1);
    return [...paint.getImageData(0, 0, 1, 1).data];
  };
  const light = ([r, g, b]) => [r, g, b].map((c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (node) => {
    for (let n = node; n; n = n.parentElement) {
      const colour = rgb(getComputedStyle(n).backgroundColor);
      if (colour[3] === 255) return colour;
    }
    return [255, 255, 255];
  };
  const poor = [];
  for (const node of document.querySelectorAll('body *')) {
    const own = [...node.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
    const seen = node.checkVisibility({ opacityProperty: true, visibilityProperty: true });
    if (!own || !seen || node.closest('svg, .ghost')) continue;
    const [a, b] = [light(rgb(getComputedStyle(node).color)), light(behind(node))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) poor.push(`${node.className}: ${node.textContent.slice(0, 30)} ${ratio.toFixed(2)}`);
  }
  return [...new Set(poor)];
}"""
