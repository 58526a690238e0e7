"""The path of an instruction from memory to its engine: FETCH, decoder, front ends, semaphores, loop nest, faults."""
