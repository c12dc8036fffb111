"""How waits end: by decisions, answers, approvals that last, and time."""
