"""One step after another: plan, execute, commit, text. The engine without a thread around it.

Owns the order of things in a step and the border that keeps a failing request from its neighbours. Facts for the
glass are handed over here, at the seams, and nowhere further inside.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from cutaway.engine.answer import Answer
from cutaway.engine.messages import Event, Pin
from cutaway.engine.prepare import Prepared
from cutaway.executor.runner import Runner
from cutaway.glass.receipt import DeltaFacts
from cutaway.glass.recorder import Recorder
from cutaway.scheduler.plan import Outcome, RequestFinished, StepPlan, StepResult, TokenGenerated
from cutaway.scheduler.scheduler import Scheduler
from cutaway.text.tokenizer import Tokenizer
from cutaway.types import Delta, Finish, FinishReason, Usage


@dataclass(slots=True)
class _Live:
    """What the core keeps about a copy of a request that has not ended."""

    stream_id: int
    index: int
    answer: Answer
    end_ids: tuple[int, ...]
    num_prompt_tokens: int
    num_cached_tokens: int | None = None  # known when it is first admitted
    has_begun: bool = False  # it has a token
    failure: str | None = None  # what broke while its text was made

    def begin(self) -> Usage | None:
        """What was consumed with the first token; ``None`` for every later one."""
        if self.has_begun:
            return None
        self.has_begun = True
        return Usage(self.num_prompt_tokens, 1, self.num_cached_tokens or 0)


class EngineCore:
    """Joins scheduler, runner and text. Not thread-safe: one thread owns it.

    Args:
        scheduler: who computes what.
        runner: computes it.
        tokenizer: turns tokens into text.
        recorder: writes the receipts.
        clock: nanoseconds, monotonic.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        runner: Runner,
        tokenizer: Tokenizer,
        recorder: Recorder,
        clock: Callable[[], int],
    ) -> None:
        self.scheduler = scheduler
        self.runner = runner
        self.tokenizer = tokenizer
        self.recorder = recorder
        self.clock = clock
        self._live: dict[str, _Live] = {}  # by copy id

    @property
    def num_live(self) -> int:
        """Copies of requests that have not ended."""
        return len(self._live)

    def add(self, stream_id: int, prepared: Prepared) -> list[Event]:
        """Queue a request with all its copies; what comes back is empty unless it was rejected.

        One of the same id that still runs has lost its client, or there would not be another: it is ended.
        """
        new, *forks = prepared.copies
        events = self._abort([each.request_id for each in prepared.copies], "its client was lost")
        now_ns = self.clock()
        for index, each in enumerate(prepared.copies):
            answer = Answer(self.tokenizer, each.token_ids[-1], prepared.stop, each.min_tokens)
            self._live[each.request_id] = _Live(stream_id, index, answer, each.end_ids, len(each.token_ids))
            self.recorder.queued(each, index, prepared.asked, now_ns)
        try:
            outcomes = self.scheduler.add(new, now_ns / 1e9, forks)
        except Exception as error:  # the border: a request that cannot even be queued fails alone
            cause = f"{type(error).__name__}: {error}"
            num_prompt = len(new.token_ids)
            outcomes = [
                RequestFinished(each.request_id, FinishReason.FAILED, cause, num_prompt, 0, 0, 0)
                for each in prepared.copies
            ]
        return [*events, *self._tell(outcomes)]

    def abort(self, stream_id: int, cause: str) -> list[Event]:
        """End a request from outside, with all its copies. Unknown ids are nobody's."""
        return self._abort([copy for copy, live in self._live.items() if live.stream_id == stream_id], cause)

    def abort_all(self, cause: str) -> list[Event]:
        """End all requests from outside."""
        return self._abort(list(self._live), cause)

    def pin(self, pin: Pin) -> int:
        """Keep what the cache has of a prompt; how many tokens that is."""
        until_s = self.clock() / 1e9 + pin.seconds
        return self.scheduler.pins.pin(pin.pin_id, pin.token_ids, pin.salt, until_s)

    def release(self, pin_id: str) -> None:
        """Let go of a pin."""
        self.scheduler.pins.release(pin_id)

    def step(self) -> list[Event]:
        """Do one step; what comes back is what is new for each request concerned, none if there was nothing to do."""
        begin_ns = self.clock()
        plan = self.scheduler.plan(begin_ns / 1e9)
        if plan is None:
            return []
        self._note_cached(plan)
        result = self._execute(plan)
        outcomes = self.scheduler.commit(result)
        self.recorder.stepped(plan, result, begin_ns, self.clock())
        return list(self._tell(outcomes))

    def _note_cached(self, plan: StepPlan) -> None:
        """Keep what requests found in the cache when they were first admitted."""
        for lookup in plan.lookups:
            live = self._live.get(lookup.request_id)
            if live is not None and live.num_cached_tokens is None:
                live.num_cached_tokens = lookup.num_cached

    def _execute(self, plan: StepPlan) -> StepResult:
        try:
            return self.runner.execute(plan)
        except Exception as error:  # the border: a step that breaks fails the requests in it, and nobody else
            cause = f"{type(error).__name__}: {error}"
            return StepResult(plan.plan_id, {}, {rows.request_id: cause for rows in plan.rows})

    def _abort(self, copy_ids: list[str], cause: str) -> list[Event]:
        outcomes = [self.scheduler.finish(copy, FinishReason.ABORTED, cause) for copy in copy_ids]
        return list(self._tell([outcome for each in outcomes for outcome in each]))

    def _tell(self, outcomes: list[Outcome]) -> Iterator[Event]:
        for outcome in outcomes:
            if outcome.request_id not in self._live:
                continue  # it reached a stop string, or failed, with an earlier outcome
            try:
                yield from self._tell_one(outcome)
            except Exception as error:  # the border: a request whose text breaks fails alone
                yield from self._fail(outcome, f"{type(error).__name__}: {error}")

    def _tell_one(self, outcome: Outcome) -> Iterator[Event]:
        live = self._live[outcome.request_id]
        if isinstance(outcome, RequestFinished):
            yield self._finish(outcome, "" if live.failure else live.answer.flush())
            return
        yield Event(live.stream_id, self._generate(outcome, live))
        if live.answer.stop is not None:
            yield from self._stop(outcome.request_id, FinishReason.STOP, _stop_cause(live.answer.stop))

    def _fail(self, outcome: Outcome, cause: str) -> Iterator[Event]:
        """End a request whose text broke."""
        self._live[outcome.request_id].failure = cause
        if isinstance(outcome, RequestFinished):
            yield self._finish(outcome, "")
        else:  # if it has ended with this token, that is the next outcome
            yield from self._stop(outcome.request_id, FinishReason.FAILED, cause)

    def _stop(self, copy_id: str, reason: FinishReason, cause: str) -> Iterator[Event]:
        """End a copy of a request from here, without the text that it holds back."""
        for finished in self.scheduler.finish(copy_id, reason, cause):
            assert isinstance(finished, RequestFinished)
            yield self._finish(finished, "")

    def _generate(self, outcome: TokenGenerated, live: _Live) -> Delta:
        """Turn a chosen token into a delta."""
        token_id = outcome.choice.token_id
        self.recorder.generated(outcome)
        if token_id in live.end_ids:
            return Delta("", (outcome.choice,), index=live.index, usage=live.begin())
        begin_ns = self.clock()
        piece = live.answer.push(token_id)
        now_ns = self.clock()
        facts = DeltaFacts(now_ns, piece.text, piece.num_held_bytes)
        self.recorder.delivered(outcome.request_id, facts, now_ns - begin_ns)
        return Delta(piece.text, (outcome.choice,), index=live.index, usage=live.begin())

    def _finish(self, outcome: RequestFinished, rest: str) -> Event:
        """The end of a copy of a request: the text that was held back, how it ended, and its receipt."""
        live = self._live.pop(outcome.request_id)
        stop = live.answer.stop
        if live.failure is not None:
            outcome = replace(outcome, reason=FinishReason.FAILED, cause=live.failure)
        elif stop is not None and outcome.reason in (FinishReason.STOP, FinishReason.LENGTH):
            # The last token completed a stop string: that ended the answer, whatever else would have.
            outcome = replace(outcome, reason=FinishReason.STOP, cause=_stop_cause(stop), end_id=None)
        now_ns = self.clock()
        if rest:
            self.recorder.delivered(outcome.request_id, DeltaFacts(now_ns, rest, 0), 0)
        receipt = self.recorder.finished(outcome, self.scheduler.cache.num_free_blocks, now_ns)
        usage = Usage(outcome.num_prompt_tokens, outcome.num_generated_tokens, outcome.num_cached_tokens)
        finish = Finish(outcome.reason, outcome.cause, usage, stop if outcome.reason is FinishReason.STOP else None)
        return Event(live.stream_id, Delta(rest, finish=finish, index=live.index), receipt)


def _stop_cause(stop: str) -> str:
    return f"stop string {stop!r}"
