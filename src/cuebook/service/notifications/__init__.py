"""Notifications when a run waits, fails, ends or passes a mark, over the configured channels.

Notices are jobs that are put in a run's own transaction (`kernel.notices`). `planning` makes messages of them, jobs of
their own, which `delivery` sends. Nothing in a message decides anything: links lead to pages that ask who is there.
"""
