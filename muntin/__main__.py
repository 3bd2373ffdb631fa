"""`muntin` and `python -m muntin`: the command line."""

from muntin.interrupts import end_at_once


def main() -> None:
    """Loads the command line and runs it; Ctrl-C is heard from the first line on."""
    end_at_once()
    from muntin.cli import main

    main()


if __name__ == "__main__":
    main()
