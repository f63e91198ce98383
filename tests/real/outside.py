"""What the real programs try to reach outside: nothing may, and this writes down who tried.

A proxy on loopback that refuses everything. The programs are told to use it for all but loopback.
"""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any


class Outside:
    """Refuses, and remembers the hosts."""

    def __init__(self) -> None:
        self.tried: list[str] = []
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    def __enter__(self) -> Outside:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def environment(self) -> dict[str, str]:
        """Sends a program here, whichever way it looks for a proxy."""
        url = f"http://127.0.0.1:{self._server.server_port}"
        here = "127.0.0.1,localhost,::1"
        names = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), url)
        both = {**names, **{name.lower(): url for name in names}, "NO_PROXY": here, "no_proxy": here}
        return {**both, "NODE_USE_ENV_PROXY": "1"}


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, outside: Outside) -> None:
        self.outside = outside
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = 10.0

    def _refuse(self) -> None:
        self.server.outside.tried.append(self.path)
        self.send_error(403, "nothing goes out")

    do_CONNECT = do_GET = do_HEAD = do_POST = do_PUT = _refuse

    def log_message(self, format: str, *args: Any) -> None:
        pass
