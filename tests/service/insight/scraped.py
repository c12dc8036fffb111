"""Reads metrics as Prometheus does, with the parser of `prometheus_client`."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families


class Scraped:
    """What one scrape returned."""

    def __init__(self, text: str) -> None:
        families = list(text_string_to_metric_families(text))
        self.names = [family.name for family in families]
        self.samples = [sample for family in families for sample in family.samples]
        self.documented = all(family.documentation for family in families)

    def value(self, name: str, /, **labels: str) -> float | None:
        found = [one.value for one in self.samples if one.name == name and labels.items() <= one.labels.items()]
        return sum(found) if found else None

    def labels(self, label: str) -> set[str]:
        """All values of a label."""
        return {one.labels[label] for one in self.samples if label in one.labels}
