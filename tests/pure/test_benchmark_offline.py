"""Rounds on a real scheduler and loop with a runner that computes nothing, and the figures that they come to."""

from dataclasses import replace

import pytest
from fake_engine import FACTS, LIMITS, make_core

from cutaway.benchmark.offline import run_rounds, stop
from cutaway.benchmark.rounds import Round, summarize
from cutaway.benchmark.work import Ceiling, ModelWork
from cutaway.benchmark.workload import Workload
from cutaway.engine.core import EngineCore
from cutaway.engine.worker import ThreadWorker
from cutaway.errors import CutawayError, GenerationError, InvalidValue
from cutaway.executor.fake import FakeRunner
from cutaway.scheduler.plan import StepPlan, StepResult

WORK = ModelWork(
    num_row_weights=1000, num_head_weights=200, matrix_bytes=5000, query_size=8, windows=(None, 4), kv_bytes=10
)


def run(core: EngineCore, workload: Workload) -> list[Round]:
    worker = ThreadWorker(core)
    try:
        return run_rounds(worker, workload, lambda num_done, num_total: None)
    finally:
        stop(worker)


class Watcher:
    """A runner that notes how many rows each request computed."""

    def __init__(self) -> None:
        self.runner = FakeRunner(LIMITS.block_size, FACTS.vocab_size)
        self.num_rows: dict[str, int] = {}

    def execute(self, plan: StepPlan) -> StepResult:
        for rows in plan.rows:
            self.num_rows[rows.request_id] = self.num_rows.get(rows.request_id, 0) + rows.num_rows
        return self.runner.execute(plan)


def test_decode_is_every_step_that_continues_all_answers():
    for measured in run(make_core(), Workload(4, 6, batch=1, rounds=2, warmup=1, seed=0)):
        assert len(measured.ttft_s) == 1
        assert measured.contexts == ((5,), (6,), (7,), (8,), (9,))
        assert len(measured.step_s) == 5
        assert 0 < measured.prefill_s == max(measured.ttft_s)
        assert all(step_s > 0 for step_s in measured.step_s)


def test_steps_of_a_batch_count_every_answer_and_begin_when_all_have_begun():
    (measured,) = run(make_core(), Workload(40, 30, batch=4, rounds=1, warmup=0, seed=0))
    assert len(measured.ttft_s) == 4
    assert {len(contexts) for contexts in measured.contexts} == {4}
    assert measured.num_decoded == 4 * len(measured.step_s)
    for earlier, later in zip(measured.contexts, measured.contexts[1:], strict=False):
        assert later == tuple(context + 1 for context in earlier)
    assert min(measured.contexts[0]) == 41  # the last answer has just begun


def test_no_prompt_of_a_round_is_in_the_cache_and_every_one_is_afterwards():
    watcher = Watcher()
    run(make_core(watcher), Workload(40, 2, batch=1, rounds=3, warmup=0, seed=0))
    assert [watcher.num_rows[f"bench_{index}"] for index in (0, 2, 4)] == [40, 40, 40]
    # Blocks of 4 but for the last token's; then the row of the first token.
    assert [watcher.num_rows[f"bench_{index}"] for index in (1, 3, 5)] == [4 + 1] * 3


def test_prompts_follow_from_the_seed():
    workload = Workload(8, 2, batch=1, rounds=1, warmup=0, seed=1)
    assert workload.prompt(0, 0, 100) == workload.prompt(0, 0, 100)
    different = {workload.prompt(0, 0, 100), workload.prompt(1, 0, 100), workload.prompt(0, 1, 100)}
    assert len(different | {replace(workload, seed=2).prompt(0, 0, 100)}) == 4
    assert all(0 <= token_id < 100 for prompt in different for token_id in prompt)


def test_answers_too_short_to_be_under_way_together_are_refused():
    core = make_core(limits=replace(LIMITS, prefix_cache=False, max_step_tokens=8, max_prompt_tokens=8))
    with pytest.raises(CutawayError, match="no step continued all 4 answers"):
        run(core, Workload(40, 2, batch=4, rounds=1, warmup=0, seed=0))


@pytest.mark.parametrize(
    ("workload", "complaint"),
    [
        (Workload(250, 7, 1, 1, 0, 0), "input_len: prompt and answer have 257 tokens, but the context holds 256"),
        (Workload(196, 60, 4, 1, 0, 0), "batch: 4 requests of 256 tokens are more than the cache holds, 800"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_runs(workload: Workload, complaint: str):
    with pytest.raises(InvalidValue, match=complaint):
        run(make_core(), workload)


@pytest.mark.parametrize(
    "wrong",
    [{"input_len": 0}, {"output_len": 1}, {"batch": 0}, {"batch": 513}, {"rounds": 0}, {"warmup": -1}, {"seed": 2**63}],
    ids=str,
)
def test_a_workload_outside_its_limits_is_refused(wrong: dict[str, int]):
    right = {"input_len": 1, "output_len": 2, "batch": 1, "rounds": 1, "warmup": 0, "seed": 0}
    with pytest.raises(InvalidValue, match=next(iter(wrong))):
        Workload(**(right | wrong))


def test_a_request_that_fails_ends_the_measurement():
    class Broken:
        def execute(self, plan: StepPlan) -> StepResult:
            raise RuntimeError("out of order")

    with pytest.raises(GenerationError, match="failed: RuntimeError: out of order"):
        run(make_core(Broken()), Workload(8, 2, 1, 1, 0, 0))


def test_work_is_what_can_be_counted_by_hand():
    # Three rows see 1 + 2 + 3 positions in the first layer, and the same in the other, whose window is 4.
    assert WORK.prefill_macs(3) == 3 * 1000 + 200 + 2 * 8 * (6 + 6)
    # Six rows: 21 positions, and 1 + 2 + 3 + 4 + 4 + 4.
    assert WORK.prefill_macs(6) == 6 * 1000 + 200 + 2 * 8 * (21 + 18)
    # Two rows in contexts of 3 and 10: 13 positions, and 3 + 4.
    assert WORK.decode_macs([3, 10]) == 2 * 1200 + 2 * 8 * (13 + 7)
    assert WORK.decode_bytes([3, 10]) == 5000 + 10 * (13 + 7)


def test_figures_are_medians_of_rounds_and_shares_of_the_machine():
    rounds = [
        Round(prefill_s=2.0, ttft_s=(1.0, 2.0), step_s=(0.5, 0.5), contexts=((4, 4), (5, 5))),
        Round(prefill_s=4.0, ttft_s=(4.0, 4.0), step_s=(1.0, 1.0), contexts=((4, 4), (5, 5))),
        Round(prefill_s=1.0, ttft_s=(1.0, 1.0), step_s=(0.1, 0.4), contexts=((4, 4), (5, 5))),
    ]
    figures = summarize(rounds, 3, WORK, Ceiling(1, 1, 2e-5, "a product", 1e-5))
    prefill, decode = figures.prefill_tokens_per_second, figures.decode_tokens_per_second
    assert (prefill.median, prefill.min, prefill.max) == pytest.approx((3.0, 1.5, 6.0))
    assert (decode.median, decode.min, decode.max) == pytest.approx((4.0, 2.0, 8.0))
    assert figures.prefill_gmac_per_second == pytest.approx(WORK.prefill_macs(3) / 1e9)
    assert figures.prefill_arithmetic_share == pytest.approx(WORK.prefill_macs(3) / 1e4)
    num_bytes = WORK.decode_bytes([4, 4]) + WORK.decode_bytes([5, 5])
    assert figures.decode_bandwidth_share == pytest.approx(num_bytes / 2e4)
    assert figures.ttft_ms.median == pytest.approx(1500)
    assert figures.itl_ms.named()["p50"] == pytest.approx(500)
