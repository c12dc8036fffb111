"""Records the journals of the current interpreter."""

from tests.dialects.graph.run.journals import main

main()
