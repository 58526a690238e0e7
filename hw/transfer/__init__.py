"""The LOAD and STORE engines: boxes cut into bursts, bytes moved between memory and scratchpads."""
