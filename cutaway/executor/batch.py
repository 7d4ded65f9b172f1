"""From a plan to the flat batch of a forward pass."""

from collections.abc import Mapping

import numpy as np

from cutaway.executor.sequence import Sequence
from cutaway.kernels.batch import RowSpan, TokenBatch
from cutaway.scheduler.plan import StepPlan


def build_batch(plan: StepPlan, sequences: Mapping[str, Sequence], num_groups: int) -> TokenBatch:
    """Lay the rows of all requests of a plan, which has rows, one after another."""
    token_ids: list[int] = []
    positions: list[int] = []
    spans: list[list[RowSpan]] = [[] for _ in range(num_groups)]
    for rows in plan.rows:
        sequence = sequences[rows.request_id]
        end = rows.start + rows.num_rows
        for table, group_spans in zip(sequence.tables, spans, strict=True):
            group_spans.append(RowSpan(len(token_ids), rows.num_rows, rows.start, table.upto(rows.start, end)))
        token_ids += sequence.token_ids[rows.start : end]
        positions += range(rows.start, end)
    return TokenBatch(
        token_ids=np.array(token_ids, dtype=np.int64),
        positions=np.array(positions, dtype=np.int64),
        groups=tuple(map(tuple, spans)),
    )


def sampled_rows(plan: StepPlan) -> list[int]:
    """Index of the last row of each request that needs a sample, in plan order."""
    last_rows: list[int] = []
    num_rows = 0
    for rows in plan.rows:
        num_rows += rows.num_rows
        if rows.needs_sample:
            last_rows.append(num_rows - 1)
    return last_rows
