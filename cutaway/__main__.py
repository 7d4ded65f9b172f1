"""The entry of the ``cutaway`` command, and of ``python -m cutaway``."""

import signal
import sys

EXIT_INTERRUPTED = 130


def run() -> None:
    """Run the command line and exit. Ctrl-C ends it quietly, also while it is still importing, and if pressed again."""
    try:
        from cutaway.cli.main import run_command

        run_command()
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # what cleans up at the exit is quick


if __name__ == "__main__":
    run()
