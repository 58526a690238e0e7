"""Files on disk: programs and arrays, the cache of compiled programs, trust in programs of others."""
