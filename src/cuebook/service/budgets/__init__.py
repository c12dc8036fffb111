"""Budgets of people and playbooks: what they may use in a day and in a month."""
