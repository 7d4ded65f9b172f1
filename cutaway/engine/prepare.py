"""From a client's request to what the scheduler takes: prompt, tokens, limits filled in."""

from collections.abc import Callable
from dataclasses import dataclass

from cutaway.errors import ContextExceeded
from cutaway.glass.receipt import PromptFacts, RequestFacts
from cutaway.glass.recorder import Draft
from cutaway.scheduler.plan import NewRequest
from cutaway.text.prompt import RenderedPrompt, encode, render
from cutaway.text.template import ChatTemplate
from cutaway.text.tokenizer import Tokenizer
from cutaway.types import GenerationRequest


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request that can be queued.

    Attributes:
        new: for the scheduler.
        stop: strings that end the answer.
        draft: the receipt so far.
        notices: what was defaulted or changed, in words for the client.
    """

    new: NewRequest
    stop: tuple[str, ...]
    draft: Draft
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
        self.clock = clock

    def prepare(self, request: GenerationRequest) -> Prepared:
        """Render and encode the prompt, and decide how long the answer may become.

        Raises:
            InvalidValue, TemplateError: the messages cannot be made a prompt.
            ContextExceeded: the prompt leaves no room for an answer.
        """
        received_ns = self.clock()
        rendering = render(self.tokenizer, self.template, request.messages)
        rendered_ns = self.clock()
        prompt = encode(self.tokenizer, rendering)
        tokenized_ns = self.clock()
        max_tokens, clamps = self._limit_answer(request.max_tokens, len(prompt.encoding.token_ids))
        notices = prompt.notices + clamps
        new = NewRequest(
            request_id=request.request_id,
            token_ids=prompt.encoding.token_ids,
            max_tokens=max_tokens,
            end_ids=self.tokenizer.end_ids,
            sampling=request.sampling,
            num_top=max(request.num_logprobs or 0, request.num_candidates),
            num_candidates=request.num_candidates,
        )
        draft = Draft(
            RequestFacts(request.messages, request.sampling, request.max_tokens, request.stop),
            _prompt_facts(prompt, max_tokens, notices),
            received_ns,
            rendered_ns,
            tokenized_ns,
        )
        return Prepared(new, request.stop, draft, notices)

    def _limit_answer(self, wanted: int | None, num_prompt_tokens: int) -> tuple[int, tuple[str, ...]]:
        """How many tokens may be generated, and what to tell a client who asked for more than fit."""
        room = self.context_length - num_prompt_tokens
        if room < 1:
            raise ContextExceeded(num_prompt_tokens, self.context_length)
        if wanted is None or wanted <= room:
            return wanted or room, ()
        notice = f"max_tokens {wanted:,} was lowered to {room:,}: the context holds {self.context_length:,} tokens"
        return room, (notice,)


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
