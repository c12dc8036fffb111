"""The runtime contract: requests in, envelopes out."""
