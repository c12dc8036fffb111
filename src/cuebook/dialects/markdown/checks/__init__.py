"""The parts of `check`, one for each kind of mistake. Each takes the material and yields what it finds."""
