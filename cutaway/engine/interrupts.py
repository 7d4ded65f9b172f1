"""Ctrl-C at moments that cannot bear it.

Libraries written in C may swallow an interrupt that arrives while they are imported, or abort the process; and a second
Ctrl-C must not break what cleans up after the first.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Keep Ctrl-C until the end of the block, and raise it then.

    Raises:
        KeyboardInterrupt: it was pressed meanwhile.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread is interrupted
        return
    pressed = False

    def note(*_: object) -> None:
        nonlocal pressed
        pressed = True

    previous = signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
        if pressed:
            raise KeyboardInterrupt
