"""One module for each service whose tools ship with Cuebook."""
