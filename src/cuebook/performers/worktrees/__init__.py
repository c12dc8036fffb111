"""Git worktrees as the workspaces of runs: created, compared with their base, and merged back by tools that pass the gate."""
