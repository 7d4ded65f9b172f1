"""Threads that decode chunks side by side.

Owns the threads. Refuses to know what a chunk is. Invariant: an operation of torch inside a thread of the pool runs in
that thread alone. Splitting work between chunks needs one meeting of the threads at the end; leaving it to torch needs
one in each of the many small operations of a chunk, which was seven times slower when other programs used the cores.
"""

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

T = TypeVar("T")


class DecodePool:
    """As many threads as torch uses when the pool is made."""

    def __init__(self) -> None:
        num_threads = torch.get_num_threads()
        self._executor = ThreadPoolExecutor(num_threads, thread_name_prefix="decode")
        started = threading.Barrier(num_threads)
        # A thread takes over torch's setting when it first asks for it, and keeps it. So let all of them ask while
        # the setting is one; the calling thread gets its own back.
        torch.set_num_threads(1)
        try:
            settings = list(
                self._executor.map(lambda _: (started.wait(), torch.get_num_threads())[1], range(num_threads))
            )
        finally:
            torch.set_num_threads(num_threads)
        assert settings == [1] * num_threads, f"torch uses {settings} threads in the threads of the pool"

    def run(self, function: Callable[[T], None], chunks: Iterable[T]) -> None:
        """Call ``function`` for every chunk, in any order; returns when all are done, and raises what one raises."""
        for _ in self._executor.map(function, chunks):
            pass

    def close(self) -> None:
        """End the threads."""
        self._executor.shutdown()
