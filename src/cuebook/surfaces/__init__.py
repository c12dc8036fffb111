"""The ways in. Each one calls the service and holds no rule of its own."""
