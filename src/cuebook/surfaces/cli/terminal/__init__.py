"""Output and questions at the terminal."""
