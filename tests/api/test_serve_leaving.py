"""Clients that leave, and servers that end; the engine has no model, and is slow: an answer takes half a minute."""

import contextlib
import json
import os
import random
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import CutawayCommand
from running_server import CHAT, JSON, RunningServer, events, running_fake

LEAVING_SECONDS = 5  # far less than an answer takes


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "slow").touch()
    return tmp_path


@pytest.fixture
def server(folder: Path) -> Iterator[RunningServer]:
    """A slow server."""
    with running_fake(folder) as server:
        yield server


@pytest.mark.parametrize("fields", [{}, {"stream": True}, {"n": 3}, {"stream": True, "n": 3}])
def test_a_client_that_leaves_ends_its_request(server: RunningServer, fields: dict[str, object]) -> None:
    connection = server.start_chat(**fields)
    server.wait_for((fields.get("n", 1), 0))
    connection.close()
    server.wait_for((0, 0), seconds=LEAVING_SECONDS)


def test_a_client_that_leaves_inside_a_stream_ends_its_request(server: RunningServer) -> None:
    connection = server.start_chat(stream=True)
    response = connection.getresponse()
    for _ in range(8):
        response.readline()
    response.close()
    connection.close()
    server.wait_for((0, 0), seconds=LEAVING_SECONDS)


def test_a_client_that_breaks_the_connection_ends_its_request(server: RunningServer) -> None:
    connection = server.start_chat(stream=True)
    server.wait_for((1, 0))
    linger_not = b"\x01\x00\x00\x00\x00\x00\x00\x00"
    connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger_not)
    connection.close()
    server.wait_for((0, 0), seconds=LEAVING_SECONDS)


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_the_queue_ends_its_request_and_no_other(server: RunningServer, stream: bool) -> None:
    running = [server.start_chat(stream=True) for _ in range(4)]
    server.wait_for((4, 0))
    waiting = [server.start_chat(stream=stream) for _ in range(3)]
    server.wait_for((4, 3))
    for connection in waiting:
        connection.close()
    server.wait_for((4, 0), seconds=LEAVING_SECONDS)
    for connection in running:
        connection.close()
    server.wait_for((0, 0), seconds=LEAVING_SECONDS)


def test_many_clients_that_leave_at_any_moment_leave_nothing_behind(server: RunningServer, folder: Path) -> None:
    (folder / "slow").unlink()
    told = server.ask("GET", "/ready").json()["cache"]
    expected = server.chat(max_tokens=20).json()["choices"]
    dice = random.Random(7)
    for _ in range(60):
        connection = server.start_chat(stream=dice.random() < 0.5, n=dice.choice((1, 1, 2)))
        if dice.random() < 0.5:
            connection.sock.settimeout(dice.random() / 20)
            with contextlib.suppress(TimeoutError):
                connection.sock.recv(dice.randrange(1, 2000))
        connection.close()
    server.wait_for((0, 0), seconds=LEAVING_SECONDS)
    assert server.ask("GET", "/ready").json()["cache"] == told
    assert server.chat(max_tokens=20).json()["choices"] == expected


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_an_idle_server_at_once(server: RunningServer, number: signal.Signals) -> None:
    keeping_alive = server.connect()
    keeping_alive.request("GET", "/health")
    keeping_alive.getresponse().read()
    server.process.send_signal(number)
    assert server.wait() == 0
    assert len(server.lines) == 1
    keeping_alive.close()


def test_ctrl_c_lets_requests_finish_and_takes_no_others(server: RunningServer, folder: Path) -> None:
    streaming = server.start_chat(stream=True)
    whole = server.start_chat()
    server.wait_for((2, 0))
    server.press_ctrl_c()
    while len(server.lines) < 2:
        assert server.process.poll() is None
    assert server.lines[1] == "requests still under way: 2; Ctrl-C again stops them"
    (folder / "slow").unlink()
    told = events(streaming.getresponse().read())
    assert told[-1] == "[DONE]"
    text = "".join(each["choices"][0]["delta"].get("content", "") for each in told[:-1])
    assert json.loads(whole.getresponse().read())["choices"][0]["message"]["content"] == text
    assert server.wait() == 0
    with pytest.raises(ConnectionRefusedError):
        server.chat()
    streaming.close()
    whole.close()


def test_ctrl_c_again_stops_requests_and_tells_their_clients(server: RunningServer) -> None:
    streaming = server.start_chat(stream=True)
    response = streaming.getresponse()
    first = response.readline()
    whole = server.start_chat()
    server.wait_for((2, 0))
    server.press_ctrl_c()
    while len(server.lines) < 2:
        assert server.process.poll() is None
    server.press_ctrl_c()
    told = events(first + response.read())
    assert told[-1]["error"]["code"] == "aborted"
    answer = whole.getresponse()
    assert answer.status == 503
    assert json.loads(answer.read())["error"]["code"] == "aborted"
    assert server.wait() == 130
    streaming.close()
    whole.close()


def test_a_client_that_does_not_read_cannot_keep_a_server_from_ending(server: RunningServer, folder: Path) -> None:
    (folder / "slow").unlink()
    connection = server.connect()
    connection.sock = socket.socket()
    connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.sock.connect(("127.0.0.1", server.port))
    connection.request("POST", CHAT, server.body(stream=True, n=4), JSON)
    server.wait_for((4, 0), (0, 0))
    server.wait_for((0, 0))  # all of the answer is there, but not all of it fits into the buffers
    server.press_ctrl_c()
    while len(server.lines) < 2:
        assert server.process.poll() is None
    server.press_ctrl_c()
    assert server.wait() == 130
    connection.close()


def test_a_port_that_is_taken_is_told_before_a_model_is_loaded(cutaway_command: CutawayCommand) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = cutaway_command("serve", "-m", "no-such-model", "--port", str(port))
    assert done.rc == 2
    assert f"error: port: {port} of 127.0.0.1 cannot be used: " in done.stderr
    assert "hint: another server is running there; --port 0 takes a port that is free" in done.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--port", "65536"], "port: 65536 is outside its limits, a whole number from 0 to 65,535"),
        (["--host", "203.0.113.7", "--port", "0"], "host: '203.0.113.7' is no address of this machine: "),
        (["--host", "no host", "--port", "0"], "host: 'no host' cannot be found: "),
        (["--host", "x" * 70 + ".y", "--port", "0"], "cannot be found: "),
        (["--port", "0", "--context", "0"], "context: 0 is outside its limits"),
        (["--port", "0", "-m", "no-such-model"], "no-such-model"),
    ],
)
def test_what_cannot_be_served_is_told_without_a_trace(
    cutaway_command: CutawayCommand, options: list[str], words: str
) -> None:
    done = cutaway_command("serve", *options)
    assert done.rc == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.skipif(os.geteuid() == 0 or sys.platform == "darwin", reason="this user may take any port")
def test_a_port_of_the_system_is_told(cutaway_command: CutawayCommand) -> None:
    done = cutaway_command("serve", "--port", "1")
    assert done.rc == 2
    assert "ports below 1024 are for the system" in done.stderr
