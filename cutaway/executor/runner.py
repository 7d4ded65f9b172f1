"""The seam to whatever executes step plans."""

from typing import Protocol

from cutaway.scheduler.plan import StepPlan, StepResult


class Runner(Protocol):
    """Whoever executes plans. Plans come in the order of their ids."""

    def execute(self, plan: StepPlan) -> StepResult:
        """Compute the plan's rows and choose a token after each request that needs one."""
        ...
