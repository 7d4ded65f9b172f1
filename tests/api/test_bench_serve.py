"""``cutaway bench serve`` as a user runs it, against a server here that streams, and misbehaves on purpose."""

import contextlib
import http.server
import json
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from conftest import CutawayCommand

WORDS = ("Yes", ", it", " is")
USAGE = {"prompt_tokens": 11, "completion_tokens": 4, "total_tokens": 15}
WAIT_SECONDS = 60


class ChatServer:
    """Streams an answer of three words, of four tokens as it says; the name of the model asks for something else."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, object]] = []
        self.paths: list[str] = []
        self.keys: list[str | None] = []
        self.num_under_way = self.max_under_way = 0
        self.together: threading.Barrier | None = None
        self.lock = threading.Lock()
        self.closing = threading.Event()
        site = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                site.answer(self)

            def log_message(self, *arguments: object) -> None:
                """Keep the test output clean."""

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 64

            def handle_error(self, request: object, client_address: object) -> None:
                """Clients that go away in the middle are what some tests are about."""

        self.server = Server(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def answer(self, handler: http.server.BaseHTTPRequestHandler) -> None:
        body = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        with self.lock:
            self.bodies.append(body)
            self.paths.append(handler.path)
            self.keys.append(handler.headers["Authorization"])
            number = len(self.bodies)
            self.num_under_way += 1
            self.max_under_way = max(self.max_under_way, self.num_under_way)
        try:
            self.stream(handler, body["model"], number)
        finally:
            with self.lock:
                self.num_under_way -= 1

    def stream(self, handler: http.server.BaseHTTPRequestHandler, model: str, number: int) -> None:
        if model == "busy" or (model == "every second" and number % 2 == 0):
            content = json.dumps(
                {"error": {"message": f"no room for request {number}\x1b[31m", "type": "busy"}}
            ).encode()
            handler.send_response(503)
            handler.send_header("Content-Length", str(len(content)))
            handler.end_headers()
            handler.wfile.write(content)
            return
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream; charset=utf-8")
        handler.send_header("Connection", "close")
        handler.end_headers()
        handler.close_connection = True
        if self.together is not None:
            self.together.wait(WAIT_SECONDS)
        for event in self.events(handler.path, model):
            handler.wfile.write(event)
            handler.wfile.flush()
        if model == "silent":
            self.closing.wait(WAIT_SECONDS)

    def events(self, path: str, model: str) -> Iterator[bytes]:
        yield b": a comment to keep the connection\n\n"
        if model in ("silent", "empty"):
            if model == "empty":
                yield b"data: [DONE]\n\n"
            return
        if path == "/v1/chat/completions":
            yield event({"choices": [{"delta": {"role": "assistant", "content": ""}}]})
        for word in WORDS:
            yield event({"choices": [{"delta": {"content": word}} if "chat" in path else {"text": word}]})
            if model == "cut":
                return
            if model == "broken":
                yield event({"error": {"message": "the engine is gone"}})
            if model == "garbage":
                yield b"data: {no json\n\n"
        yield event({"choices": [{"delta": {}, "text": "", "finish_reason": "stop"}]})
        if model != "no usage":
            yield event({"choices": [], "usage": USAGE})
        if model != "no done":
            yield b"data: [DONE]\n\n"


def event(value: dict[str, object]) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\r\n\r\n"


@pytest.fixture
def chat_server(no_proxy: None) -> Iterator[ChatServer]:
    site = ChatServer()
    thread = threading.Thread(target=site.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield site
    finally:
        site.closing.set()
        site.server.shutdown()
        thread.join()
        site.server.server_close()


def measure(command: CutawayCommand, site: ChatServer, *arguments: str, model: str = "tomato") -> dict[str, object]:
    done = command("bench", "serve", "--url", site.url, "-m", model, "--json", *arguments, check=True)
    return json.loads(done.stdout)


def test_what_the_server_says_is_counted(cutaway_command: CutawayCommand, chat_server: ChatServer) -> None:
    figures = measure(cutaway_command, chat_server, "--num-prompts", "4", "--goodput", "ttft:60000")
    assert (figures["completed"], figures["failed"], figures["errors"]) == (4, 0, [])
    assert (figures["total_input_tokens"], figures["total_output_tokens"]) == (44, 16)
    duration = figures["duration"]
    assert isinstance(duration, float)
    assert figures["request_throughput"] == pytest.approx(4 / duration)
    assert figures["output_throughput"] == pytest.approx(16 / duration)
    assert figures["total_token_throughput"] == pytest.approx(60 / duration)
    assert figures["request_goodput"] == figures["request_throughput"]
    for metric in ("ttft", "tpot", "itl", "e2el"):
        for name in ("mean", "median", "std", "p90", "p99"):
            value = figures[f"{name}_{metric}_ms"]
            assert isinstance(value, float)
            assert value >= 0
    assert figures["mean_e2el_ms"] >= figures["mean_ttft_ms"] > 0  # type: ignore[operator]
    assert 1 <= figures["max_concurrent_requests"] <= 4  # type: ignore[operator]
    assert len({json.dumps(body) for body in chat_server.bodies}) == 5  # one to warm up, unlike all others


def test_nobody_can_meet_a_limit_of_a_nanosecond(cutaway_command: CutawayCommand, chat_server: ChatServer) -> None:
    goodput = ("--goodput", "ttft:60000", "--goodput", "e2el:0.000001")
    assert measure(cutaway_command, chat_server, "--num-prompts", "2", *goodput)["request_goodput"] == 0


def test_the_request_is_what_was_asked_for(cutaway_command: CutawayCommand, chat_server: ChatServer) -> None:
    shape = ("--num-prompts", "1", "--input-len", "9", "--output-len", "33", "--warmup", "0")
    measure(cutaway_command, chat_server, *shape, "--ignore-eos")
    body = chat_server.bodies[0]
    (message,) = body.pop("messages")  # type: ignore[misc]
    assert message["role"] == "user"
    assert len(message["content"].split()) == 9
    assert body == {
        "model": "tomato",
        "max_tokens": 33,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
        "ignore_eos": True,
    }
    assert chat_server.keys == [None]


def test_plain_completions_can_be_measured_too(cutaway_command: CutawayCommand, chat_server: ChatServer) -> None:
    figures = measure(cutaway_command, chat_server, "--num-prompts", "2", "--endpoint", "/v1/completions")
    assert (figures["completed"], figures["total_output_tokens"]) == (2, 8)
    assert set(chat_server.paths) == {"/v1/completions"}
    assert isinstance(chat_server.bodies[0]["prompt"], str)


@pytest.mark.parametrize("ending", ["", "/", "/v1", "/v1/"])
def test_an_address_may_end_in_the_version(
    cutaway_command: CutawayCommand, chat_server: ChatServer, ending: str
) -> None:
    url = chat_server.url + ending
    cutaway_command("bench", "serve", "--url", url, "-m", "tomato", "--num-prompts", "1", "--warmup", "0", check=True)
    assert chat_server.paths == ["/v1/chat/completions"]


def test_a_seed_repeats_the_prompts(cutaway_command: CutawayCommand, chat_server: ChatServer) -> None:
    for seed in ("1", "1", "2"):
        measure(
            cutaway_command, chat_server, "--num-prompts", "3", "--warmup", "0", "--seed", seed, "--concurrency", "1"
        )
    prompts = [body["messages"][0]["content"] for body in chat_server.bodies]  # type: ignore[index]
    assert prompts[:3] == prompts[3:6]
    assert not set(prompts[:3]) & set(prompts[6:])


def test_the_key_comes_from_the_environment_or_the_option(
    cutaway_command: CutawayCommand, chat_server: ChatServer
) -> None:
    command = ("bench", "serve", "--url", chat_server.url, "-m", "tomato", "--num-prompts", "1", "--warmup", "0")
    env: dict[str, str | None] = {"CUTAWAY_BENCH_API_KEY": "from-the-environment"}
    cutaway_command(*command, env=env, check=True)
    cutaway_command(*command, "--api-key", "from-the-option", env=env, check=True)
    assert chat_server.keys == ["Bearer from-the-environment", "Bearer from-the-option"]


def test_no_more_requests_than_allowed_are_under_way(cutaway_command: CutawayCommand, chat_server: ChatServer) -> None:
    figures = measure(cutaway_command, chat_server, "--num-prompts", "12", "--max-concurrency", "2")
    assert figures["completed"] == 12
    assert chat_server.max_under_way <= 2
    assert figures["max_concurrent_requests"] <= 2  # type: ignore[operator]


def test_without_a_limit_all_are_under_way_at_once(cutaway_command: CutawayCommand, chat_server: ChatServer) -> None:
    chat_server.together = threading.Barrier(8)  # nobody is answered before eight have asked
    figures = measure(cutaway_command, chat_server, "--num-prompts", "8", "--warmup", "0")
    assert (figures["completed"], figures["max_concurrent_requests"]) == (8, 8)


def test_a_rate_spreads_the_requests(cutaway_command: CutawayCommand, chat_server: ChatServer) -> None:
    figures = measure(cutaway_command, chat_server, "--num-prompts", "6", "--request-rate", "20", "--burstiness", "5")
    assert figures["duration"] >= 6 / 20  # type: ignore[operator]
    assert (figures["request_rate"], figures["burstiness"]) == (20, 5)


def test_prompts_can_come_from_a_file(cutaway_command: CutawayCommand, chat_server: ChatServer, tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": "Is a tomato a fruit?", "max_tokens": 5}\n{"prompt": "토마토?"}\n', encoding="utf-8")
    arguments = ("--dataset", str(path), "--warmup", "0", "--concurrency", "1", "--output-len", "7")
    assert measure(cutaway_command, chat_server, *arguments)["completed"] == 2
    asked = [(body["messages"][0]["content"], body["max_tokens"]) for body in chat_server.bodies]  # type: ignore[index]
    assert asked == [("Is a tomato a fruit?", 5), ("토마토?", 7)]
    more = ("bench", "serve", "--url", chat_server.url, "-m", "x", "--dataset", str(path), "--num-prompts", "3")
    done = cutaway_command(*more)
    assert (done.rc, done.stdout) == (2, "")
    assert "num_prompts: 3 are more than the 2 of" in done.stderr


def test_tokens_are_counted_here_when_the_server_does_not(
    cutaway_command: CutawayCommand, chat_server: ChatServer
) -> None:
    command = ("bench", "serve", "--url", chat_server.url, "-m", "no usage", "--num-prompts", "2", "--json")
    done = cutaway_command(*command, "--input-len", "6", check=True)
    figures = json.loads(done.stdout)
    # A chunk with text counts as one token: not the one with the role, nor the last one.
    assert (figures["total_input_tokens"], figures["total_output_tokens"]) == (12, 6)
    assert "did not say how many tokens 2 answers have" in done.stderr


def test_a_tokenizer_counts_them_exactly(
    cutaway_command: CutawayCommand, chat_server: ChatServer, real_model: object
) -> None:
    model = str(real_model("smollm2-135m-instruct"))  # type: ignore[operator]
    command = ("bench", "serve", "--url", chat_server.url, "-m", "no usage", "--num-prompts", "2", "--json")
    done = cutaway_command(*command, "--tokenizer", model, check=True)
    text = "".join(WORDS)
    tokens = json.loads(cutaway_command("tokenize", "-m", model, "--json", text, check=True).stdout)
    assert json.loads(done.stdout)["total_output_tokens"] == 2 * tokens["num_tokens"]
    assert "note:" not in done.stderr


def test_a_stream_that_only_says_why_it_ended_is_whole(
    cutaway_command: CutawayCommand, chat_server: ChatServer
) -> None:
    assert measure(cutaway_command, chat_server, "--num-prompts", "2", model="no done")["completed"] == 2


def test_failures_are_counted_and_shown_and_count_nowhere_else(
    cutaway_command: CutawayCommand, chat_server: ChatServer
) -> None:
    command = ("bench", "serve", "--url", chat_server.url, "-m", "every second", "--num-prompts", "6", "--warmup", "0")
    done = cutaway_command(*command, "--concurrency", "1", "--json", check=True)
    figures = json.loads(done.stdout)
    assert (figures["completed"], figures["failed"], figures["total_output_tokens"]) == (3, 3, 12)
    assert figures["errors"][0] == "HTTP 503: no room for request 2\x1b[31m"
    assert "3 of 6 requests failed:\n  HTTP 503: no room for request 2\\x1b[31m\n" in done.stderr


@pytest.mark.parametrize(
    ("model", "cause"),
    [
        ("busy", "HTTP 503: no room for request"),
        ("cut", "the stream was cut after 2 chunks"),
        ("broken", "the stream has an error: the engine is gone"),
        ("garbage", "an event is no JSON object: {no json"),
        ("empty", "the stream had no event with choices"),
        ("silent", "there was no whole answer within 0.5 s"),
    ],
)
def test_a_run_in_which_everything_fails_is_an_error(
    cutaway_command: CutawayCommand, chat_server: ChatServer, model: str, cause: str
) -> None:
    command = ("bench", "serve", "--url", chat_server.url, "-m", model, "--num-prompts", "2", "--warmup", "0")
    done = cutaway_command(*command, "--timeout", "0.5" if model == "silent" else "60")
    assert (done.rc, done.stdout) == (1, "")
    assert f"error: all 2 requests failed; the first: {cause}" in done.stderr


def test_a_server_that_fails_at_the_warm_up_is_asked_no_more(
    cutaway_command: CutawayCommand, chat_server: ChatServer
) -> None:
    done = cutaway_command("bench", "serve", "--url", chat_server.url, "-m", "busy", "--num-prompts", "50")
    assert (done.rc, done.stdout) == (1, "")
    assert "failed at the warm-up: HTTP 503" in done.stderr
    assert len(chat_server.bodies) == 1


def test_a_server_that_is_not_there_is_named(cutaway_command: CutawayCommand, no_proxy: None) -> None:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    done = cutaway_command("bench", "serve", "--url", url, "-m", "tomato", "--num-prompts", "2")
    assert (done.rc, done.stdout) == (1, "")
    assert f"error: {url}/v1/chat/completions failed at the warm-up: ConnectError" in done.stderr
    assert "hint: is the server there" in done.stderr


def test_the_table_names_every_figure(cutaway_command: CutawayCommand, chat_server: ChatServer) -> None:
    command = ("bench", "serve", "--url", chat_server.url, "-m", "tomato", "--num-prompts", "3")
    done = cutaway_command(*command, "--goodput", "e2el:60000", "--metric-percentiles", "50,99.9", check=True)
    rows = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert rows[0] == "requests 3 completed, 0 failed"
    assert "tokens 33 in, 12 out" in rows
    assert [row.split()[0] for row in rows[:8]] == [
        *("requests", "duration", "tokens", "requests/s", "goodput", "output", "total", "concurrent")
    ]
    assert "ms mean median std p50 p99.9" in rows
    for title in ("(TTFT)", "(TPOT)", "(ITL)", "(E2EL)"):
        assert any(title in row for row in rows)
    assert "asking: 100% of 3 requests" in done.stderr


def test_a_plot_shows_every_latency(cutaway_command: CutawayCommand, chat_server: ChatServer, tmp_path: Path) -> None:
    path = tmp_path / "run.svg"
    arguments = ("--num-prompts", "3", "--plot", str(path), "--goodput", "ttft:123")
    assert measure(cutaway_command, chat_server, *arguments)["completed"] == 3
    texts = {element.text for element in ElementTree.parse(path).iter() if element.tag.endswith("}text")}
    assert {"TTFT", "TPOT", "ITL", "E2EL", "Output", "Requests under way", "limit 123 ms"} <= texts


def test_a_plot_without_its_library_is_refused_before_anything_is_sent(
    cutaway_command: CutawayCommand, chat_server: ChatServer, tmp_path: Path
) -> None:
    (tmp_path / "blocked").mkdir()
    (tmp_path / "blocked" / "sitecustomize.py").write_text("import sys\nsys.modules['matplotlib'] = None\n")
    command = ("bench", "serve", "--url", chat_server.url, "-m", "x", "--plot", str(tmp_path / "run.svg"))
    done = cutaway_command(*command, env={"PYTHONPATH": f"{tmp_path / 'blocked'}:{os.environ.get('PYTHONPATH', '')}"})
    assert (done.rc, done.stdout) == (1, "")
    assert "hint: pip install 'cutaway[bench]'" in done.stderr
    assert chat_server.bodies == []


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--url", "127.0.0.1:8000"], "url: '127.0.0.1:8000'"),
        (["--url", "ftp://127.0.0.1"], "url: 'ftp://127.0.0.1' is no address of a server"),
        (["--url", "http://"], "url: 'http://' is no address of a server"),
        (["--endpoint", "/v1/embeddings"], "--endpoint"),
        (["--num-prompts", "0"], "num_prompts: 0 is outside its limits"),
        (["--request-rate", "-1"], "request_rate: -1.0 is outside its limits"),
        (["--burstiness", "0"], "burstiness: 0.0 is outside its limits"),
        (["--concurrency", "0"], "max_concurrency: 0 is outside its limits"),
        (["--input-len", "0"], "input_len: 0 is outside its limits"),
        (["--output-len", "-5"], "output_len: -5 is outside its limits"),
        (["--warmup", "-1"], "warmup: -1 is outside its limits"),
        (["--timeout", "0"], "timeout: 0.0 is outside its limits"),
        (["--seed", str(2**63)], "seed: 9223372036854775808 is outside its limits"),
        (["--goodput", "ttft"], "goodput: 'ttft' is not one of ttft, tpot, e2el"),
        (["--goodput", "itl:5"], "goodput: 'itl:5' is not one of ttft, tpot, e2el"),
        (["--goodput", "ttft:-5"], "goodput: -5.0 is outside its limits"),
        (["--goodput", "ttft:5", "--goodput", "ttft:6"], "goodput: a metric was given two limits"),
        (["--metric-percentiles", "50,101"], "metric_percentiles: 101.0 is outside its limits"),
        (["--metric-percentiles", "fifty"], "metric_percentiles: 'fifty' is no list of numbers"),
        (["--dataset", "missing.jsonl"], "dataset: missing.jsonl cannot be read"),
        (["--plot", "run.png"], "plot: run.png does not end in .svg"),
        (["--plot", "missing/run.svg"], "plot: missing/run.svg cannot be written"),
        (["--api-key", "two\nlines"], "api_key: it has characters that no header can carry"),
        (["--tokenizer", "no-such-model"], "no-such-model"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_what_cannot_be_done_is_refused_with_its_reason(
    cutaway_command: CutawayCommand, arguments: list[str], complaint: str
) -> None:
    done = cutaway_command("bench", "serve", "--url", "http://127.0.0.1:9", "-m", "tomato", *arguments)
    assert (done.rc, done.stdout) == (2, "")
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr
