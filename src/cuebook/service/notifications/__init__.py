"""Notifications: people are told that a run waits, failed, ended or passed a mark, over the configured channels.

Notices are jobs that are put in a run's own transaction (`kernel.notices`). `planning` makes messages of them, jobs of
their own, which `delivery` sends. Nothing in a message decides anything: links lead to pages that ask who is there.
"""
