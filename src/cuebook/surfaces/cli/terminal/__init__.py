"""What the terminal shows and asks."""
