"""Completions and tokens from ``cutaway serve`` with a real model, as the official client of OpenAI sees them."""

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from conftest import CutawayCommand
from openai.types import Completion
from running_server import JSON, RunningServer, running

MESSAGES: Any = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Is a <|im_end|> 토마토 🍅 a fruit?"},
]
PROMPTS = [
    "Once upon a time, there was a tomato",
    "토마토는 과일인가요? 🍅",
    "<|im_start|>user\nName a colour.<|im_end|>\n<|im_start|>assistant\n",
    "def fibonacci(n):\n",
    "1, 2, 3, 4,",
]
LEAVING_SECONDS = 5


@pytest.fixture(scope="module")
def server(real_model: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    command = CutawayCommand(tmp_path_factory.mktemp("serve"))
    model = str(real_model("smollm2-135m-instruct"))
    with running(
        [*command.program, "serve", "-m", model, "--port", "0", "--context", "512"], command.environment(None)
    ) as server:
        yield server


@pytest.fixture
def client(server: RunningServer, no_proxy: None) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def post(server: RunningServer, path: str, **fields: object) -> Any:
    answer = server.ask("POST", path, json.dumps(fields).encode(), JSON)
    assert answer.status == 200, answer.body
    return answer.json()


def complete(client: openai.OpenAI, server: RunningServer, prompt: Any, **fields: Any) -> Completion:
    basis = {"model": server.model, "prompt": prompt, "temperature": 0, "max_tokens": 16}
    return client.completions.create(**basis | fields)  # type: ignore[no-any-return]


def streamed(chunks: list[Completion]) -> dict[int, tuple[str, dict[str, list[Any]], str | None]]:
    """Text, log-probabilities and finish reason of each choice, put together."""
    told: dict[int, tuple[str, dict[str, list[Any]], str | None]] = {}
    for chunk in chunks:
        for choice in chunk.choices:
            text, logprobs, reason = told.get(choice.index, ("", {}, None))
            assert reason is None, "nothing comes after the end"
            for name, values in (choice.logprobs.model_dump() if choice.logprobs else {}).items():
                logprobs[name] = logprobs.get(name, []) + values
            told[choice.index] = (text + choice.text, logprobs, choice.finish_reason)
    return told


def whole(completion: Completion) -> dict[int, tuple[str, dict[str, list[Any]], str | None]]:
    return {
        choice.index: (choice.text, choice.logprobs.model_dump() if choice.logprobs else {}, choice.finish_reason)
        for choice in completion.choices
    }


@pytest.mark.parametrize("sampling", [{"temperature": 0}, {"temperature": 1, "seed": 7}])
def test_a_rendered_conversation_sent_as_tokens_gives_the_answer_of_the_chat_bit_for_bit(
    client: openai.OpenAI, server: RunningServer, sampling: dict[str, Any]
) -> None:
    asked = {"model": server.model, "max_tokens": 24, **sampling}
    (rendered,) = post(server, "/render", messages=MESSAGES, **asked)["prompts"]
    chat = client.chat.completions.create(messages=MESSAGES, logprobs=True, top_logprobs=3, **asked).choices[0]
    assert chat.logprobs is not None
    assert chat.logprobs.content is not None
    (choice,) = client.completions.create(prompt=rendered["tokens"], logprobs=3, **asked).choices
    assert choice.logprobs is not None
    assert (choice.text, choice.finish_reason) == (chat.message.content, chat.finish_reason)
    assert choice.logprobs.token_logprobs == [token.logprob for token in chat.logprobs.content]
    for name, token, top in zip(
        choice.logprobs.tokens or (), chat.logprobs.content, choice.logprobs.top_logprobs or (), strict=True
    ):
        assert name == token.token or name.startswith("bytes:")
        assert sorted(top.values())[-3:] == sorted(other.logprob for other in token.top_logprobs)
    assert rendered["kind"] == "chat"
    said = [segment["text"] for segment in rendered["segments"] if segment["origin"].startswith("messages")]
    assert said == [message["content"] for message in MESSAGES]
    assert "".join(segment["text"] for segment in rendered["segments"]) == rendered["prompt"]
    assert rendered["count"] == len(rendered["tokens"])


def test_a_typed_control_token_is_text_in_a_message_and_a_control_token_in_a_prompt(server: RunningServer) -> None:
    in_message = post(server, "/tokenize", messages=[{"role": "user", "content": "<|im_end|>"}])
    plain = post(server, "/tokenize", messages=[{"role": "user", "content": "tomato"}])
    (control,) = post(server, "/tokenize", prompt="<|im_end|>", add_special_tokens=False)["tokens"]
    assert in_message["tokens"].count(control) == plain["tokens"].count(control)


def test_a_batch_gives_what_each_prompt_gives_alone(client: openai.OpenAI, server: RunningServer) -> None:
    fields = {"logprobs": 5, "temperature": 0.8, "seed": 3, "n": 2}
    together = complete(client, server, PROMPTS, **fields)
    alone = [complete(client, server, prompt, **fields) for prompt in PROMPTS]
    assert [choice.index for choice in together.choices] == list(range(2 * len(PROMPTS)))
    expected = [choice for each in alone for choice in whole(each).values()]
    assert list(whole(together).values()) == expected
    assert together.usage is not None
    assert together.usage.prompt_tokens == sum(each.usage.prompt_tokens for each in alone if each.usage)
    assert together.usage.completion_tokens == sum(each.usage.completion_tokens for each in alone if each.usage)
    tokens = [post(server, "/tokenize", prompt=prompt)["tokens"] for prompt in PROMPTS]
    assert whole(complete(client, server, tokens, **fields)) == whole(together)


def test_streams_are_the_whole_answers(client: openai.OpenAI, server: RunningServer, no_proxy: None) -> None:
    fields = {"logprobs": 2, "stop": ["\n\n"], "max_tokens": 24}
    expected = whole(complete(client, server, PROMPTS, **fields))
    chunks: Any = complete(client, server, PROMPTS, stream=True, stream_options={"include_usage": True}, **fields)
    *parts, usage = list(chunks)
    assert streamed(parts) == expected
    assert usage.usage.completion_tokens == sum(len(logprobs["tokens"]) for _, logprobs, _ in expected.values())

    async def asked() -> tuple[Completion, list[Completion]]:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as other:
            basis: Any = {"model": server.model, "prompt": PROMPTS, "temperature": 0, **fields}
            stream = await other.completions.create(stream=True, **basis)
            return await other.completions.create(**basis), [chunk async for chunk in stream]

    completion, pieces = asyncio.run(asked())
    assert whole(completion) == streamed(pieces) == expected


@pytest.mark.parametrize("as_tokens", [False, True])
def test_echo_repeats_the_prompt(client: openai.OpenAI, server: RunningServer, as_tokens: bool) -> None:
    plain = [choice.text for choice in complete(client, server, PROMPTS).choices]
    prompts = [post(server, "/tokenize", prompt=prompt)["tokens"] for prompt in PROMPTS] if as_tokens else PROMPTS
    echoed = [choice.text for choice in complete(client, server, prompts, echo=True).choices]
    assert echoed == [prompt + text for prompt, text in zip(PROMPTS, plain, strict=True)]
    chunks: Any = complete(client, server, prompts, echo=True, stream=True)
    assert [text for text, _, _ in dict(sorted(streamed(chunks).items())).values()] == echoed


def test_log_probabilities_say_where_each_token_begins(client: openai.OpenAI, server: RunningServer) -> None:
    (choice,) = complete(client, server, PROMPTS[0], logprobs=5, max_tokens=24).choices
    logprobs = choice.logprobs
    assert logprobs is not None
    assert logprobs.tokens
    assert logprobs.text_offset
    assert logprobs.top_logprobs
    for token, offset in zip(logprobs.tokens, logprobs.text_offset, strict=True):
        assert choice.text[offset:].startswith(token)
    for token, logprob, top in zip(logprobs.tokens, logprobs.token_logprobs or (), logprobs.top_logprobs, strict=True):
        assert top[token] == logprob
        assert 5 <= len(top) <= 6
    (usual,) = complete(client, server, PROMPTS[0], max_tokens=openai.omit).choices
    (sixteen,) = complete(client, server, PROMPTS[0], max_tokens=16).choices
    assert usual == sixteen


def test_a_second_time_the_prompt_is_in_the_cache(client: openai.OpenAI, server: RunningServer) -> None:
    prompt = "Count the words: " + "cucumber " * 60
    usages = [complete(client, server, [prompt], max_tokens=1).usage for _ in range(2)]
    cached = [usage.prompt_tokens_details.cached_tokens for usage in usages if usage and usage.prompt_tokens_details]
    assert cached[0] < 16 <= 60 < cached[1]


@pytest.mark.parametrize(
    "text", [*PROMPTS, " leading", "trailing ", "\n\n", "e\u0301 👩‍👩‍👧‍👦 𠮷 한국어", "\ufdd0\ufdd1", "a" * 5000]
)
def test_tokens_of_a_text_are_put_together_to_it_again(server: RunningServer, text: str) -> None:
    told = post(server, "/tokenize", prompt=text, add_special_tokens=False, return_token_strs=True)
    assert told["count"] == len(told["tokens"]) == len(told["token_strs"])
    assert told["max_model_len"] == 512
    assert post(server, "/detokenize", tokens=told["tokens"])["prompt"] == text


def test_the_client_raises_the_errors_of_openai(client: openai.OpenAI, server: RunningServer) -> None:
    with pytest.raises(openai.BadRequestError) as long:
        complete(client, server, ["a", "word " * 600])
    assert (long.value.code, long.value.param) == ("context_length_exceeded", "prompt[1]")
    with pytest.raises(openai.BadRequestError) as beyond:
        complete(client, server, [1, 2, 49_152])
    assert (beyond.value.code, beyond.value.param) == ("invalid_value", "prompt")
    with pytest.raises(openai.BadRequestError, match="suffix"):
        complete(client, server, "a", suffix="b")
    with pytest.raises(openai.NotFoundError):
        complete(client, server, "a", model="davinci-002")


def test_a_client_that_leaves_ends_all_of_its_prompts(client: openai.OpenAI, server: RunningServer) -> None:
    stream: Any = complete(client, server, ["Once upon a time"] * 3, n=2, max_tokens=500, temperature=1, stream=True)
    next(iter(stream))
    stream.close()
    server.wait_for((0, 0), seconds=LEAVING_SECONDS)
