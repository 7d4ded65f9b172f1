"""``cutaway ask``: one question, one answer."""

import asyncio
import json
import time
from dataclasses import asdict, replace

import click

from cutaway.cli.options import GenerationOptions, generation_options
from cutaway.cli.output import stream, tell
from cutaway.cli.prompt import read_prompt
from cutaway.cli.session import Session, open_session
from cutaway.errors import GenerationError, InvalidValue
from cutaway.glass.ledger import timings
from cutaway.glass.receipt import ClientFacts, Receipt
from cutaway.glass.words import LANGUAGES, Words, load_words
from cutaway.limits import LIMITS
from cutaway.types import Delta, FinishReason, GenerationRequest, Message, Role, TokenChoice

EXPLAINED_CANDIDATES = 5
ENDS_WELL = (FinishReason.STOP, FinishReason.LENGTH)
MIN_WIDTH, MAX_WIDTH = 40, 400
_OUTCOMES = {
    FinishReason.REJECTED: "was rejected",
    FinishReason.FAILED: "failed",
    FinishReason.ABORTED: "was aborted",
    FinishReason.STOP: "ended, but its receipt is kept no longer",
    FinishReason.LENGTH: "ended, but its receipt is kept no longer",
}


@click.command()
@click.argument("prompt", required=False)
@generation_options
@click.option("--n", default=1, show_default=True, help=f"Answers to give, each with the next seed ({LIMITS['n']}).")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object for each answer: ids, usage, timings.")
@click.option(
    "--logprobs",
    type=int,
    help=f"With --json: log-probabilities, and this many alternatives of each token ({LIMITS['logprobs']}).",
)
@click.option("--explain", is_flag=True, help="Show afterwards, in 13 stages, how the answer came about.")
@click.option("--lang", type=click.Choice(LANGUAGES), help="Language of --explain; en, if left out.")
def ask(
    prompt: str | None,
    options: GenerationOptions,
    n: int,
    as_json: bool,
    logprobs: int | None,
    explain: bool,
    lang: str | None,
) -> None:
    """Answer PROMPT; without it, or with -, read it from standard input.

    The answer goes to standard output, everything else to standard error.
    """
    if logprobs is not None and not as_json:
        raise InvalidValue("logprobs", "log-probabilities are part of the JSON object", hint="add --json")
    if lang is not None and not explain:
        raise InvalidValue("lang", "there is nothing to say in that language without --explain", hint="add --explain")
    text = read_prompt(prompt)
    if not text.strip():
        raise InvalidValue("prompt", "it is empty", hint='cutaway ask "Is a tomato a fruit?"')
    request = options.request(
        [Message(Role.USER, text, "question")], logprobs, num_candidates=EXPLAINED_CANDIDATES if explain else 0, n=n
    )
    words = load_words(lang or "en")
    with open_session(options.model, options.engine(n)) as session:
        receipts = asyncio.run(run_request(session, request, text, print_text=not as_json))
    for receipt in receipts:
        if receipt.request.index and not as_json:
            tell(f"answer {receipt.request.index + 1} of {n}:")
            click.echo(text_of(receipt))
        if as_json:
            click.echo(json.dumps(describe(receipt, logprobs), ensure_ascii=False))
        if explain:
            show_explanation(receipt, words)
    for receipt in receipts:
        check_finish(receipt)


async def run_request(
    session: Session, request: GenerationRequest, question: str, *, print_text: bool
) -> list[Receipt]:
    """Run a request, print its first answer as it comes, and give back a receipt of each, with the client's own clock.

    Raises:
        CutawayError: it cannot be run, or the engine was lost.
    """
    sent_ns = time.perf_counter_ns()
    clients = [ClientFacts(question, sent_ns, None, sent_ns, session.load_ns)] * request.n
    receipts: dict[int, Receipt] = {}
    async for delta in session.engine.submit(request):
        print_notices(delta)
        clients[delta.index] = _heard(clients[delta.index], delta, time.perf_counter_ns())
        if print_text and not delta.index:
            stream(delta.text)
        if delta.finish is not None:
            receipt = session.engine.receipt(request.request_id, delta.index)
            if receipt is None:  # the engine was lost, and its facts with it
                raise unfinished(delta.finish.reason, delta.finish.cause)
            receipts[delta.index] = receipt
    if print_text:
        click.echo()
    return [replace(receipts[index], client=client) for index, client in enumerate(clients)]


def _heard(client: ClientFacts, delta: Delta, now_ns: int) -> ClientFacts:
    """What the client knows after a delta."""
    first_text_ns = client.first_text_ns or (now_ns if delta.text else None)
    return replace(client, first_text_ns=first_text_ns, last_ns=now_ns)


def text_of(receipt: Receipt) -> str:
    """The whole answer."""
    return "".join(delta.text for delta in receipt.deltas)


def print_notices(delta: Delta) -> None:
    """Say on standard error what was changed about a request."""
    for notice in delta.notices:
        tell(f"note: {notice}")


def check_finish(receipt: Receipt) -> None:
    """Raise unless the answer ended well.

    Raises:
        GenerationError: it was rejected, failed or aborted.
    """
    if receipt.finish.reason not in ENDS_WELL:
        raise unfinished(receipt.finish.reason, receipt.finish.cause)


def unfinished(reason: FinishReason, cause: str) -> GenerationError:
    """The error of a request that did not end well."""
    return GenerationError(f"the request {_OUTCOMES[reason]}: {cause}")


def show_explanation(receipt: Receipt, words: Words) -> None:
    """Draw the 13 stages on standard error."""
    from rich.console import Console  # 0.1 s, which only this needs

    from cutaway.glass.explain import explain

    console = Console(stderr=True, highlight=False)
    # A terminal may claim any width; the explanation is to be read all the same.
    console.width = min(max(console.width, MIN_WIDTH), MAX_WIDTH)
    explain(receipt, words, console)


def describe(receipt: Receipt, num_logprobs: int | None) -> dict[str, object]:
    """The JSON object of a finished request."""
    finish = receipt.finish
    described: dict[str, object] = {
        "id": receipt.request_id,
        "model": receipt.model.name,
        "text": text_of(receipt),
        "prompt_token_ids": receipt.prompt.token_ids,
        "token_ids": [token.choice.token_id for token in receipt.tokens],
        "finish_reason": finish.reason.value,
        "usage": {
            "prompt_tokens": finish.num_prompt_tokens,
            "completion_tokens": finish.num_generated_tokens,
            "total_tokens": finish.num_prompt_tokens + finish.num_generated_tokens,
        },
        "timings": {
            name: value if value is None else round(value, 3) for name, value in asdict(timings(receipt)).items()
        },
        "sampling": asdict(receipt.request.sampling),
        "notices": receipt.prompt.notices,
    }
    if num_logprobs is not None:
        described["logprobs"] = [_describe_choice(receipt, token.choice, num_logprobs) for token in receipt.tokens]
    return described


def _describe_choice(receipt: Receipt, choice: TokenChoice, num_top: int) -> dict[str, object]:
    return _describe_token(receipt, choice.token_id, choice.logprob) | {
        "top": [_describe_token(receipt, other.token_id, other.logprob) for other in choice.top[:num_top]]
    }


def _describe_token(receipt: Receipt, token_id: int, logprob: float) -> dict[str, object]:
    spelling = receipt.spellings[token_id]
    return {
        "token_id": token_id,
        "text": spelling.piece if spelling.special else spelling.content.decode("utf-8", "replace"),
        "bytes": list(spelling.content),
        "logprob": logprob,
    }
