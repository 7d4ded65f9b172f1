"""The metrics of a server as numbers."""

from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families


class Scraped:
    """What one scrape says; a sample without labels is the sum over all of them.

    Args:
        text: as the server sends it.
    """

    def __init__(self, text: str) -> None:
        families = list(text_string_to_metric_families(text))
        self.families = {family.name: family for family in families}
        self.samples = [sample for family in families for sample in family.samples]

    @property
    def series(self) -> set[tuple[str, tuple[tuple[str, str], ...]]]:
        """All names with their labels."""
        return {(sample.name, tuple(sorted(sample.labels.items()))) for sample in self.samples}

    def get(self, name: str, **labels: str) -> float:
        """The sum of all samples of a name that have these labels."""
        found = [each.value for each in self.samples if each.name == f"cutaway_{name}" and _has(each.labels, labels)]
        return sum(found)

    def finished(self) -> dict[str, float]:
        """Answers by what ended them, those that there are."""
        samples = [each for each in self.samples if each.name == "cutaway_requests_finished_total" and each.value]
        return {each.labels["finished_reason"]: each.value for each in samples}

    def http(self) -> dict[tuple[str, str], float]:
        """Requests over HTTP by route and status."""
        samples = [each for each in self.samples if each.name == "cutaway_http_requests_total"]
        return {(each.labels["route"], each.labels["status"]): each.value for each in samples}


def _has(labels: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    return all(labels.get(name) == value for name, value in wanted.items())
