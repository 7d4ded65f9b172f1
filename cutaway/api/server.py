"""A server for an app on a socket, from the first request to the last.

Owns the start and the end: Ctrl-C or SIGTERM takes no more connections and lets requests finish, a second one stops
the engine, so that they end at once. Refuses to know what is served.
"""

import asyncio
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

from cutaway.api.address import listen
from cutaway.api.connection import Connection
from cutaway.limits import MAX_HEAD_BYTES

SIGNALS = (signal.SIGINT, signal.SIGTERM)
# Requests that end so soon are not worth a line.
PATIENCE_S = 0.2
# Time for the last words to clients, once the engine has stopped.
GRACE_S = 1.0
KEEP_ALIVE_S = 75


class Server(uvicorn.Server):
    """Serves until it is told to stop.

    Args:
        app: what answers.
        tell: takes a line for whoever runs the server.
        stop_engine: ends all requests; may take as long as a step.
        connection: what speaks HTTP with a client.
    """

    def __init__(
        self,
        app: ASGIApp,
        tell: Callable[[str], None],
        stop_engine: Callable[[], None],
        connection: type[Connection] = Connection,
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=connection,
                h11_max_incomplete_event_size=MAX_HEAD_BYTES,
                ws="none",
                loop="asyncio",
                lifespan="off",
                log_config=None,
                log_level="error",
                access_log=False,
                server_header=False,
                timeout_keep_alive=KEEP_ALIVE_S,
            )
        )
        self._tell = tell
        self._stop_engine = stop_engine
        self._stopping: asyncio.Task[None] | None = None

    def run_on(self, bound: socket.socket, ready: str) -> bool:
        """Serve on a socket.

        Args:
            bound: an address; it is closed afterwards.
            ready: the line to tell when connections are taken.

        Returns:
            Whether all requests could finish.

        Raises:
            InvalidValue: another server has the address.
        """
        asyncio.run(self._run(bound, ready))
        return self._stopping is None

    async def _run(self, bound: socket.socket, ready: str) -> None:
        listen(bound)
        self._tell(ready)
        await self.serve([bound])
        if self._stopping is not None:
            await self._stopping

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Let Ctrl-C and SIGTERM end the server, and nothing else."""
        loop = asyncio.get_running_loop()

        def on_signal(number: int, frame: FrameType | None) -> None:
            loop.call_soon_threadsafe(self._press)

        previous = {number: signal.signal(number, on_signal) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    def _press(self) -> None:
        """Somebody wants it to end."""
        loop = asyncio.get_running_loop()
        if not self.should_exit:
            self.should_exit = True
            loop.call_later(PATIENCE_S, self._tell_open)
        elif self._stopping is None:
            self._stopping = loop.create_task(self._stop())

    def _tell_open(self) -> None:
        num_open = len(self.server_state.tasks)
        if num_open:
            self._tell(f"requests still under way: {num_open:,}; Ctrl-C again stops them")

    async def _stop(self) -> None:
        await asyncio.to_thread(self._stop_engine)
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE_S):
                while self.server_state.connections:
                    await asyncio.sleep(0.01)
        for connection in list(self.server_state.connections):
            connection.transport.abort()
