"""``cutaway serve`` with a real model, as the official client of OpenAI sees it."""

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openai
import pytest
from conftest import CutawayCommand
from openai.types.chat import ChatCompletion
from running_server import READY, RunningServer, events, running
from scraped import Scraped

SMOLLM = "smollm2-135m-instruct"
QUESTION: Any = [{"role": "user", "content": "Is a tomato a fruit?"}]
NUM_STREAMS = 20
LEAVING_SECONDS = 5


@pytest.fixture(scope="module")
def smollm(real_model: Callable[[str], Path]) -> str:
    return str(real_model(SMOLLM))


@pytest.fixture(scope="module", params=["thread", "process"])
def server(
    request: pytest.FixtureRequest, smollm: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    """A server; where its engine runs makes no difference."""
    command = CutawayCommand(tmp_path_factory.mktemp("serve"))
    arguments = ["serve", "-m", smollm, "--port", "0", "--context", "2048", "--worker", request.param]
    arguments += ["--allowed-host", "pc.example"]
    with running([*command.program, *arguments], command.environment(None)) as server:
        yield server
        assert READY.fullmatch(server.lines[-1]), "nothing is said after the start"


@pytest.fixture
def client(server: RunningServer, no_proxy: None) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


@dataclass(frozen=True)
class Told:
    """What a client was told of one answer."""

    text: str
    tokens: tuple[tuple[str, tuple[int, ...] | None, float], ...]
    finish_reason: str | None


def told(completion: ChatCompletion, index: int = 0) -> Told:
    choice = completion.choices[index]
    assert choice.index == index
    assert choice.logprobs is not None
    tokens = tuple(
        (token.token, None if token.bytes is None else tuple(token.bytes), token.logprob)
        for token in choice.logprobs.content or ()
    )
    return Told(choice.message.content or "", tokens, choice.finish_reason)


def ask(client: openai.OpenAI, server: RunningServer, **fields: Any) -> ChatCompletion:
    basis = {"model": server.model, "messages": QUESTION, "temperature": 0, "max_tokens": 24, "logprobs": True}
    return client.chat.completions.create(**basis | fields)  # type: ignore[no-any-return]


def ask_streaming(client: openai.OpenAI, server: RunningServer, **fields: Any) -> Told:
    text, tokens, reasons = "", [], []
    for chunk in ask(client, server, stream=True, **fields):
        (choice,) = chunk.choices  # type: ignore[attr-defined]
        text += choice.delta.content or ""
        for token in choice.logprobs.content if choice.logprobs else ():
            tokens.append((token.token, None if token.bytes is None else tuple(token.bytes), token.logprob))
        reasons += [] if choice.finish_reason is None else [choice.finish_reason]
    (reason,) = reasons
    return Told(text, tuple(tokens), reason)


def test_models_are_listed(client: openai.OpenAI, server: RunningServer) -> None:
    (model,) = client.models.list().data
    assert model.id == server.model
    assert client.models.retrieve(server.model) == model
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("other")
    assert caught.value.code == "model_not_found"


def test_an_answer_is_that_of_ask_whole_and_streamed(
    client: openai.OpenAI, server: RunningServer, cutaway_command: CutawayCommand, smollm: str
) -> None:
    options = ["--json", "--logprobs", "3", "--max-tokens", "24", "--context", "2048"]
    expected = json.loads(cutaway_command("ask", "-m", smollm, QUESTION[0]["content"], *options, check=True).stdout)
    completion = ask(client, server, top_logprobs=3)
    answer = told(completion)
    assert answer.text == expected["text"]
    assert answer.finish_reason == expected["finish_reason"]
    assert [logprob for _, _, logprob in answer.tokens] == [each["logprob"] for each in expected["logprobs"]]
    content = completion.choices[0].logprobs.content  # type: ignore[union-attr]
    assert content is not None
    tops = [[(other.token, other.logprob) for other in token.top_logprobs] for token in content]
    assert tops == [[(other["text"], other["logprob"]) for other in each["top"]] for each in expected["logprobs"]]
    assert completion.usage is not None
    assert completion.usage.prompt_tokens == expected["usage"]["prompt_tokens"]
    assert completion.usage.completion_tokens == expected["usage"]["completion_tokens"]
    assert ask_streaming(client, server, top_logprobs=3) == answer


def test_the_bytes_of_all_tokens_are_the_text(client: openai.OpenAI, server: RunningServer) -> None:
    question = [{"role": "user", "content": "Write the Korean word for tomato: 토마토. Repeat it with an emoji 🍅."}]
    answer = told(ask(client, server, messages=question, max_tokens=40))
    written = b"".join(bytes(content or ()) for _, content, _ in answer.tokens)
    assert written.decode("utf-8", "replace") == answer.text


def test_a_stream_is_exactly_what_openai_sends(server: RunningServer) -> None:
    answer = server.chat(messages=QUESTION, max_tokens=6, stream=True, stream_options={"include_usage": True})
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    *chunks, usage, done = events(answer.body)
    assert done == "[DONE]"
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": "", "refusal": None}
    assert chunks[-1]["choices"][0]["delta"] == {}
    assert [each["choices"][0]["finish_reason"] for each in chunks] == [None] * (len(chunks) - 1) + ["length"]
    assert all(each["usage"] is None for each in chunks)
    assert len({(each["id"], each["created"], each["model"]) for each in [*chunks, usage]}) == 1
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 6
    without = events(server.chat(messages=QUESTION, max_tokens=6, stream=True).body)
    assert not any("usage" in each for each in without[:-1])


def test_a_second_time_the_prompt_is_in_the_cache(client: openai.OpenAI, server: RunningServer) -> None:
    messages = [{"role": "user", "content": "Count the words: " + "tomato " * 60}]
    usages = [ask(client, server, messages=messages, max_tokens=2).usage for _ in range(2)]
    cached = [usage.prompt_tokens_details.cached_tokens for usage in usages]  # type: ignore[union-attr]
    assert cached[0] < 40
    assert cached[1] > 60


def test_copies_are_answers_to_the_next_seeds(client: openai.OpenAI, server: RunningServer) -> None:
    together = ask(client, server, temperature=1, seed=7, n=2)
    alone = [told(ask(client, server, temperature=1, seed=seed)) for seed in (7, 8)]
    assert [told(together, index) for index in range(2)] == alone
    assert alone[0].text != alone[1].text
    assert together.usage is not None
    assert together.usage.completion_tokens == sum(len(each.tokens) for each in alone)


def test_without_a_temperature_tokens_are_drawn(client: openai.OpenAI, server: RunningServer) -> None:
    drawn = ask(client, server, temperature=openai.omit, seed=5)
    assert told(drawn) == told(ask(client, server, temperature=1, seed=5))
    assert told(drawn) != told(ask(client, server, temperature=0, seed=5))


def test_without_a_seed_answers_differ(client: openai.OpenAI, server: RunningServer) -> None:
    texts = {told(ask(client, server, temperature=2, max_tokens=16)).text for _ in range(3)}
    assert len(texts) > 1


def test_settings_reach_the_sampler(client: openai.OpenAI, server: RunningServer) -> None:
    plain = told(ask(client, server, temperature=1.5, seed=3))
    settings: list[dict[str, Any]] = [{"top_k": 1}, {"min_p": 1.0}, {"repetition_penalty": 5.0}, {"top_n_sigma": 0.1}]
    settings += [{"typical_p": 0.1}, {"xtc_probability": 1.0, "xtc_threshold": 0.01}]
    settings += [{"dry_multiplier": 5.0, "dry_allowed_length": 1, "dry_sequence_breakers": []}]
    for body in settings:
        assert told(ask(client, server, temperature=1.5, seed=3, extra_body=body)) != plain, body
    for name, value in (("top_p", 0.01), ("presence_penalty", 2.0), ("frequency_penalty", 2.0)):
        changed = ask(client, server, **{"temperature": 1.5, "seed": 3, "max_tokens": 60, name: value})
        assert told(changed) != told(ask(client, server, temperature=1.5, seed=3, max_tokens=60)), name


def test_biases_and_bans_reach_the_sampler_and_leave_the_logprobs_alone(
    client: openai.OpenAI, server: RunningServer, cutaway_command: CutawayCommand, smollm: str
) -> None:
    options = ["--json", "--max-tokens", "8", "--context", "2048"]
    free = json.loads(cutaway_command("ask", "-m", smollm, QUESTION[0]["content"], *options, check=True).stdout)
    first = free["token_ids"][0]
    plain, biased = (
        ask(client, server, max_tokens=8, top_logprobs=3, **more) for more in ({}, {"logit_bias": {first: -100}})
    )
    entries = [completion.choices[0].logprobs.content[0] for completion in (plain, biased)]  # type: ignore[union-attr,index]
    assert entries[0].token != entries[1].token
    assert entries[0].top_logprobs == entries[1].top_logprobs
    stopped = ask(client, server, max_tokens=8, extra_body={"stop_token_ids": [free["token_ids"][3]]})
    assert (told(stopped).finish_reason, len(told(stopped).tokens)) == ("stop", 4)


def test_an_answer_can_be_made_to_go_on(client: openai.OpenAI, server: RunningServer) -> None:
    hello: Any = [{"role": "user", "content": "Say hi."}]
    free = told(ask(client, server, messages=hello, max_tokens=60))
    assert free.finish_reason == "stop"
    length = len(free.tokens)
    for fields in ({"min_tokens": length + 5}, {"ignore_eos": True}):
        longer = told(ask(client, server, messages=hello, max_tokens=length + 5, extra_body=fields))
        assert (len(longer.tokens), longer.finish_reason) == (length + 5, "length")
        assert longer.text.startswith(free.text)
    with pytest.raises(openai.BadRequestError, match="not in the vocabulary, whose ids go from 0 to 49,151") as caught:
        ask(client, server, logit_bias={49_152: 1})
    assert caught.value.param == "logit_bias"


@pytest.mark.parametrize("many", [False, True])
def test_a_stop_string_ends_the_answer_before_it(client: openai.OpenAI, server: RunningServer, many: bool) -> None:
    text = told(ask(client, server)).text
    stop = text[10:14]
    fields: dict[str, Any] = {"stop": ["never seen", stop] if many else stop}
    answer = told(ask(client, server, **fields))
    assert (answer.text, answer.finish_reason) == (text[: text.index(stop)], "stop")
    assert ask_streaming(client, server, **fields) == answer


def test_max_completion_tokens_is_the_same_limit(client: openai.OpenAI, server: RunningServer) -> None:
    new = ask(client, server, max_tokens=openai.omit, max_completion_tokens=3)
    assert told(new) == told(ask(client, server, max_tokens=3))
    assert told(new).finish_reason == "length"


def test_roles_and_parts_make_the_same_prompt(client: openai.OpenAI, server: RunningServer) -> None:
    plain = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Say\nhello"}]
    parts = [
        {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]},
        {"role": "user", "content": [{"type": "text", "text": "Say"}, {"type": "text", "text": "hello"}]},
    ]
    assert told(ask(client, server, messages=parts)) == told(ask(client, server, messages=plain))


def test_an_answer_can_be_sent_back_as_it_came(client: openai.OpenAI, server: RunningServer) -> None:
    first = ask(client, server).choices[0].message
    messages = [*QUESTION, first, {"role": "user", "content": "And a cucumber?"}]
    plain = [*QUESTION, {"role": "assistant", "content": first.content}, {"role": "user", "content": "And a cucumber?"}]
    assert told(ask(client, server, messages=messages)) == told(ask(client, server, messages=plain))
    sent_back = [*QUESTION, first.model_dump(), {"role": "user", "content": "And a cucumber?"}]
    assert told(ask(client, server, messages=sent_back)) == told(ask(client, server, messages=plain))


def test_the_client_raises_the_errors_of_openai(client: openai.OpenAI, server: RunningServer) -> None:
    with pytest.raises(openai.NotFoundError) as unknown:
        ask(client, server, model="gpt-4o")
    assert (unknown.value.code, unknown.value.param) == ("model_not_found", "model")
    with pytest.raises(openai.BadRequestError) as long:
        ask(client, server, messages=[{"role": "user", "content": "word " * 3000}])
    assert (long.value.code, long.value.param) == ("context_length_exceeded", "messages")
    with pytest.raises(openai.BadRequestError) as wrong:
        ask(client, server, temperature=2.5, stream=True)
    assert (wrong.value.code, wrong.value.param) == ("invalid_value", "temperature")
    with pytest.raises(openai.BadRequestError, match="did you mean max_tokens"):
        ask(client, server, extra_body={"max_token": 5})


def test_the_request_id_is_the_clients(client: openai.OpenAI, server: RunningServer) -> None:
    given = ask(client, server, max_tokens=1, extra_headers={"x-request-id": "mine-1"})
    assert given._request_id == "mine-1"
    assert (ask(client, server, max_tokens=1)._request_id or "").startswith("req_")


def test_a_client_that_leaves_ends_its_request(client: openai.OpenAI, server: RunningServer) -> None:
    story: Any = [{"role": "user", "content": "Write a very long story about a tomato that travels the world."}]
    stream = ask(client, server, messages=story, max_tokens=1900, temperature=1, seed=1, stream=True)
    next(iter(stream))
    stream.close()  # type: ignore[attr-defined]
    server.wait_for((0, 0), seconds=LEAVING_SECONDS)
    connection = server.start_chat(messages=story, max_tokens=1900, n=4)
    server.wait_for((1, 3), (4, 0))
    connection.close()
    server.wait_for((0, 0), seconds=LEAVING_SECONDS)


def test_answers_in_company_are_those_alone_bit_for_bit(
    client: openai.OpenAI, server: RunningServer, no_proxy: None
) -> None:
    fields: list[dict[str, Any]] = [
        {
            "messages": [{"role": "user", "content": f"Name {number} things that are red." + " Really." * number}],
            "temperature": number % 3 / 2,
            "seed": number,
            "max_tokens": 8 + number,
            "top_logprobs": number % 4,
        }
        for number in range(NUM_STREAMS)
    ]
    alone = [ask_streaming(client, server, **each) for each in fields]

    async def all_at_once() -> list[Told]:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as together:
            return await asyncio.gather(*(ask_async(together, server, **each) for each in fields))

    assert asyncio.run(all_at_once()) == alone


async def ask_async(client: openai.AsyncOpenAI, server: RunningServer, **fields: Any) -> Told:
    text, tokens, reasons = "", [], []
    stream: Any = await client.chat.completions.create(model=server.model, logprobs=True, stream=True, **fields)
    async for chunk in stream:
        (choice,) = chunk.choices
        text += choice.delta.content or ""
        for token in choice.logprobs.content if choice.logprobs else ():
            tokens.append((token.token, None if token.bytes is None else tuple(token.bytes), token.logprob))
        reasons += [] if choice.finish_reason is None else [choice.finish_reason]
    (reason,) = reasons
    return Told(text, tuple(tokens), reason)


def test_the_asynchronous_client_gets_whole_answers(
    client: openai.OpenAI, server: RunningServer, no_proxy: None
) -> None:
    async def once() -> ChatCompletion:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as other:
            return await other.chat.completions.create(
                model=server.model, messages=QUESTION, temperature=0, max_tokens=24, logprobs=True
            )

    assert told(asyncio.run(once())) == told(ask(client, server))


def test_the_helper_for_streams_understands_them(client: openai.OpenAI, server: RunningServer) -> None:
    stop = told(ask(client, server)).text[10:14]  # the helper raises for an answer that a limit ended
    asked = {"model": server.model, "messages": QUESTION, "temperature": 0, "max_tokens": 24, "logprobs": True}
    with client.chat.completions.stream(**asked, stop=stop) as stream:
        kinds = {event.type for event in stream}
        completion = stream.get_final_completion()
    assert {"chunk", "content.delta", "content.done"} <= kinds
    assert told(completion) == told(ask(client, server, stop=stop))


def test_the_metrics_grow_by_what_answers_cost(client: openai.OpenAI, server: RunningServer) -> None:
    def scrape() -> Scraped:
        return Scraped(server.ask("GET", "/metrics").body.decode())

    before = scrape()
    usages = [ask(client, server, n=n, max_tokens=9).usage for n in (1, 2)]
    after = scrape()
    expected = {
        "prompt_tokens_total": sum(usage.prompt_tokens for usage in usages if usage),
        "generation_tokens_total": sum(usage.completion_tokens for usage in usages if usage),
        "requests_finished_total": 3,
        "e2e_request_latency_seconds_count": 3,
        "inter_token_latency_seconds_count": sum(usage.completion_tokens for usage in usages if usage) - 3,
    }
    assert {name: after.get(name) - before.get(name) for name in expected} == expected
    assert {dict(labels).get("model_name", server.model) for _, labels in after.series} == {server.model}


def test_an_answer_tells_where_its_time_went(client: openai.OpenAI, server: RunningServer) -> None:
    wanted = {"cutaway": {"timings": True}}
    timed = ask(client, server, max_tokens=9, extra_body=wanted)
    assert told(timed) == told(ask(client, server, max_tokens=9))
    timings = timed.model_extra["cutaway"]["timings"]  # type: ignore[index]
    assert timings["request_id"] == timed._request_id
    (choice,) = timings["choices"]
    assert len(choice["token_ms"]) == 9
    assert choice["prefill_ms"] > 0
    *_, last = ask(client, server, max_tokens=9, stream=True, extra_body=wanted)
    assert len(last.model_extra["cutaway"]["timings"]["choices"][0]["token_ms"]) == 9  # type: ignore[attr-defined]


def test_a_server_for_this_machine_answers_to_its_own_names(server: RunningServer) -> None:
    told = {
        name: server.ask("GET", "/health", headers={"host": name}).status for name in ("pc.example", "evil.example")
    }
    assert told == {"pc.example": 200, "evil.example": 421}


def test_cutaway_bench_serve_can_measure_it(server: RunningServer, cutaway_command: CutawayCommand) -> None:
    options = ["--num-prompts", "4", "--input-len", "16", "--output-len", "8", "--json"]
    done = cutaway_command("bench", "serve", "--url", server.url, "-m", server.model, *options, check=True)
    figures = json.loads(done.stdout)
    assert (figures["completed"], figures["failed"]) == (4, 0)
    assert figures["total_output_tokens"] <= 32


def test_an_address_that_others_can_reach_is_pointed_out(cutaway_command: CutawayCommand, smollm: str) -> None:
    arguments = ["serve", "-m", smollm, "--port", "0", "--host", "0.0.0.0", "--context", "256"]
    with running([*cutaway_command.program, *arguments], cutaway_command.environment(None)) as server:
        assert server.ask("GET", "/ready").status == 200
        assert server.ask("GET", "/health", headers={"host": "any.example"}).status == 200
        assert "note: whoever can reach this address can use the model; there are no keys yet" in server.lines
        server.press_ctrl_c()
        assert server.wait() == 0
