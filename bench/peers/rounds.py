"""Measures engines in turns, so that what disturbs the machine for a while disturbs all of them."""

import time
from collections.abc import Callable, Sequence
from functools import partial

from bench.peers.engine import Engine
from bench.peers.install import PeerMissing, say
from bench.peers.results import Recorder
from bench.peers.workload import Workload


class Rounds:
    """The engines that are still there, with one model, and where their figures go.

    Args:
        engines: those to measure.
        model: its name.
        num_threads: of each.
        recorder: takes the figures.
    """

    def __init__(self, engines: Sequence[Engine], model: str, num_threads: int, recorder: Recorder) -> None:
        self.engines = list(engines)
        self._asked = tuple(engines)  # figures of one that is lost later stay
        self._model, self._num_threads, self._recorder = model, num_threads, recorder

    def measure(self, workloads: Sequence[Workload], num_rounds: int) -> None:
        """Tokens a second of each workload: medians over rounds, after a first one that does not count."""
        values: dict[tuple[str, Workload], list[float]] = {}
        for workload in workloads:
            self._take_turns(0, partial(_warm, workload))
        for index in range(num_rounds):
            say(f"{self._model}: round {index + 1} of {num_rounds}, {time.strftime('%H:%M:%S')}")
            for workload in workloads:

                def measure(engine: Engine, workload: Workload = workload) -> None:
                    values.setdefault((engine.name, workload), []).append(engine.measure(workload))

                self._take_turns(index, measure)
        for workload in workloads:
            sizes = {
                "prompt": workload.num_prompt,
                "generated": workload.num_generated,
                "requests": workload.num_requests,
            }
            for engine in self._asked:
                rates = values.get((engine.name, workload), [])
                self._recorder.measured(workload.name, "tokens/s", rates, self._facts(engine) | sizes)

    def start(self, num_rounds: int) -> None:
        """Seconds to the first token, and memory, of fresh processes."""
        seconds: dict[str, list[float]] = {}
        peaks: dict[str, list[float]] = {}
        for index in range(num_rounds):
            say(f"{self._model}: start {index + 1} of {num_rounds}, {time.strftime('%H:%M:%S')}")

            def start(engine: Engine) -> None:
                started = engine.start()
                seconds.setdefault(engine.name, []).append(started.seconds)
                if started.peak_bytes is not None:
                    peaks.setdefault(engine.name, []).append(started.peak_bytes / 1e6)

            self._take_turns(index, start)
        for engine in self._asked:
            self._recorder.measured("start to first token", "s", seconds.get(engine.name, []), self._facts(engine))
            self._recorder.measured("peak memory", "MB", peaks.get(engine.name, []), self._facts(engine))

    def close(self) -> None:
        """End all processes."""
        for engine in self.engines:
            engine.close()

    def _take_turns(self, first: int, do: Callable[[Engine], None]) -> None:
        """Let each engine do it, one after another, another one first each time; who cannot is left out from now on."""
        first %= max(1, len(self.engines))
        for engine in (*self.engines[first:], *self.engines[:first]):
            try:
                do(engine)
            except PeerMissing as error:
                self._recorder.missing(engine.name, self._model, str(error))
                self.engines.remove(engine)
                engine.close()

    def _facts(self, engine: Engine) -> dict[str, object]:
        return {"engine": engine.name, "model": self._model, "threads": self._num_threads, **engine.facts}


def _warm(workload: Workload, engine: Engine) -> None:
    engine.warm(workload)
