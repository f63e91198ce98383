"""The command line."""


def main() -> None:
    raise SystemExit("soon")
