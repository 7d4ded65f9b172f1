"""From a client's request to what the scheduler takes: prompt, tokens, limits filled in."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from cutaway.errors import ContextExceeded, InvalidValue
from cutaway.glass.receipt import PromptFacts, RequestFacts
from cutaway.glass.recorder import Asked
from cutaway.limits import MAX_SEED
from cutaway.scheduler.plan import NewRequest
from cutaway.text.breakers import BreakerFinder
from cutaway.text.prompt import RenderedPrompt, Rendering, encode, render, render_text, spell_prompt
from cutaway.text.template import ChatTemplate
from cutaway.text.tokenizer import Tokenizer
from cutaway.types import Conversation, GenerationRequest, Prompt, TextPrompt, TokenPrompt, copy_id


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request that can be queued.

    Attributes:
        copies: for the scheduler; those after the first fork it.
        stop: strings that end an answer.
        asked: the receipts so far.
        notices: what was defaulted or changed, in words for the client.
    """

    copies: tuple[NewRequest, ...]
    stop: tuple[str, ...]
    asked: Asked
    notices: tuple[str, ...]


class Preparer:
    """Prepares requests for one model. Safe to use from several threads.

    Args:
        tokenizer, template: the model's text side; ``None`` for a model without a chat template.
        context_length: positions of the longest request.
        clock: nanoseconds, monotonic.
    """

    def __init__(
        self, tokenizer: Tokenizer, template: ChatTemplate | None, context_length: int, clock: Callable[[], int]
    ) -> None:
        self.tokenizer = tokenizer
        self.template = template
        self.context_length = context_length
        self._breakers = BreakerFinder(tokenizer)
        self.clock = clock

    def prepare(self, request: GenerationRequest) -> Prepared:
        """Render and encode the prompt, and decide how long the answer may become.

        Raises:
            InvalidValue, TemplateError: the client's messages, text or tokens cannot be made a prompt, or a token id
                that a setting names is not in the vocabulary.
            ContextExceeded: the prompt leaves no room for an answer.
        """
        received_ns = self.clock()
        self._check_token_ids("logit_bias", [token_id for token_id, _ in request.sampling.logit_bias])
        self._check_token_ids("stop_token_ids", request.stop_token_ids)
        rendering = self._render(request.prompt)
        rendered_ns = self.clock()
        prompt = self._encode(rendering)
        tokenized_ns = self.clock()
        max_tokens, clamps = self._limit_answer(request, len(prompt.encoding.token_ids))
        if request.min_tokens > max_tokens:
            raise InvalidValue(
                "min_tokens", f"{request.min_tokens:,} are more than the {max_tokens:,} that the context has room for"
            )
        notices = prompt.notices + clamps
        model_ends = self.tokenizer.end_ids
        new = NewRequest(
            request_id=request.request_id,
            token_ids=prompt.encoding.token_ids,
            max_tokens=max_tokens,
            end_ids=request.stop_token_ids if request.ignore_eos else model_ends + request.stop_token_ids,
            sampling=request.sampling,
            num_top=max(request.num_logprobs or 0, request.num_candidates),
            num_candidates=request.num_candidates,
            priority=request.priority,
            salt=request.salt,
            min_tokens=request.min_tokens,
            # Also when they would end nothing: whoever asks for a length wants text, as with vLLM.
            banned_ids=model_ends + request.stop_token_ids if request.min_tokens else (),
        )
        if request.sampling.dry_multiplier > 0:
            new = replace(new, dry_breakers=self._breakers.find(request.sampling.dry_sequence_breakers))
        asked = Asked(
            _request_facts(request),
            _prompt_facts(prompt, max_tokens, notices),
            received_ns,
            rendered_ns,
            tokenized_ns,
        )
        return Prepared(_copies(new, request.n), request.stop, asked, notices)

    def encode(self, prompt: Prompt) -> tuple[int, ...]:
        """The tokens of a prompt, however many. Raises as ``prepare``, but for the context."""
        return self._encode(self._render(prompt)).encoding.token_ids

    def spell(self, tokens: TokenPrompt) -> str:
        """The text that tokens stand for, control tokens spelled out.

        Raises:
            InvalidValue: the vocabulary has no such token.
        """
        return spell_prompt(self.tokenizer, tokens).text

    def _render(self, prompt: Prompt) -> Rendering | TokenPrompt:
        match prompt:
            case Conversation():
                return render(self.tokenizer, self.template, prompt.messages)
            case TextPrompt():
                return render_text(self.tokenizer, prompt)
            case TokenPrompt():
                return prompt

    def _encode(self, rendering: Rendering | TokenPrompt) -> RenderedPrompt:
        if isinstance(rendering, TokenPrompt):
            return spell_prompt(self.tokenizer, rendering)
        return encode(self.tokenizer, rendering)

    def _check_token_ids(self, name: str, token_ids: Sequence[int]) -> None:
        vocab_size = self.tokenizer.vocab_size
        for token_id in token_ids:
            if token_id >= vocab_size:
                raise InvalidValue(
                    name, f"token {token_id:,} is not in the vocabulary, whose ids go from 0 to {vocab_size - 1:,}"
                )

    def _limit_answer(self, request: GenerationRequest, num_prompt_tokens: int) -> tuple[int, tuple[str, ...]]:
        """How many tokens may be generated, and what to tell a client who asked for more than fit."""
        wanted = request.max_tokens
        room = self.context_length - num_prompt_tokens
        if room < 1:
            name = "messages" if isinstance(request.prompt, Conversation) else request.prompt.origin
            raise ContextExceeded(num_prompt_tokens, self.context_length, name)
        if wanted is None or wanted <= room:
            return wanted or room, ()
        notice = f"max_tokens {wanted:,} was lowered to {room:,}: the context holds {self.context_length:,} tokens"
        return room, (notice,)


def _request_facts(request: GenerationRequest) -> RequestFacts:
    return RequestFacts(
        request.prompt,
        request.sampling,
        request.max_tokens,
        request.stop,
        request.stop_token_ids,
        request.min_tokens,
        request.ignore_eos,
        n=request.n,
    )


def _copies(new: NewRequest, n: int) -> tuple[NewRequest, ...]:
    """A request ``n`` times, each with a seed of its own and all with one prompt in the cache."""
    return (new, *(_copy(new, index) for index in range(1, n)))


def _copy(new: NewRequest, index: int) -> NewRequest:
    seed = new.sampling.seed + index
    sampling = replace(new.sampling, seed=seed if seed <= MAX_SEED else seed - 2**64)  # wraps around
    return replace(new, request_id=copy_id(new.request_id, index), sampling=sampling, fork_of=new.request_id)


def _prompt_facts(prompt: RenderedPrompt, max_tokens: int, notices: tuple[str, ...]) -> PromptFacts:
    return PromptFacts(
        kind=prompt.kind,
        text=prompt.text,
        segments=tuple((segment.start, segment.end, segment.message) for segment in prompt.segments),
        token_ids=prompt.encoding.token_ids,
        spans=prompt.encoding.spans,
        max_tokens=max_tokens,
        notices=notices,
    )
