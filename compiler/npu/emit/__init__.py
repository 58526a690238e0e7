"""From loop nests to instructions: scratchpads, accesses, hazards and semaphores. Knows no layers."""
