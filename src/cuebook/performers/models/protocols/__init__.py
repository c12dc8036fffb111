"""The protocols of providers, and what they share: the HTTP transport and schemas in strict mode."""
