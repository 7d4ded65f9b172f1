"""The client's side of an engine, wherever its loop runs."""

import asyncio
import itertools
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import TypeVar

from cutaway.engine.client import EngineStats, Progress, Watcher
from cutaway.engine.messages import Abort, Add, Pin, Release, Report, Stop
from cutaway.engine.prepare import Preparer
from cutaway.engine.streams import Streams
from cutaway.engine.worker import Listener, Worker
from cutaway.errors import EngineStopped
from cutaway.glass.receipt import ModelFacts, PromptFacts, Receipt, Spelling
from cutaway.glass.receipts import Receipts
from cutaway.glass.recorder import spell
from cutaway.limits import check_number, check_salt
from cutaway.types import (
    Conversation,
    Delta,
    Finish,
    FinishReason,
    GenerationRequest,
    Message,
    Prompt,
    TokenPrompt,
    Usage,
    copy_id,
)

T = TypeVar("T")
NOTHING = EngineStats(0, 0, 0, 0, 0)


class Engine:
    """``EngineClient`` over a worker.

    Args:
        worker: runs the loop; it belongs to the engine from now on.
        preparer: turns requests into prompts, on the caller's side.
    """

    def __init__(self, worker: Worker, preparer: Preparer) -> None:
        self._worker = worker
        self._preparer = preparer
        self._watchers: list[Watcher] = []
        self._streams = Streams(self._tell)
        self._receipts = Receipts()
        self._stats = NOTHING
        self._pinned: dict[int, Callable[[int | str], bool]] = {}  # by call id: who waits for the answer
        self._ids = itertools.count()
        self._stopping = False
        worker.start(Listener(self._take, self._lose))

    @property
    def model(self) -> ModelFacts:
        """The model that answers."""
        return self._worker.model

    @property
    def is_running(self) -> bool:
        """Whether it takes requests."""
        return not (self._stopping or self._worker.stopped)

    async def submit(self, request: GenerationRequest) -> AsyncGenerator[Delta, None]:
        """Run a request; see ``EngineClient.submit``."""
        self._check_running()
        stream_id = next(self._ids)
        deltas: asyncio.Queue[Delta] = asyncio.Queue()
        if not self._streams.open(stream_id, request.request_id, request.n, _on_loop(deltas.put_nowait)):
            for delta in _in_use(request):
                self._tell(Progress(0, 0, delta.finish))
                yield delta
            return
        num_open, has_begun = request.n, False
        try:
            prepared = await asyncio.to_thread(self._preparer.prepare, request)
            self._check_running()
            for index in range(request.n):
                self._receipts.forget(copy_id(request.request_id, index))
            if self._streams.begin(stream_id, len(prepared.copies[0].token_ids)):
                self._send(Add(stream_id, prepared))
                has_begun = True
                yield Delta("", notices=prepared.notices)
            while num_open:
                delta = await deltas.get()
                num_open -= delta.finish is not None
                yield delta
        finally:
            if num_open and has_begun:
                self._send(Abort(stream_id))
            elif num_open:
                self._streams.forget(stream_id)

    async def abort(self, request_id: str) -> None:
        """End a request now."""
        stream_id = self._streams.abort(request_id)
        if stream_id is not None:
            self._send(Abort(stream_id))

    async def pin(self, pin_id: str, messages: Sequence[Message], seconds: float, salt: str = "") -> int:
        """Keep what the cache has of a conversation; see ``EngineClient.pin``."""
        check_number("pin_seconds", seconds)
        check_salt(salt)
        conversation = Conversation(tuple(messages))
        self._check_running()
        token_ids = await self.tokenize(conversation)
        answers: asyncio.Queue[int | str] = asyncio.Queue()
        call_id = next(self._ids)
        self._pinned[call_id] = _on_loop(answers.put_nowait)
        self._send(Pin(call_id, pin_id, token_ids, salt, seconds))
        answer = await answers.get()
        if isinstance(answer, str):
            raise EngineStopped(answer)
        return answer

    async def release(self, pin_id: str) -> None:
        """Let go of a pin."""
        self._send(Release(pin_id))

    async def render(self, request: GenerationRequest) -> PromptFacts:
        """The prompt that a request would get, without running it."""
        return (await asyncio.to_thread(self._preparer.prepare, request)).asked.prompt

    async def tokenize(self, prompt: Prompt) -> tuple[int, ...]:
        """The tokens of a prompt."""
        return await asyncio.to_thread(self._preparer.encode, prompt)

    async def detokenize(self, tokens: TokenPrompt) -> str:
        """The text that tokens stand for."""
        return await asyncio.to_thread(self._preparer.spell, tokens)

    def stats(self) -> EngineStats:
        """How busy the engine is now."""
        return self._stats

    def watch(self, watcher: Watcher) -> None:
        """Tell somebody of the progress of every request."""
        self._watchers.append(watcher)

    def spelling(self, token_id: int) -> Spelling:
        """How the model's vocabulary writes a token."""
        return spell(self._preparer.tokenizer, token_id)

    def receipt(self, request_id: str, index: int = 0) -> Receipt | None:
        """The receipt of a finished copy of a request, while it is kept."""
        return self._receipts.get(copy_id(request_id, index))

    async def drain(self) -> None:
        """Take no new requests, finish those that run, and stop."""
        self._stopping = True
        self._worker.send(Stop.CLOSE if self._streams.is_empty else Stop.DRAIN)
        await asyncio.to_thread(self._worker.join)

    def close(self) -> None:
        """Stop: take no new requests, abort those that run, and wait for the step under way."""
        self._stopping = True
        self._worker.send(Stop.CLOSE)
        self._worker.join()

    def _check_running(self) -> None:
        if not self.is_running:
            raise EngineStopped("the engine takes no more requests")

    def _send(self, command: Add | Abort | Pin | Release) -> None:
        self._worker.send(command)
        if self._worker.stopped:  # perhaps before it saw the command
            self._lose("the engine stopped")

    def _tell(self, progress: Progress) -> None:
        for watcher in self._watchers:
            watcher(progress)

    def _take(self, report: Report) -> None:
        """Hand out what the worker reports."""
        self._stats = report.stats
        for event in report.events:
            if event.receipt is not None:
                self._receipts.put(event.receipt)
        for call_id, num_tokens in report.pinned:
            if call_id in self._pinned:  # else its caller was told that it is lost
                self._pinned.pop(call_id)(num_tokens)
        for stream_id in self._streams.take(report.events):
            self._worker.send(Abort(stream_id))

    def _lose(self, cause: str) -> None:
        """The worker has lost everything that was under way."""
        self._stats = NOTHING
        self._streams.lose(cause)
        for call_id in list(self._pinned):
            answer = self._pinned.pop(call_id, None)
            if answer is not None:
                answer(cause)


def _on_loop(take: Callable[[T], object]) -> Callable[[T], bool]:
    """Let ``take`` be called from any thread; it runs on the event loop that runs now. False if that has ended."""
    loop = asyncio.get_running_loop()

    def post(value: T) -> bool:
        try:
            loop.call_soon_threadsafe(take, value)
        except RuntimeError:
            return False
        return True

    return post


def _in_use(request: GenerationRequest) -> list[Delta]:
    """The answer to a request whose id is in use: the request that has it goes on undisturbed."""
    finish = Finish(FinishReason.REJECTED, f"a request with the id {request.request_id!r} is running", Usage(0, 0))
    return [Delta("", finish=finish, index=index) for index in range(request.n)]
