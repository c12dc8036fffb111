"""Previews: what a run would do, touch and cost, before it starts."""
