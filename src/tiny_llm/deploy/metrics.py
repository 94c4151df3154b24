"""The metrics of all replicas as one page, each sample with the label `replica`, and which ones answered."""

from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

LABEL = "replica"
UP = "tiny_llm_replica_up"


class Merged(Collector):
    """A family of each name, with the samples of all replicas."""

    def __init__(self, pages: Mapping[str, str | None]):
        self._pages = pages

    def collect(self) -> Iterator[Metric]:
        up = GaugeMetricFamily(UP, "1 if the replica has answered in time", labels=[LABEL])
        families: dict[str, Metric] = {UP: up}
        for replica, page in self._pages.items():
            up.add_metric([replica], page is not None)
            for found in text_string_to_metric_families(page or ""):
                family = families.setdefault(found.name, Metric(found.name, found.documentation, found.type))
                for sample in found.samples:
                    family.samples.append(sample._replace(labels={**sample.labels, LABEL: replica}))
        yield from families.values()


def merge(pages: Mapping[str, str | None]) -> bytes:
    """Of pages by the names of their replicas; None is one that has not come."""
    registry = CollectorRegistry()
    registry.register(Merged(pages))
    return generate_latest(registry)
