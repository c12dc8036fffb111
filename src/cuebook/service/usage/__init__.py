"""What runs used, by day, playbook, model and person."""

from cuebook.service.usage.report import (
    BY,
    By,
    Group,
    UsageReport,
    added_up,
    cost_words,
    report_object,
    usage_object,
    usage_report,
)

__all__ = [
    "BY",
    "By",
    "Group",
    "UsageReport",
    "added_up",
    "cost_words",
    "report_object",
    "usage_object",
    "usage_report",
]
