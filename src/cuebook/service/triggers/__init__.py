"""Triggers: what starts runs without a person, on a schedule or on an event."""

from cuebook.service.triggers.firing import Start, Triggers
from cuebook.service.triggers.trigger import Firing, Overlap, Target, Trigger

__all__ = ["Firing", "Overlap", "Start", "Target", "Trigger", "Triggers"]
