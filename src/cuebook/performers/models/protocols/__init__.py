"""The protocols of providers, and the parts that they share: the HTTP transport and schemas in strict mode."""
