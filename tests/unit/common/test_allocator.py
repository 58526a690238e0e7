"""The allocator against a model that remembers every byte."""

import random
import sys

import numpy as np
import psutil
import pytest

from tilewright.common.allocator import ALIGNMENT, Allocator, MemoryFull
from tilewright.isa.device import HostMemory


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


def test_host_memory_without_room() -> None:
    """A size that this machine cannot give is refused in one line, and its place is free again."""
    memory = HostMemory(256)
    first = memory.allocate(100)
    with pytest.raises(MemoryFull, match="this machine has no memory for"):
        memory.allocate(1 << 60)
    assert memory.allocate(100) == first + 128
    memory.free(first)
    assert memory.allocate(64) == first


@pytest.mark.medium
@pytest.mark.skipif(sys.platform != "linux", reason="Linux gives single pages back")
def test_host_memory_gives_pages_back() -> None:
    memory = HostMemory(256)
    size = 64 << 20
    address = memory.allocate(size)
    memory.write(address, np.ones(size, np.uint8))
    before = psutil.Process().memory_info().rss
    memory.free(address)
    assert before - psutil.Process().memory_info().rss > size // 2
    assert memory.allocate(size) == address and not memory.read(address, size).any()
