"""The allocator against a model that remembers every byte."""

import random

import numpy as np
import pytest

from common.allocator import ALIGNMENT, Allocator, MemoryFull
from isa.device import HostMemory


def test_random_places_never_overlap() -> None:
    rng = random.Random(1)
    start, end = 0x1000, 0x1000 + 64 * 100
    allocator = Allocator(start, end)
    owner = np.zeros(end, np.int32)
    places: dict[int, int] = {}
    refused = 0
    for number in range(1, 2000):
        if places and rng.random() < 0.4:
            address = rng.choice(list(places))
            nbytes = places.pop(address)
            assert len(set(owner[address : address + nbytes])) <= 1
            owner[address : address + nbytes] = 0
            assert allocator.free(address) >= nbytes
            continue
        nbytes = rng.choice([0, 1, 64, 65, rng.randrange(1500)])
        try:
            address = allocator.allocate(nbytes)
        except MemoryFull as error:
            refused += 1
            longest = max(map(len, "".join("x" if o else "." for o in owner[start::ALIGNMENT]).split("x")))
            assert longest * ALIGNMENT < max(nbytes, 1) and f"{nbytes} bytes asked for" in str(error)
            continue
        assert address % ALIGNMENT == 0 and start <= address and address + nbytes <= end
        assert address not in places and not owner[address : address + nbytes].any()
        places[address] = max(nbytes, 1)
        owner[address : address + places[address]] = number
    assert refused > 20
    with pytest.raises(ValueError, match="nothing was allocated at address 0x3"):
        allocator.free(3)
    allocator.free_all()
    assert allocator.allocate(end - start) == start


def test_host_memory_gives_zeroed_places() -> None:
    memory = HostMemory(256)
    first, second = memory.allocate(100), memory.allocate(5000)
    assert first > 0
    memory.write(first, b"x" * 100)
    memory.write(second, b"y" * 5000)
    memory.free(first)
    assert memory.allocate(64) == first and not memory.read(first, 128).any()
    assert memory.read(second, 5000).tobytes() == b"y" * 5000
    memory.free_all()
    assert memory.allocate(5000) == first and not memory.read(first, 5000).any()
