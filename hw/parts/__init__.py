"""Small parts used everywhere: queues, buffers, pipelines, delay lines."""
