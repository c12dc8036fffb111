"""The program dialect: natural-language programs whose control flow is verified."""
