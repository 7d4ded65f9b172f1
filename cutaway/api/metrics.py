"""What an operator watches, as Prometheus reads it.

Owns the names, the buckets and the labels. Refuses to know HTTP beyond a status. The numbers are folded from the
progress of requests and from their receipts, which are what the glass shows, so that the two cannot disagree.
Invariants: counters never fall, even if the engine is lost and another one takes its place; the tokens counted are
those of the usages; nothing that a client sends becomes a label.
Source: names and buckets are those of vLLM, https://docs.vllm.ai/en/latest/usage/metrics/, under another prefix.
"""

from collections.abc import Callable, Iterable, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, generate_latest
from prometheus_client.registry import Collector

from cutaway.engine.client import EngineClient, EngineStats, Progress
from cutaway.glass.measures import Measures, measure
from cutaway.types import FinishReason

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PREFIX = "cutaway_"
FIRST_TOKEN_S = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
BETWEEN_TOKENS_S = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)
REQUEST_S = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
    *(120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)


class Metrics:
    """The numbers of a server around an engine. Safe to use from several threads.

    Args:
        engine: is watched from now on.
    """

    def __init__(self, engine: EngineClient) -> None:
        self._registry = CollectorRegistry()
        new = _Maker(self._registry, engine.model.name)
        _add_gauges(new, engine.stats)
        self._finished = new.counters("requests_finished", "Answers that ended, by what ended them.")
        self._num_preemptions = new.counter("num_preemptions", "Times that a request lost its place in the cache.")
        self._num_queried = new.counter("prefix_cache_queries", "Tokens of prompts looked up in the prefix cache.")
        self._num_hits = new.counter("prefix_cache_hits", "Tokens of prompts found in the prefix cache.")
        self._num_prompt_tokens = new.counter("prompt_tokens", "Tokens of prompts read, cached ones included.")
        self._num_generated = new.counter("generation_tokens", "Tokens generated.")
        lengths = length_buckets(engine.model.context_length)
        self._prompt_length = new.histogram("request_prompt_tokens", "Length of prompts in tokens.", lengths)
        self._answer_length = new.histogram("request_generation_tokens", "Length of answers in tokens.", lengths)
        self._times = _Times(new)
        self._http = Counter(
            f"{PREFIX}http_requests",
            "Requests over HTTP, by the pattern of their route and the status of the answer.",
            ("route", "status"),
            registry=self._registry,
        )
        engine.watch(self._take)

    def count_http(self, route: str, status: int) -> None:
        """Count a request over HTTP, by the pattern of its route and the status of its answer."""
        self._http.labels(route, str(status)).inc()

    def text(self) -> bytes:
        """All of them, as Prometheus reads them."""
        return generate_latest(_WithoutBirthdays(self._registry))

    def _take(self, progress: Progress) -> None:
        self._num_generated.inc(progress.num_generated_tokens)
        if progress.num_prompt_tokens:  # seldom, while the line above is run for every token
            self._num_prompt_tokens.inc(progress.num_prompt_tokens)
        finish = progress.finish
        if finish is None:
            return
        self._finished[finish.reason].inc()
        if finish.usage.completion_tokens:
            self._prompt_length.observe(finish.usage.prompt_tokens)
            self._answer_length.observe(finish.usage.completion_tokens)
        if progress.receipt is not None:
            measures = measure(progress.receipt)
            self._num_preemptions.inc(measures.num_preemptions)
            self._num_queried.inc(measures.num_queried)
            self._num_hits.inc(measures.num_hits)
            self._times.observe(measures)


class _Maker:
    """Makes metrics of one model in one registry."""

    def __init__(self, registry: CollectorRegistry, model: str) -> None:
        self._registry = registry
        self._model = model

    def gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        Gauge(PREFIX + name, text, ("model_name",), registry=self._registry).labels(self._model).set_function(read)

    def gauges(self, name: str, text: str, reads: dict[str, Callable[[], float]]) -> None:
        """One for each reason."""
        gauge = Gauge(PREFIX + name, text, ("model_name", "reason"), registry=self._registry)
        for reason, read in reads.items():
            gauge.labels(self._model, reason).set_function(read)

    def counter(self, name: str, text: str) -> Counter:
        return Counter(PREFIX + name, text, ("model_name",), registry=self._registry).labels(self._model)

    def counters(self, name: str, text: str) -> dict[FinishReason, Counter]:
        """One for each way to end; all are there from the start, so that a rate can be taken of the first."""
        counter = Counter(PREFIX + name, text, ("model_name", "finished_reason"), registry=self._registry)
        return {reason: counter.labels(self._model, reason.value) for reason in FinishReason}

    def histogram(self, name: str, text: str, buckets: Sequence[float]) -> Histogram:
        histogram = Histogram(PREFIX + name, text, ("model_name",), registry=self._registry, buckets=buckets)
        return histogram.labels(self._model)


class _Times:
    """The histograms of times: of answers with at least one token, whatever ended them."""

    def __init__(self, new: _Maker) -> None:
        first, between = "From a request to its first token.", "From a token to the next."
        self._first_token = new.histogram("time_to_first_token_seconds", first, FIRST_TOKEN_S)
        self._between_tokens = new.histogram("inter_token_latency_seconds", between, BETWEEN_TOKENS_S)
        self._total = new.histogram("e2e_request_latency_seconds", "From a request to its end.", REQUEST_S)
        self._queue = new.histogram("request_queue_time_seconds", "From a prompt to its first step.", REQUEST_S)
        self._prefill = new.histogram("request_prefill_time_seconds", "From there to the first token.", REQUEST_S)
        self._decode = new.histogram("request_decode_time_seconds", "From the first to the last token.", REQUEST_S)

    def observe(self, measures: Measures) -> None:
        """Take in a finished request."""
        if measures.queue_ns is None or measures.prefill_ns is None or measures.decode_ns is None:
            return
        self._first_token.observe(measures.token_ns[0] / 1e9)
        for gap_ns in measures.token_gaps_ns:
            self._between_tokens.observe(gap_ns / 1e9)
        self._total.observe(measures.total_ns / 1e9)
        self._queue.observe(measures.queue_ns / 1e9)
        self._prefill.observe(measures.prefill_ns / 1e9)
        self._decode.observe(measures.decode_ns / 1e9)


class _WithoutBirthdays(Collector):
    """A registry without the time when each series was made, which would double their number."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterable[Metric]:
        for metric in self._registry.collect():
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric


def length_buckets(longest: int) -> list[int]:
    """1, 2, 5, 10, 20, 50 and so on, up to a length in tokens."""
    buckets, power = [1], 1
    while True:
        for factor in (2, 5, 10):
            if factor * power > longest:
                return buckets
            buckets.append(factor * power)
        power *= 10


def cache_usage(stats: EngineStats) -> float:
    """Which share of the cache's blocks requests count on, 0 to 1; 0 while no engine has a cache."""
    return 1 - stats.num_free_blocks / stats.num_blocks if stats.num_blocks else 0.0


def _add_gauges(new: _Maker, stats: Callable[[], EngineStats]) -> None:
    new.gauge("num_requests_running", "Requests with a place in the cache.", lambda: stats().num_running)
    new.gauge("num_requests_waiting", "Requests that wait for one.", lambda: stats().num_waiting)
    new.gauges(
        "num_requests_waiting_by_reason",
        "The same by reason: no room for them, or the prompt that they share is being read.",
        {
            "capacity": lambda: stats().num_waiting - stats().num_deferred,
            "deferred": lambda: stats().num_deferred,
        },
    )
    new.gauge("kv_cache_usage_perc", "Share of the KV cache in use, 0 to 1.", lambda: cache_usage(stats()))
