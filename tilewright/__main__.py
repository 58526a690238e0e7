"""`python -m tilewright`, and the entry point of the `tilewright` script."""

from tilewright.common.interrupts import end_at_once


def main() -> None:
    """Runs the command line."""
    with end_at_once():
        from tilewright.cli import main as run
    run()


if __name__ == "__main__":
    main()
