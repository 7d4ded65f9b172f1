"""How much of the machine's memory the cache gets, and what that holds."""

from collections.abc import Sequence
from dataclasses import dataclass

from cutaway.engine.options import EngineOptions
from cutaway.errors import InvalidValue, OutOfMemory
from cutaway.executor.kv import KVGroup
from cutaway.scheduler.plan import GroupLimits
from cutaway.scheduler.request import num_blocks_for

# Without --kv-memory the cache may take this share of the memory that the weights leave.
CACHE_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class CachePlan:
    """The cache of an engine.

    Attributes:
        groups: for the scheduler.
        context: positions of the longest request.
        num_bytes: what the cache takes when it is full.
        num_tokens: positions that it holds, of requests shorter than a window.
        num_longest: requests of ``context`` positions that it holds at once.
    """

    groups: tuple[GroupLimits, ...]
    context: int
    num_bytes: int
    num_tokens: int
    num_longest: int


def plan_cache(
    groups: Sequence[KVGroup],
    trained_context: int,
    weight_bytes: int,
    available_bytes: int,
    options: EngineOptions,
) -> CachePlan:
    """Divide memory between weights and cache, and the cache between its groups.

    A group with a window gets as many blocks as one without, until every running request can have a whole window.

    Args:
        groups: of the model.
        trained_context: positions that it was trained for.
        weight_bytes: what the weights take.
        available_bytes: what there is for both.
        options: what was asked for.

    Raises:
        InvalidValue: a longer context was asked for than the model was trained for, or than ``--kv-memory`` holds.
        OutOfMemory: it does not fit.
    """
    if options.context is not None and options.context > trained_context:
        raise InvalidValue(
            "context",
            f"{options.context:,} positions are more than the {trained_context:,} that the model was trained for",
        )
    if weight_bytes > available_bytes:
        raise OutOfMemory("the model", weight_bytes, available_bytes, hint="choose a smaller model")
    needed = _bytes_of(groups, _blocks(groups, options, options.context or 1), options)
    budget = options.kv_memory
    if budget is None:
        budget = max(needed, int((available_bytes - weight_bytes) * CACHE_SHARE))
    elif budget < needed:
        what = f"a block of {options.block_size} tokens" if options.context is None else f"{options.context:,} tokens"
        raise InvalidValue(
            "kv_memory",
            f"{budget:,} bytes are less than the {needed:,} bytes of {what}",
            hint="give more" if options.context is None else "give more, or a smaller --context",
        )
    if weight_bytes + budget > available_bytes:
        purpose = "the model with its cache"
        if options.context is not None and options.kv_memory is None:
            purpose = f"the model with a context of {options.context:,}"
        raise OutOfMemory(purpose, weight_bytes + budget, available_bytes)
    return _fill(groups, trained_context, budget, options)


def _fill(groups: Sequence[KVGroup], trained_context: int, budget: int, options: EngineOptions) -> CachePlan:
    """Give the groups all blocks that the budget pays for, which are enough for one request."""
    low, high = 0, options.max_running * num_blocks_for(trained_context, options.block_size)
    while low < high:  # the largest number of blocks is searched for by halving
        middle = (low + high + 1) // 2
        if _bytes_of(groups, _blocks(groups, options, middle * options.block_size), options) <= budget:
            low = middle
        else:
            high = middle - 1
    num_tokens = low * options.block_size
    context = min(trained_context, num_tokens) if options.context is None else options.context
    num_blocks = _blocks(groups, options, num_tokens)
    limits = tuple(
        GroupLimits(count, group.window, group.cost_per_key) for count, group in zip(num_blocks, groups, strict=True)
    )
    one_request = _blocks(groups, options, context, num_requests=1)
    num_longest = min(have // need for have, need in zip(num_blocks, one_request, strict=True))
    return CachePlan(limits, context, _bytes_of(groups, num_blocks, options), num_tokens, num_longest)


def _blocks(
    groups: Sequence[KVGroup], options: EngineOptions, num_tokens: int, num_requests: int | None = None
) -> list[int]:
    """Blocks of each group for so many tokens of so many requests; a window needs no more than itself and a step."""
    blocks = []
    for group in groups:
        count = num_blocks_for(num_tokens, options.block_size)
        if group.window is not None:
            # One block more for each end that is not at a block's end.
            whole = num_blocks_for(group.window + options.max_step_tokens, options.block_size) + 1
            count = min(count, (num_requests or options.max_running) * whole)
        blocks.append(count)
    return blocks


def _bytes_of(groups: Sequence[KVGroup], num_blocks: Sequence[int], options: EngineOptions) -> int:
    sizes = zip(groups, num_blocks, strict=True)
    return sum(count * options.block_size * group.bytes_per_token for group, count in sizes)
