"""What every surface says of a playbook that it reads and does not run: findings, a summary, the ways it may go."""
