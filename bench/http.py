"""What the server costs over the engine that it serves: throughput of many streams, and the time to a first token.

Rounds alternate between an engine in this process, asked through its own interface, and ``cutaway serve`` in another,
asked over HTTP by a client that only looks for the beginnings of events. The same prompts and settings give both the
same answers, token for token, so their times may be divided.
"""

import argparse
import asyncio
import json
import re
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median

from bench.report import report
from cutaway.benchmark.prompts import Prompt, random_prompts
from cutaway.cli.session import open_session
from cutaway.config import DEFAULT_MODEL
from cutaway.engine.client import EngineClient
from cutaway.engine.options import EngineOptions
from cutaway.types import Conversation, GenerationRequest, Message, Role, SamplingParams

MAX_RUNNING = 64
READY = re.compile(r"serving (?P<model>.+) at http://127\.0\.0\.1:(?P<port>\d+)")
INPUT_LEN = 64


@dataclass(frozen=True, slots=True)
class Answered:
    """When an answer was asked for, began and ended, in seconds, and how many tokens it has."""

    sent_s: float
    first_s: float
    end_s: float
    num_tokens: int


Ask = Callable[[Prompt], Awaitable[Answered]]


async def ask_engine(engine: EngineClient, prompt: Prompt) -> Answered:
    """One answer from an engine of this process."""
    request = GenerationRequest(
        f"bench_{time.perf_counter_ns()}",
        Conversation((Message(Role.USER, prompt.text),)),
        SamplingParams(temperature=0),
        max_tokens=prompt.max_tokens,
    )
    sent_s = time.perf_counter()
    first_s, num_tokens = 0.0, 0
    async for delta in engine.submit(request):
        if delta.choices:
            first_s = first_s or time.perf_counter()
        num_tokens += len(delta.choices)
    return Answered(sent_s, first_s, time.perf_counter(), num_tokens)


async def ask_server(model: str, port: int, prompt: Prompt) -> Answered:
    """One answer of a server, streamed."""
    body = json.dumps(
        {
            "model": model,
            "messages": [{"role": "user", "content": prompt.text}],
            "temperature": 0,
            "max_tokens": prompt.max_tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    ).encode()
    sent_s = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nconnection: close\r\n"
    writer.write(f"{head}content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
    first_s, told = 0.0, b""
    while part := await reader.read(1 << 16):
        told += part
        if not first_s and b"\ndata: " in told:
            first_s = time.perf_counter()
    end_s = time.perf_counter()
    writer.close()
    usage = re.search(rb'"completion_tokens": ?(\d+)', told)
    if usage is None:
        raise SystemExit(f"the server gave no answer: {told[:500].decode(errors='replace')}")
    return Answered(sent_s, first_s, end_s, int(usage[1]))


@contextmanager
def running_server(model: str) -> Iterator[tuple[str, int]]:
    """A server in a process of its own: the name of its model, and its port."""
    command = [sys.executable, "-m", "cutaway", "serve", "--model", model, "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            for line in process.stderr:
                if found := READY.search(line):
                    yield found["model"], int(found["port"])
                    break
            else:
                raise SystemExit("the server did not start")
        finally:
            process.terminate()


async def ask_all(ask: Ask, prompts: Sequence[Prompt]) -> list[Answered]:
    """Ask everything at once."""
    return list(await asyncio.gather(*map(ask, prompts)))


def throughput(answers: Sequence[Answered]) -> float:
    """Tokens a second from the first question to the last end."""
    seconds = max(answer.end_s for answer in answers) - min(answer.sent_s for answer in answers)
    return sum(answer.num_tokens for answer in answers) / seconds


async def compare(
    by: dict[str, Ask], num_streams: int, output_len: int, rounds: int
) -> dict[str, list[list[Answered]]]:
    """The answers of each, for each round; the first round is to warm up and is not counted."""
    answers: dict[str, list[list[Answered]]] = {name: [] for name in by}
    for index in range(rounds + 1):
        prompts = random_prompts(num_streams, INPUT_LEN, output_len, seed=1000 * num_streams + index)
        for name in list(by) if index % 2 else reversed(by):
            answers[name].append(await ask_all(by[name], prompts))
        counts = [sum(answer.num_tokens for answer in each[-1]) for each in answers.values()]
        assert len(set(counts)) == 1, f"the answers are not the same: {counts}"
    return {name: each[1:] for name, each in answers.items()}


async def measure(engine: EngineClient, model: str, port: int, num_streams: int, rounds: int) -> None:
    """Print figures."""
    by: dict[str, Ask] = {
        "engine": lambda prompt: ask_engine(engine, prompt),
        "server": lambda prompt: ask_server(model, port, prompt),
    }
    facts = {"model": model, "prompt_words": INPUT_LEN}
    many = await compare(by, num_streams, 64, rounds)
    rates = {name: list(map(throughput, each)) for name, each in many.items()}
    for name, values in rates.items():
        report("throughput", "tokens/s", values, by=name, streams=num_streams, **facts)
    shares = [1 - server / bare for bare, server in zip(rates["engine"], rates["server"], strict=True)]
    report("throughput lost to the server", "share", shares, streams=num_streams, **facts)
    one = await compare(by, 1, 2, 5 * rounds)
    waits = {name: [1e3 * (each.first_s - each.sent_s) for [each] in runs] for name, runs in one.items()}
    for name, values in waits.items():
        report("time to first token", "ms", values, by=name, streams=1, **facts)
    added = [server - bare for bare, server in zip(waits["engine"], waits["server"], strict=True)]
    report("time to first token added by the server", "ms", added, streams=1, **facts)
    print(f"median: {median(shares):.1%} of throughput, {median(added):.1f} ms to the first token", file=sys.stderr)


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    with (
        running_server(arguments.model) as (model, port),
        open_session(arguments.model, EngineOptions(max_running=MAX_RUNNING)) as session,
    ):
        asyncio.run(measure(session.engine, model, port, arguments.streams, arguments.rounds))


if __name__ == "__main__":
    main()
