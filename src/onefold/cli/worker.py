"""`onefold worker`: compacts for all sessions of a store, until it is told to stop."""

from __future__ import annotations

import http.server
import signal
import sys
import threading
from collections.abc import Callable
from typing import Annotated

import typer

from onefold.cli.compact import chosen_summarizer
from onefold.cli.options import JsonOption, StoreOption, WindowOption, WrongUse, open_store, policy
from onefold.cli.output import as_json, line_on_stderr, say
from onefold.export import plain
from onefold.worker import Worker, WorkerStatus


def command(  # noqa: PLR0917  a parameter here is an option there
    concurrency: Annotated[int, typer.Option("--concurrency", min=1, metavar="N", help="So many at a time.")] = 4,
    upkeep: Annotated[
        float,
        typer.Option(
            "--upkeep",
            min=0,
            metavar="SECONDS",
            help="Also compact sessions over the soft limit that were quiet for so long; 0 for those asked for alone.",
        ),
    ] = 300.0,
    drain: Annotated[
        float, typer.Option("--drain", min=0, metavar="SECONDS", help="How long summaries may take at the end.")
    ] = 10.0,
    metrics: Annotated[
        int | None,
        typer.Option("--metrics", min=0, max=65535, metavar="PORT", help="Numbers at this port.", show_default=False),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="End when nothing waits any more.")] = False,
    summarizer: Annotated[
        str | None,
        typer.Option("--summarizer", metavar="KIND", help="openai, anthropic or extract.", show_default=False),
    ] = None,
    model: Annotated[str | None, typer.Option("--model", metavar="NAME", help="Its model.", show_default=False)] = None,
    window: WindowOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Compacts for all sessions of a store, whichever process asked.

    Sessions that nobody asked for are compacted by the limits that their own agent goes by, which its `Compactor` notes
    in the session; where it did not, by --window or `[limits]` in the config file. Where neither says anything they are
    left alone.

    Any number of workers share the work, on one machine or, with PostgreSQL, on many. Each takes what waits longest;
    one that dies is taken over by another. SIGTERM or Ctrl-C ends it: what is under way may end within --drain, the
    rest is handed back for the next one, and it prints what it did. Numbers for a monitoring system are at --metrics,
    on this machine only.

    \b
    Examples:
      onefold worker --store agent.db
      onefold worker --store postgresql://db/agents --concurrency 16 --metrics 9464
      onefold worker --once --upkeep 0        what was asked for, and no more
    """
    chosen, goes_by = chosen_summarizer(summarizer, model), policy(window)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    with open_store(store) as opened:
        worker = Worker(
            opened, chosen, goes_by, concurrency=concurrency, upkeep=upkeep or None, drain=drain, heard=_shown(json)
        )
        if metrics is not None:
            line_on_stderr(f"numbers at http://127.0.0.1:{_serve(worker, metrics)}/metrics")
        if not json:
            say(f"works for {opened.address}, {concurrency} at a time")
            if upkeep and goes_by.said is None:
                line_on_stderr(
                    "sessions whose agent noted no limits are left alone unless asked for; --window sets one"
                )
        ended = worker.run(stop, once=once)
    if json:
        as_json(plain(ended))
    else:
        say(f"{ended.committed} compacted, {ended.failed} failed attempts, {ended.handed_back} handed back")


def _shown(json: bool) -> Callable[[WorkerStatus], None] | None:
    """Progress: one line that changes, on a terminal; else nothing but the log."""
    if json or not sys.stderr.isatty():
        return None
    last = [""]

    def show(standing: WorkerStatus) -> None:
        line = f"{standing.active} at work, {standing.committed} compacted, {standing.failed} failed"
        if standing.trouble:
            line += " (the store does not answer)"
        if line != last[0]:
            sys.stderr.write(f"\r\x1b[K{line}")
            sys.stderr.flush()
            last[0] = line

    return show


def _serve(worker: Worker, port: int) -> int:
    """Numbers over HTTP, for this machine alone."""

    class Numbers(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = worker.metrics().encode()
            self.send_response(200 if self.path == "/metrics" else 404)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    try:
        listening = http.server.ThreadingHTTPServer(("127.0.0.1", port), Numbers)
    except OSError as error:
        raise WrongUse(f"port {port} cannot be listened on: {error.strerror}; choose another with --metrics") from None
    threading.Thread(target=listening.serve_forever, name="onefold-metrics", daemon=True).start()
    return int(listening.server_address[1])
