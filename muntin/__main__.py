"""`muntin` and `python -m muntin`: the command line."""

from muntin.loading import loading


def main() -> None:
    """Loads the command line and runs it."""
    with loading():
        from muntin.cli import main
    main()


if __name__ == "__main__":
    main()
