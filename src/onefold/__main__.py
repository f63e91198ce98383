"""`python -m onefold` is the command line."""

from onefold.cli import start

if __name__ == "__main__":
    start()
