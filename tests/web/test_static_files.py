"""The page's files as they are served: types, ETags, nothing beside them, nothing in them from elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

from onefold.server.static import FILES, page


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with TestClient(Starlette(routes=[Mount("/", page)]), follow_redirects=False) as made:
        yield made


def test_every_file_has_its_type_and_comes_once_as_long_as_it_does_not_change(client: TestClient) -> None:
    types = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
    for path, file in FILES.items():
        first = client.get(path)
        assert first.status_code == 200
        assert first.content == file.body
        assert first.headers["content-type"].startswith(types["html" if path == "/" else path.rpartition(".")[2]])
        assert first.headers["cache-control"] == "no-cache"

        for known in (first.headers["etag"], f'"other", W/{first.headers["etag"]}'):
            again = client.get(path, headers={"if-none-match": known})
            assert (again.status_code, again.content) == (304, b"")
        assert client.get(path, headers={"if-none-match": '"other"'}).status_code == 200


def test_a_file_that_is_named_with_its_version_is_not_asked_for_again(client: TestClient) -> None:
    for path, file in FILES.items():
        cached = client.get(f"{path}?{file.version}").headers["cache-control"]
        assert cached == ("no-cache" if path == "/" else "public, max-age=31536000, immutable")
        assert client.get(f"{path}?v=older").headers["cache-control"] == "no-cache"


def test_the_page_is_five_requests_and_less_than_300_kilobytes() -> None:
    assert len(FILES) == 5
    assert sum(len(file.body) for file in FILES.values()) < 300_000


def test_head_says_the_same_without_the_content(client: TestClient) -> None:
    answer = client.head("/static/app.js")

    assert (answer.status_code, answer.content) == (200, b"")
    assert int(answer.headers["content-length"]) == len(FILES["/static/app.js"].body)


@pytest.mark.parametrize(
    "path",
    [
        "/static/../static.py",
        "/static/..%2fstatic.py",
        "/static/%2e%2e/%2e%2e/model.py",
        "/static/....//static.py",
        "/static//etc/passwd",
        "/static/app.js/",
        "/static/app.js%00.html",
        "/static/",
        "/index.html",
        "/static/index.html",
        "/static/__init__.py",
    ],
)
def test_no_path_leads_to_another_file(client: TestClient, path: str) -> None:
    answer = client.get(path)

    assert answer.status_code == 404
    assert b"import" not in answer.content


def test_files_are_only_read(client: TestClient) -> None:
    answer = client.post("/")

    assert answer.status_code == 405
    assert answer.headers["allow"] == "GET, HEAD"


def test_whatever_the_page_names_is_served_and_nothing_comes_from_elsewhere() -> None:
    for path, file in FILES.items():
        text = file.body.decode()
        assert not re.search(r'(?m)^import|from "\./', text), "every module is in the one script"
        for named, version in re.findall(r'(?:href|src)="(static/[\w.]+)\?(v=\w+)"', text):
            assert FILES[f"/{named}"].version == version, (path, named)
        assert re.findall(r"//(?!www\.w3\.org/)[\w-]+\.\w+", re.sub(r"(?m)^\s*//.*$", "", text)) == [], path


PARSES = (
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment|\beval\(|new Function"
)


def test_no_module_parses_markup_or_runs_text() -> None:
    for path, file in FILES.items():
        assert not re.search(PARSES, file.body.decode()), path


def test_the_page_has_no_inline_script_and_no_inline_style() -> None:
    text = FILES["/"].body.decode()

    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=", text)
