"""Deletes runs, purges their contents, erases one person's data, and reports the space that is used."""

from cuebook.service.retention.criteria import Criteria
from cuebook.service.retention.removal import Blocked, Outcome, Retention

__all__ = ["Blocked", "Criteria", "Outcome", "Retention"]
