"""The program and its list of commands."""

from __future__ import annotations

from typing import Annotated

import typer

from onefold.cli import (
    attach,
    backup,
    cancel,
    compact,
    context,
    copy,
    delete,
    demo,
    doctor,
    erase,
    export,
    fork,
    import_,
    init,
    mcp,
    note,
    pin,
    room,
    run,
    say,
    search,
    serve,
    sessions,
    show,
    summarize,
    token,
    undo,
    unfold,
    verify,
    worker,
)
from onefold.cli.output import raw

app = typer.Typer(
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _version(wanted: bool) -> None:
    if wanted:
        from onefold.version import __version__

        raw(f"onefold {__version__}\n")
        raise typer.Exit


@app.callback()
def program(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Keeps an AI agent's conversation safe while its context is compacted.

    Every command works on a store: the one named by --store, else by the variable ONEFOLD_STORE, else by `store`
    in the config file (ONEFOLD_CONFIG, or $XDG_CONFIG_HOME/onefold/config.toml), else
    $XDG_DATA_HOME/onefold/onefold.db. Exit codes: 0 success, 1 findings or rejected, 2 usage error or unreadable store.

    \b
    Examples:
      onefold demo                          see it at work, in half a minute
      onefold init agent.db                 make a store
      onefold sessions --store agent.db     what is in a store
      onefold show SESSION                  everything that happened in a session
      onefold COMMAND --help                more on one command, with an example
    """


app.command("demo")(demo.command)
app.command("init")(init.command)
app.command("sessions")(sessions.command)
app.command("show")(show.command)
app.command("search")(search.command)
app.command("context")(context.command)
app.command("compact")(compact.command)
app.command("summarize")(summarize.command)
app.command("cancel")(cancel.command)
app.command("pin")(pin.command)
app.command("note")(note.command)
app.command("undo")(undo.command)
app.command("unfold")(unfold.command)
app.command("fork")(fork.command)
app.command("erase")(erase.command)
app.command("delete")(delete.command)
app.command("verify")(verify.command)
app.command("doctor")(doctor.command)
app.command("backup")(backup.command)
app.command("export")(export.command)
app.command("import")(import_.command)
app.command("copy")(copy.command)
app.command("mcp")(mcp.command)
app.command("worker")(worker.command)
app.command("serve")(serve.command)
app.command("run")(run.command)
app.command("attach")(attach.command)
app.command("say")(say.command)
app.add_typer(room.app, name="room")
app.add_typer(token.app, name="token")
