"""What runs may know and nothing may show: their secrets, sensitive inputs, and waits for keys."""
