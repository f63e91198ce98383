"""`python -m onefold` is the command line."""

from onefold.cli import main

if __name__ == "__main__":
    main()
