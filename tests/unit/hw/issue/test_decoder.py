"""The decoder against `tilewright.isa.encoding.check`, on random words and on words one step beside every limit."""

import random

import pytest

from tests.common.rtl_bench import simulate
from tilewright.hw.issue.decoder import Decoder
from tilewright.isa.config import preset
from tilewright.isa.encoding import DecodeError, check, decode
from tilewright.isa.error_codes import ErrorCode
from tilewright.isa.fields import HEADER
from tilewright.isa.instructions import BY_NAME, INSTRUCTIONS

CONFIGS = {
    "tiny": preset("tiny"),
    "sliced": preset("tiny").with_(name="sliced", block_in=8, gemm_loops=5, vector_loops=8, semaphores=63),
    "no_units": preset("tiny").with_(name="no_units", depthwise=0, lut_tables=0),
    "codes": preset("tiny").with_(name="codes", weight_codes=8),
    "rows": preset("tiny").with_(name="rows", vector_passes=1, row_unit=1),
    "packed": preset("tiny").with_(name="packed", packed_weights=1),
    "sixteen": preset("tiny").with_(name="sixteen", wide_results=1),
}


def words(seed: int, count: int) -> list[int]:
    rng = random.Random(seed)
    result = []
    for _ in range(count):
        if rng.random() < 0.1:
            result.append(rng.getrandbits(128))
            continue
        instruction = rng.choice(INSTRUCTIONS)
        word = rng.getrandbits(128) & ~0xFF | instruction.opcode
        for f in (*HEADER[1:], *instruction.fields):
            # Mostly legal, so that each limit is met alone.
            value = rng.getrandbits(f.bits) if rng.random() < 0.05 else rng.choice((f.at_least, f.at_least, 1))
            if f in HEADER and rng.random() < 0.8:
                value = 0
            word = word & ~(((1 << f.bits) - 1) << f.low) | value << f.low
        result.append(word)
    return result


@pytest.mark.medium
@pytest.mark.parametrize("name", CONFIGS)
def test_equals_the_software_decoder(name: str) -> None:
    config = CONFIGS[name]
    dut = Decoder(config)
    seen = {True: 0, False: 0}
    missing: set[str] = set()

    async def bench(ctx) -> None:
        for word in words(1, 4000):
            ctx.set(dut.word, word)
            await ctx.delay(1e-9)
            try:
                operation = decode(word)
            except DecodeError:
                assert not ctx.get(dut.legal), hex(word)
                continue
            try:
                check(operation, config)
                legal = True
            except DecodeError as error:
                legal = False
                if error.code == ErrorCode.ILLEGAL_OPCODE:
                    assert not ctx.get(dut.legal), f"{operation.name} {word:#x}"
                    missing.add(operation.name)
                    continue
            seen[legal] += 1
            assert ctx.get(dut.legal)
            assert ctx.get(dut.engine) == operation.instruction.engine
            assert ctx.get(dut.operands_ok) == legal, f"{operation.name} {word:#x}"
            assert ctx.get(dut.end) == (operation.instruction is BY_NAME["END"])

    simulate(dut, bench, clock_hz=None)
    assert min(seen.values()) > 300, seen
    lacks = {"DEPTHWISE": not config.depthwise, "ROW": not config.row_unit, "LOAD_CODED": not config.weight_codes}
    lacks |= {"VECTOR_WIDE": not config.wide_results, "LOAD_PACKED": not config.packed_weights}
    assert missing == {instruction for instruction, lacked in lacks.items() if lacked}
