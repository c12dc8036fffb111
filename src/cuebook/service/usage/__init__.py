"""What runs used, by day, playbook, model and person."""

from cuebook.service.usage.report import BY, By, Group, UsageReport, usage_report

__all__ = ["BY", "By", "Group", "UsageReport", "usage_report"]
