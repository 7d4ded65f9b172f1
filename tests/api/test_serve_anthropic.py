"""``cutaway serve`` with a real model, as the official client of Anthropic sees it."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anthropic
import pytest
from anthropic.types import Message, Usage
from conftest import CutawayCommand
from running_server import READY, RunningServer, named_events, running

SMOLLM = "smollm2-135m-instruct"
QUESTION: Any = [{"role": "user", "content": "Is a tomato a fruit?"}]
LEAVING_SECONDS = 5
NUM_STREAMS = 4
MAX_TOKENS = 12


@pytest.fixture(scope="module")
def server(real_model: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    command = CutawayCommand(tmp_path_factory.mktemp("serve"))
    arguments = ["serve", "-m", str(real_model(SMOLLM)), "--port", "0", "--context", "2048", "--worker", "process"]
    with running([*command.program, *arguments], command.environment(None)) as server:
        yield server
        assert READY.fullmatch(server.lines[-1]), "nothing is said after the start"


@pytest.fixture
def client(server: RunningServer, no_proxy: None) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0) as client:
        yield client


def asked(server: RunningServer, **fields: Any) -> dict[str, Any]:
    """A greedy question; the client takes settings of the sampler in ``extra_body`` only."""
    basis = {"model": server.model, "messages": QUESTION, "max_tokens": MAX_TOKENS, "extra_body": {"temperature": 0}}
    return basis | fields


def ask(client: anthropic.Anthropic, server: RunningServer, **fields: Any) -> Message:
    message: Message = client.messages.create(**asked(server, **fields))
    return message


def text_of(message: Message) -> str:
    (block,) = message.content
    assert block.type == "text"
    return block.text


def num_input(usage: Usage) -> int:
    """Tokens of the prompt, by Anthropic's definition."""
    return usage.input_tokens + (usage.cache_read_input_tokens or 0) + (usage.cache_creation_input_tokens or 0)


def openai_answer(server: RunningServer, messages: Any, **fields: Any) -> Any:
    return server.chat(messages=messages, max_tokens=MAX_TOKENS, **fields).json()


@pytest.mark.parametrize(
    ("system", "messages", "same"),
    [
        (anthropic.omit, QUESTION, QUESTION),
        ("Be brief.", QUESTION, [{"role": "system", "content": "Be brief."}, *QUESTION]),
        (
            [
                {"type": "text", "text": "Be"},
                {"type": "text", "text": "brief.", "cache_control": {"type": "ephemeral"}},
            ],
            [{"role": "user", "content": "Hi"}, *QUESTION, {"role": "assistant", "content": "Yes."}, *QUESTION],
            [
                {"role": "system", "content": "Be\nbrief."},
                {"role": "user", "content": f"Hi\n{QUESTION[0]['content']}"},
                {"role": "assistant", "content": "Yes."},
                *QUESTION,
            ],
        ),
    ],
)
def test_an_answer_is_that_of_the_other_api_and_its_prompt_is_counted(
    client: anthropic.Anthropic, server: RunningServer, system: Any, messages: Any, same: Any
) -> None:
    expected = openai_answer(server, same)
    message = ask(client, server, messages=messages, system=system)
    assert text_of(message) == expected["choices"][0]["message"]["content"]
    assert (message.model, message.role, message.type) == (server.model, "assistant", "message")
    assert message.id.startswith("msg_")
    assert num_input(message.usage) == expected["usage"]["prompt_tokens"]
    assert message.usage.output_tokens == expected["usage"]["completion_tokens"]
    counted = client.messages.count_tokens(model=server.model, messages=messages, system=system)
    assert counted.input_tokens == num_input(message.usage)


def test_a_stream_is_the_whole_answer_for_the_clients_helper(
    client: anthropic.Anthropic, server: RunningServer
) -> None:
    whole = ask(client, server)
    with client.messages.stream(**asked(server)) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_message()
    assert {"message_start", "content_block_delta", "text", "content_block_stop", "message_stop"} <= set(kinds)
    with client.messages.stream(**asked(server)) as stream:
        assert "".join(stream.text_stream) == text_of(whole)
        assert stream.get_final_text() == text_of(whole)
    assert text_of(final) == text_of(whole)
    assert (final.stop_reason, final.stop_sequence) == (whole.stop_reason, whole.stop_sequence)
    assert final.usage.output_tokens == whole.usage.output_tokens
    assert num_input(final.usage) == num_input(whole.usage)


def test_a_stream_is_exactly_what_anthropic_sends(server: RunningServer) -> None:
    answer = server.message(messages=QUESTION, max_tokens=6, stream=True)
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    start, block, *others, stop, last, end = named_events(answer.body)
    pings = [event for event in others if event == {"type": "ping"}]
    deltas = [event for event in others if event not in pings]
    assert (start["type"], block["type"]) == ("message_start", "content_block_start")
    assert others[0] == {"type": "ping"}
    assert {(event["type"], event["index"], event["delta"]["type"]) for event in deltas} == {
        ("content_block_delta", 0, "text_delta")
    }
    assert (stop, end) == ({"type": "content_block_stop", "index": 0}, {"type": "message_stop"})
    assert last["delta"] == {"stop_reason": "max_tokens", "stop_sequence": None}
    assert last["usage"] == start["message"]["usage"] | {"output_tokens": 6}
    assert start["message"]["stop_reason"] is None


def test_the_asynchronous_client_gets_the_same(
    client: anthropic.Anthropic, server: RunningServer, no_proxy: None
) -> None:
    async def play() -> tuple[Message, Message, int]:
        async with anthropic.AsyncAnthropic(base_url=server.url, api_key="none", max_retries=0) as other:
            whole = await other.messages.create(**asked(server))
            async with other.messages.stream(**asked(server)) as stream:
                final = await stream.get_final_message()
            counted = await other.messages.count_tokens(model=server.model, messages=QUESTION)
            return whole, final, counted.input_tokens

    whole, final, num_counted = asyncio.run(play())
    assert text_of(whole) == text_of(final) == text_of(ask(client, server))
    assert num_input(whole.usage) == num_input(final.usage) == num_counted


def test_a_stop_sequence_ends_the_answer_before_it_and_is_named(
    client: anthropic.Anthropic, server: RunningServer
) -> None:
    text = text_of(ask(client, server))
    stop = text[10:14]
    fields: Any = {"stop_sequences": ["never seen", stop]}
    whole = ask(client, server, **fields)
    with client.messages.stream(**asked(server, **fields)) as stream:
        streamed = stream.get_final_message()
    for message in (whole, streamed):
        assert text_of(message) == text[: text.index(stop)]
        assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", stop)


def test_the_other_ends_have_their_reasons(client: anthropic.Anthropic, server: RunningServer) -> None:
    limited = ask(client, server, max_tokens=3)
    assert (limited.stop_reason, limited.stop_sequence, limited.usage.output_tokens) == ("max_tokens", None, 3)
    ended = ask(client, server, messages=[{"role": "user", "content": "Say only: yes."}], max_tokens=400)
    assert (ended.stop_reason, ended.stop_sequence) == ("end_turn", None)
    long: Any = [{"role": "user", "content": "word " * 2030}]
    with pytest.raises(anthropic.BadRequestError, match="one of which must stay free"):
        ask(client, server, messages=long)


def test_settings_reach_the_sampler(client: anthropic.Anthropic, server: RunningServer) -> None:
    greedy = text_of(ask(client, server))
    assert text_of(ask(client, server, extra_body={"temperature": 1, "top_k": 1})) == greedy
    assert text_of(ask(client, server, extra_body={"top_p": 0.0001})) == greedy
    drawn = {text_of(ask(client, server, extra_body={"temperature": temperature})) for temperature in (1, 1, None)}
    assert len(drawn) > 1


def test_a_second_time_the_prompt_is_read_from_the_cache(client: anthropic.Anthropic, server: RunningServer) -> None:
    messages = [{"role": "user", "content": "Count the words: " + "tomato " * 60}]
    first, second = (ask(client, server, messages=messages, max_tokens=2).usage for _ in range(2))
    with client.messages.stream(**asked(server, messages=messages, max_tokens=2)) as stream:
        start = next(iter(stream))
        final = stream.get_final_message().usage
    assert first.cache_read_input_tokens < 40  # type: ignore[operator]
    assert second.cache_read_input_tokens > 60  # type: ignore[operator]
    assert first.cache_creation_input_tokens == second.cache_creation_input_tokens == 0
    assert num_input(first) == num_input(second)
    for usage in (start.message.usage, final):
        assert (usage.input_tokens, usage.cache_read_input_tokens) == (
            second.input_tokens,
            second.cache_read_input_tokens,
        )


def test_an_answer_can_be_sent_back_as_it_came(client: anthropic.Anthropic, server: RunningServer) -> None:
    first = ask(client, server)
    follow = {"role": "user", "content": "And a cucumber?"}
    plain = [*QUESTION, {"role": "assistant", "content": text_of(first)}, follow]
    expected = text_of(ask(client, server, messages=plain))
    for answer in (first.to_param(), {"role": "assistant", "content": first.content}):
        assert text_of(ask(client, server, messages=[*QUESTION, answer, follow])) == expected


def test_what_clients_send_beside_their_question_changes_nothing(
    client: anthropic.Anthropic, server: RunningServer
) -> None:
    expected = text_of(ask(client, server))
    fields: dict[str, Any] = {
        "metadata": {"user_id": "a"},
        "cache_control": {"type": "ephemeral"},
        "service_tier": "auto",
        "speed": "standard",
        "thinking": {"type": "disabled"},
        "tools": [],
        "tool_choice": {"type": "auto"},
        "user_profile_id": "u",
        "workspace_id": "w",
    }
    assert text_of(ask(client, server, **fields)) == expected
    beta: Any = client.beta.messages.create(**asked(server, betas=["some-2026-01-01"]))
    assert beta.content[0].text == expected


def test_models_are_listed_in_the_shape_of_the_client(client: anthropic.Anthropic, server: RunningServer) -> None:
    (model,) = client.models.list()
    assert (model.id, model.type, model.display_name) == (server.model, "model", server.model)
    assert model.max_input_tokens == 2048
    assert model.created_at.year > 2000
    assert client.models.retrieve(server.model) == model
    assert list(client.models.list(after_id=server.model)) == []
    assert [each.id for each in client.beta.models.list()] == [server.model]
    with pytest.raises(anthropic.NotFoundError):
        client.models.retrieve("other")
    assert server.ask("GET", "/v1/models").json()["object"] == "list"


def test_the_client_raises_the_errors_of_anthropic(client: anthropic.Anthropic, server: RunningServer) -> None:
    with pytest.raises(anthropic.NotFoundError) as unknown:
        ask(client, server, model="claude-x")
    assert unknown.value.type == "not_found_error"
    with pytest.raises(anthropic.BadRequestError, match=r"temperature: 1.5 is outside its limits") as wrong:
        client.messages.stream(**asked(server, extra_body={"temperature": 1.5})).__enter__()
    assert wrong.value.type == "invalid_request_error"
    assert (wrong.value.request_id or "").startswith("req_")
    with pytest.raises(anthropic.BadRequestError, match="cannot be continued"):
        client.messages.count_tokens(model=server.model, messages=[*QUESTION, {"role": "assistant", "content": "Yes"}])
    given = ask(client, server, max_tokens=1, extra_headers={"x-request-id": "mine-1"})
    assert given._request_id == "mine-1"


def test_a_client_that_leaves_ends_its_request(client: anthropic.Anthropic, server: RunningServer) -> None:
    story: Any = [{"role": "user", "content": "Write a very long story about a tomato that travels the world."}]
    with client.messages.stream(**asked(server, messages=story, max_tokens=1900)) as stream:
        next(iter(stream.text_stream))
    server.wait_for((0, 0), seconds=LEAVING_SECONDS)
    connection = server.start_message(messages=story, max_tokens=1900)
    server.wait_for((1, 0))
    connection.close()
    server.wait_for((0, 0), seconds=LEAVING_SECONDS)


def test_answers_in_company_are_those_alone(client: anthropic.Anthropic, server: RunningServer, no_proxy: None) -> None:
    questions = [[{"role": "user", "content": f"Name {number} red things."}] for number in range(NUM_STREAMS)]
    alone = [text_of(ask(client, server, messages=question)) for question in questions]

    async def all_at_once() -> list[str]:
        async with anthropic.AsyncAnthropic(base_url=server.url, api_key="none", max_retries=0) as other:

            async def one(question: Any) -> str:
                async with other.messages.stream(**asked(server, messages=question)) as stream:
                    return await stream.get_final_text()

            return await asyncio.gather(*map(one, questions))

    assert asyncio.run(all_at_once()) == alone
