"""The values that dialects return and surfaces render. They do not say how they are shown."""
