"""From a plan to the flat tensors of a forward pass."""

from collections.abc import Mapping

import torch

from cutaway.executor.sequence import Sequence
from cutaway.kernels.reference import RowSpan
from cutaway.layers.batch import GroupBatch, TokenBatch
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
        token_ids=torch.tensor(token_ids, dtype=torch.int64),
        positions=torch.tensor(positions, dtype=torch.int64),
        groups=tuple(
            GroupBatch(torch.cat([span.slots[span.start :] for span in group_spans]), tuple(group_spans))
            for group_spans in spans
        ),
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
