"""Random legal programs whose result does not depend on timing.

Every engine runs at its own pace on hardware, so a program has one result only if each conflict between engines (a row
or byte that one writes and another touches) is ordered by a semaphore. The generator records what every instruction
reads and writes and inserts exactly the waits and signals that are missing. A program is made again from its seed.

    program = generate(seed, config)
    image = program.run(device)  # the bytes of all its memory after the run
"""

from verification.programs.generator.generator import generate
from verification.programs.generator.program import ARENA_BYTES, PROGRAM_BYTES, GeneratedProgram

__all__ = ["ARENA_BYTES", "PROGRAM_BYTES", "GeneratedProgram", "generate"]
