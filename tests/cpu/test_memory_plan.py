"""How memory is divided between weights and cache, and the cache between groups of layers."""

import pytest

from cutaway.engine.memory import plan_cache
from cutaway.engine.options import EngineOptions
from cutaway.errors import InvalidValue, OutOfMemory
from cutaway.executor.kv import KVGroup

MB = 1_000_000
FULL = (KVGroup(None, (0, 1), 1000, 0.001),)
MIXED = (KVGroup(512, (0, 1, 2, 3, 4), 5000, 0.005), KVGroup(None, (5,), 1000, 0.001))


def options(**values: object) -> EngineOptions:
    return EngineOptions(**({"max_running": 4, "max_step_tokens": 512} | values))  # type: ignore[arg-type]


def test_the_cache_takes_half_of_what_the_weights_leave_and_says_what_that_holds() -> None:
    plan = plan_cache(FULL, 8192, 40 * MB, 60 * MB, options())
    assert (plan.context, plan.num_tokens, plan.num_longest, plan.num_bytes) == (8192, 9984 + 16, 1, 10 * MB)


def test_no_more_is_reserved_than_all_running_requests_can_fill() -> None:
    plan = plan_cache(FULL, 1024, 40 * MB, 1000 * MB, options())
    assert (plan.num_tokens, plan.num_longest) == (4 * 1024, 4)


def test_a_context_shrinks_to_what_fits_unless_it_was_asked_for() -> None:
    assert plan_cache(FULL, 8192, 40 * MB, 44 * MB, options()).context == 2000
    assert plan_cache(FULL, 8192, 40 * MB, 44 * MB, options(context=3900)).context == 3900
    with pytest.raises(OutOfMemory, match=r"context of 4,100 needs 44 MB of memory, but 44 MB are available"):
        plan_cache(FULL, 8192, 40 * MB, 44 * MB, options(context=4100))


def test_a_window_needs_no_more_than_itself_and_a_step_for_each_request() -> None:
    plan = plan_cache(MIXED, 32_768, 0, 10_000 * MB, options(kv_memory=60 * MB))
    window, full = plan.groups
    assert (window.window, full.window) == (512, None)
    assert (window.cost_per_key, full.cost_per_key) == (0.005, 0.001)
    assert window.num_blocks == 4 * (1024 // 16 + 1)
    assert 16 * (window.num_blocks * 5000 + full.num_blocks * 1000) == plan.num_bytes <= 60 * MB
    assert plan.num_tokens == full.num_blocks * 16 > 30_000
    # Shorter requests find as much room in the windows as elsewhere.
    small = plan_cache(MIXED, 32_768, 0, 10_000 * MB, options(kv_memory=6 * MB)).groups
    assert small[0].num_blocks == small[1].num_blocks == 62


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"context": 8193}, "8,193 positions are more than the 8,192"),
        ({"kv_memory": 1 * MB, "context": 2000}, "1,000,000 bytes are less than the 2,000,000 bytes of 2,000 tokens"),
        ({"kv_memory": 100}, "100 bytes are less than the 16,000 bytes of a block of 16 tokens"),
    ],
    ids=str,
)
def test_what_contradicts_itself_is_refused(values: dict[str, int], words: str) -> None:
    with pytest.raises(InvalidValue, match=words):
        plan_cache(FULL, 8192, 40 * MB, 100 * MB, options(**values))


def test_too_little_memory_is_said_with_both_numbers() -> None:
    with pytest.raises(OutOfMemory, match="the model needs 400 MB of memory, but 60 MB are available"):
        plan_cache(FULL, 8192, 400 * MB, 60 * MB, options())
    with pytest.raises(OutOfMemory, match="the model with its cache needs 60 MB of memory, but 60 MB are available"):
        plan_cache(FULL, 8192, 60 * MB - 100, 60 * MB, options())
    with pytest.raises(OutOfMemory, match="the model with its cache needs 70 MB of memory, but 60 MB are available"):
        plan_cache(FULL, 8192, 40 * MB, 60 * MB, options(kv_memory=30 * MB))
