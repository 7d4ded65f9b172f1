"""Executes step plans with a real model."""

import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from cutaway.errors import GenerationError
from cutaway.executor.batch import build_batch, sampled_rows
from cutaway.executor.kv import KVStore
from cutaway.executor.model import Model
from cutaway.executor.sequence import Sequence
from cutaway.sampling.sampler import choose
from cutaway.scheduler.plan import StepPlan, StepResult, StepTimes
from cutaway.types import TokenChoice


class ModelRunner:
    """Runs a model over the paged cache.

    Args:
        model: computes the steps.
        store: its cache.
        clock: nanoseconds, monotonic.
    """

    def __init__(
        self,
        model: Model,
        store: KVStore,
        clock: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        assert store.block_size % model.cache_block == 0, f"blocks of {store.block_size} slots for this model"
        self.model = model
        self.store = store
        self.clock = clock
        self._sequences: dict[str, Sequence] = {}

    def execute(self, plan: StepPlan) -> StepResult:
        """Compute the plan's rows and choose a token after each request that needs one."""
        begin = self.clock()
        self._follow(plan)
        if not plan.rows:
            return StepResult(plan.plan_id, {}, {})
        batch = build_batch(plan, self._sequences, len(self.store.layouts))
        prepared = self.clock()
        logits = self.model.compute(batch, self.store.layers, sampled_rows(plan))
        computed = self.clock()
        choices, failures = self._choose(plan, logits)
        times = StepTimes(prepared - begin, computed - prepared, self.clock() - computed)
        return StepResult(plan.plan_id, choices, failures, times)

    def _follow(self, plan: StepPlan) -> None:
        """Bring the sequences to where the plan expects them."""
        for request_id in plan.released:
            self._sequences.pop(request_id, None)
        for request_id in plan.preempted:
            self._sequences[request_id].empty_tables()
        for new in plan.new:
            self._sequences[new.request_id] = Sequence(new, self.store)
        for copy in plan.copies:
            self.store.copy(copy)
        for rows in plan.rows:
            self._sequences[rows.request_id].change_tables(rows.changes)

    def _choose(self, plan: StepPlan, logits: npt.NDArray[np.float32]) -> tuple[dict[str, TokenChoice], dict[str, str]]:
        """Choose a token from each row of ``logits`` [samples, vocab]; a row that cannot be chosen from fails alone."""
        choices: dict[str, TokenChoice] = {}
        failures: dict[str, str] = {}
        sampled = [rows for rows in plan.rows if rows.needs_sample]
        for rows, row, scan in zip(sampled, logits, self.model.scan(logits), strict=True):
            sequence = self._sequences[rows.request_id]
            new, position = sequence.new, rows.start + rows.num_rows
            try:
                choice = choose(
                    row,
                    new.sampling,
                    sequence.counts,
                    position,
                    new.num_top,
                    new.num_candidates,
                    scan,
                    banned_ids=new.banned_at(position),
                    repetition=sequence.repetition,
                )
            except GenerationError as error:
                failures[rows.request_id] = str(error)
                sequence.append_token(0)  # a plan that runs ahead may have rows for a token here
            else:
                sequence.append_token(choice.token_id)
                choices[rows.request_id] = choice
        return choices, failures
