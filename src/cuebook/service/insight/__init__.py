"""What operators see of the runs of this process: logs, metrics and traces, from the events that the engine publishes."""
