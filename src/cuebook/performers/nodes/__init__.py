"""Actions on paired machines, which connect to this process over WebSockets."""
