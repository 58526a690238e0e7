"""From the fetched instruction to the engine that runs it: FETCH, decoder, queues' front end, semaphores, loop nest,
faults."""
