"""What an operator sees of a server: the numbers of ``/metrics`` are those that its clients were told."""

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from running_server import CHAT, JSON, RunningServer, events, running_fake
from scraped import Scraped

DOCS = Path(__file__).parent.parent.parent / "docs" / "serve.md"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def server(folder: Path) -> Iterator[RunningServer]:
    with running_fake(folder) as server:
        yield server


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_fake(tmp_path_factory.mktemp("told")) as server:
        yield server


def scrape(server: RunningServer) -> Scraped:
    answer = server.ask("GET", "/metrics")
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return Scraped(answer.body.decode())


def scrape_until(server: RunningServer, status: str, number: float) -> Scraped:
    """A scrape that has so many chat completions with a status: they are counted when the last byte is on its way."""
    deadline = time.monotonic() + 30
    while (told := scrape(server)).http().get((CHAT, status), 0) < number:
        assert time.monotonic() < deadline, told.http()
        time.sleep(0.02)
    return told


def test_the_numbers_are_the_sums_of_what_clients_were_told(server: RunningServer) -> None:
    usages: list[dict[str, Any]] = []
    reasons: list[str] = []
    for fields in ({"max_tokens": 5}, {"max_tokens": 9, "n": 3}, {}, {"max_tokens": 20, "stop": "\ufffd"}):
        told = server.chat(**fields).json()
        usages.append(told["usage"])
        reasons += [choice["finish_reason"] for choice in told["choices"]]
    for fields in ({"max_tokens": 7}, {"max_tokens": 30, "n": 2}):
        *chunks, usage, _ = events(server.chat(**fields, stream=True, stream_options={"include_usage": True}).body)
        usages.append(usage["usage"])
        ends = [each["choices"][0]["finish_reason"] for each in chunks]
        reasons += [reason for reason in ends if reason is not None]
    assert server.chat(temperature=9).status == 400
    assert server.chat(model="other").status == 404
    assert server.chat(messages=[{"role": "user", "content": "x" * 300}]).status == 400
    told = scrape_until(server, "400", 2)
    assert told.finished() == {reason: reasons.count(reason) for reason in set(reasons)}
    assert told.get("generation_tokens_total") == sum(usage["completion_tokens"] for usage in usages)
    assert told.get("prompt_tokens_total") == sum(usage["prompt_tokens"] for usage in usages)
    cached = sum(usage["prompt_tokens_details"]["cached_tokens"] for usage in usages)
    assert told.get("prefix_cache_hits_total") == cached
    assert told.get("request_generation_tokens_count") == len(reasons)
    assert told.http() == {(CHAT, "200"): 6, (CHAT, "400"): 2, (CHAT, "404"): 1} | {
        key: value for key, value in told.http().items() if key[0] == "/metrics"
    }


def test_requests_that_run_wait_leave_and_are_refused_are_seen(server: RunningServer, folder: Path) -> None:
    (folder / "slow").touch()
    connections = []
    for num_sent in range(1, 9):  # four run and four wait
        connections.append(server.start_chat(stream=num_sent % 2 == 0))
        server.wait_for((min(num_sent, 4), max(num_sent - 4, 0)))
    told = scrape(server)
    assert (told.get("num_requests_running"), told.get("num_requests_waiting")) == (4, 4)
    assert told.get("num_requests_waiting_by_reason", reason="capacity") == 4
    cache = server.ask("GET", "/ready").json()["cache"]
    assert 0 < told.get("kv_cache_usage_perc") <= 1 - cache["num_free_blocks"] / cache["num_blocks"]
    assert server.chat().status == 503
    for connection in connections:
        connection.close()
    server.wait_for((0, 0))
    told = scrape_until(server, "499", 6)  # all but the two streams that had begun
    assert told.http() == {(CHAT, "499"): 6, (CHAT, "200"): 2, (CHAT, "503"): 1} | {
        key: value for key, value in told.http().items() if key[0] in ("/metrics", "/ready")
    }
    assert told.finished() == {"aborted": 8, "rejected": 1}
    assert told.get("generation_tokens_total") == told.get("request_generation_tokens_sum") > 0
    assert told.get("kv_cache_usage_perc") == told.get("num_requests_running") == 0


def test_copies_that_wait_for_their_prompt_are_told_apart(server: RunningServer, folder: Path) -> None:
    (folder / "slow").touch()
    connection = server.start_chat(messages=[{"role": "user", "content": "x" * 200}], n=3)
    server.wait_for((1, 2))
    told = scrape(server)
    assert told.get("num_requests_waiting_by_reason", reason="deferred") == 2
    assert told.get("num_requests_waiting_by_reason", reason="capacity") == 0
    connection.close()


def test_nothing_that_clients_send_makes_a_series(shared: RunningServer) -> None:
    server, dice = shared, random.Random(5)

    def send(number: int) -> None:
        word = f"{number}-{dice.randrange(10**9)}"
        server.ask(f"M{number}", f"/{word}", headers={"x-request-id": word, "user-agent": word})
        server.ask("GET", f"/v1/models/{word}?{word}={word}")
        server.ask("POST", f"/v1/{word}", b"{}", JSON)
        server.chat(model=word, user=word)
        server.chat(max_tokens=1, user=word, seed=number, metadata={word: word})

    send(0)
    before = scrape(server).series | scrape(server).series
    for number in range(1, 40):
        send(number)
    assert scrape_until(server, "200", 40).series == before


def test_every_series_has_a_name_of_ours_and_a_line_of_help(shared: RunningServer) -> None:
    told = scrape(shared)
    assert len(told.families) > 15
    docs = DOCS.read_text(encoding="utf-8")
    for family in told.families.values():
        name = family.name.removeprefix("cutaway_") + ("_total" if family.type == "counter" else "")
        assert f"`{name}`" in docs
        assert family.name.startswith("cutaway_")
        assert family.documentation.endswith(".")
    labels = {name for sample in told.samples for name in sample.labels}
    assert labels <= {"model_name", "finished_reason", "reason", "route", "status", "le"}
