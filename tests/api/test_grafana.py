"""The dashboard for Grafana shows what a server tells, and nothing else."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from running_server import RunningServer, running_fake
from scraped import Scraped

PATH = Path(__file__).parent.parent.parent / "docs" / "grafana" / "cutaway.json"
DASHBOARD: dict[str, Any] = json.loads(PATH.read_text(encoding="utf-8"))
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
QUERIES = [variable["query"]["query"] for variable in DASHBOARD["templating"]["list"] if variable["type"] == "query"]
EXPRESSIONS = [target["expr"] for panel in PANELS for target in panel["targets"]] + QUERIES
# Words of PromQL and of Grafana, and the label that Prometheus adds to what it reads.
WORDS = {"sum", "max", "by", "rate", "histogram_quantile", "label_values", "__rate_interval", "model", "instance"}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraped]:
    with running_fake(tmp_path_factory.mktemp("told")) as server:
        yield scrape_after_an_answer(server)


def scrape_after_an_answer(server: RunningServer) -> Scraped:
    server.chat(max_tokens=2)
    server.ask("GET", "/metrics")
    return Scraped(server.ask("GET", "/metrics").body.decode())


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_names_only_what_there_is(told: Scraped, expression: str) -> None:
    without_texts = re.sub(r'"[^"]*"', "", expression)
    metrics = set(re.findall(r"\bcutaway_\w+", without_texts))
    words = set(re.findall(r"\b[A-Za-z_]\w*", without_texts)) - metrics
    assert metrics
    assert metrics <= {sample.name for sample in told.samples}
    labels = {name for sample in told.samples if sample.name in metrics for name in sample.labels}
    assert words - WORDS <= labels


def test_counters_are_shown_as_rates_and_histograms_by_their_buckets(told: Scraped) -> None:
    for expression in EXPRESSIONS:
        for name in re.findall(r"\bcutaway_\w+", expression):
            if name.endswith(("_total", "_bucket", "_sum", "_count")):
                assert f"rate({name}{{" in expression
            else:
                assert f"rate({name}" not in expression
    kinds = {family.type for family in told.families.values()}
    assert kinds == {"counter", "gauge", "histogram"}


def test_every_metric_is_shown(told: Scraped) -> None:
    shown = set(re.findall(r"\bcutaway_\w+", " ".join(EXPRESSIONS)))
    missing = {name for name, family in told.families.items() if not shown & {sample.name for sample in family.samples}}
    assert missing == {"cutaway_num_requests_waiting"}, "it is shown by reason"


def test_panels_have_a_place_of_their_own() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    places: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        assert 0 <= place["x"] < place["x"] + place["w"] <= 24
        taken = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not taken & places
        places |= taken
    for panel in PANELS:
        assert panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert {target["datasource"]["uid"] for target in panel["targets"]} == {"${datasource}"}
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
