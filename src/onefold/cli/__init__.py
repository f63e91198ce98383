"""The command line: one module per command, no rules of its own.

What is slow to import is imported inside commands, so that `onefold --help` answers at once.
"""

from __future__ import annotations

import signal
import sys


def start() -> None:
    """The program in a process of its own: Ctrl-C ends it without a traceback, at whatever moment it comes."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # nothing is open yet that would have to be closed
    from onefold.cli.app import app  # noqa: F401

    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # threads are waited for from here on


def main() -> None:
    """The program `onefold`. Exit codes: 0 success, 1 findings or rejected, 2 usage error or store not readable."""
    try:
        import typer  # noqa: F401
    except ImportError:
        sys.stderr.write("typer is not installed, which the command line needs: pip install 'onefold[cli]'\n")
        sys.exit(2)

    from onefold.cli.app import app
    from onefold.cli.output import finish, line_on_stderr, prepare
    from onefold.errors import OnefoldError

    prepare()
    try:
        try:
            app(prog_name="onefold")
        finally:
            finish()
    except OnefoldError as error:
        line_on_stderr(str(error))
        sys.exit(2)
    except OSError as error:
        line_on_stderr(f"could not read or write: {error}")
        sys.exit(2)
