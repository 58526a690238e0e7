"""All trials of an RTL that may be faulty."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tilewright.isa.config import NpuConfig
from verification.trials.bus import bus
from verification.trials.corner_cases import corner_cases
from verification.trials.directed import directed
from verification.trials.fetch import fetch
from verification.trials.full_width import full_width
from verification.trials.host import host
from verification.trials.issue import issue
from verification.trials.limits import limits
from verification.trials.register_bits import register_bits
from verification.trials.simultaneous_gives import simultaneous_gives
from verification.trials.transfer import transfer
from verification.trials.trial import Trial, trials
from verification.trials.vector import vector

#: What each kind of trial is for.
PURPOSES = {
    "program": "A random program gives the simulators' bytes, counters and cycles of instructions",
    "moved": "A random program at a random place of the address space does what it does at address 0",
    "registers": "Registers keep random values in the bits that can be written; masked interrupts stay masked",
    "error": "Each way to stop a program gives its error code, engine, instruction and address",
    "limits": "Watchdog and timeout of an engine that waits for ever end the run in the right order",
    "extremes": "Fields at the ends of their ranges run, or stop with the right error",
    "fields": "Each field of each instruction takes every class of its values",
    "semaphores": "Each engine gives and takes every semaphore, one or two at a time",
    "runs": "Runs end early: by watchdog, timeout, or the end of their program",
    "far": "High addresses, lengths and limits use all their bits",
    "late": "An instruction with a number of 2^15 and above does and reports what an early one does",
    "drain": "After an error with bursts under way the next run starts clean",
    "quiet": "The interrupt of an error, and the end of a soft reset, wait for the memory's last answer",
    "again": "An accumulator that was written one to six cycles before is forwarded or read correctly",
    "shared": "Two engines that wait for one semaphore get it in the order of their priority",
    "crowd": "All engines give and take few semaphores at once",
    "numbers": "The requantiser rounds random operands and operands beside a tie",
    "carries": "Products whose rounding carries into the next power of two",
    "patterns": "All registers keep the same bit pattern, written in either order",
    "refused": "Numbers of semaphores that no machine has are illegal",
    "overflows": "Each semaphore beyond its limit is reported, from either signal",
    "counts": "Each semaphore counts to its limit and back, from either side",
    "fixed": "Writes to read-only registers and to addresses without one change nothing",
    "anew": "A reset clears every register that the host can write",
    "status": "STATUS follows a run from its start to its end and through a reset",
    "stalled": "A bus that takes addresses late changes cycles, not bytes",
    "queued": "An engine whose queue is full holds back FETCH and nothing else",
    "nests": "Each loop level counts down from every power of two",
    "boxes": "Boxes with large counts of lines, planes and rows whose first run is refused",
    "edges": "The last byte of a window is reached, the one behind it is refused",
    "waits": "Watchdogs that count through all their bits",
    "windows": "DEPTHWISE with the largest starts and steps in either level",
    "long": "Loops and boxes that count to 2^16 and end",
    "met": "Engines give one semaphore in the same cycle while another takes it, in all combinations",
    "stops": "An engine makes no step after an error is known, and one in every cycle before",
    "fresh": "DEPTHWISE that emits in its first steps sees an empty window",
    "sums": "SUM and MAX over few and many rows show every bit",
    "whole": "VECTOR and GEMM write a row completely or not at all when a run stops",
    "added": "The integer Add of VECTOR with single bits, values at its limits, and factors with all bits",
    "inside": "Values beside n + 1/2 with zero points that round them to a tie",
    "counted": "Levels of VECTOR with counts of 9 bits and more",
    "runs_of_rows": "Runs of LOAD with every bit of their count of rows",
    "carried": "Boxes at the end of the address space whose middle run leaves it",
    "named": "One bit of a field that takes LOAD or STORE beyond its memory is reported",
    "cut": "The memory ends within a burst: the error names the first missing beat",
    "refused_boxes": "A box without rows takes no time",
    "ended": "Everything before a LOAD or STORE that stops runs in its cycles",
    "crossing": "Chunks of LOAD wait for VECTOR at a bank, at each place of an instruction",
    "at_once": "A timeout, the reset and the next start follow each other without a pause",
    "boxed": "Boxes with one bit in the count of a level are walked to their end",
    "loops": "Loops that earlier instructions have configured in part",
    "burst": "Full queues give and take one semaphore in a burst",
    "full": "A semaphore overflows beside one that does not",
    "stopped": "Instructions that an answer of the memory would have allowed do not start after an error",
    "lengths": "Lengths of programs with each bit 0 by itself",
    "above": "Stops at instruction numbers above 2^15, and soon after at low ones",
    "reports": "WATCHDOG names the engine and the semaphores that are missing",
    "permissions": "A region is read, written and fetched from with every set of permissions",
    "times": "Watchdogs and timeouts about powers of two end in the right cycle",
    "sizes": "Programs that fill their region, or are longer",
    "beyond": "Runs that leave ACT by one bit of their length",
    "unended": "Programs of every length without an END",
    "places": "Programs at every place of a burst, on a slow memory",
    "illegal": "Each illegal value of each field is refused",
    "moments": "Each stop comes in its exact cycle, and of two the earlier one",
    "holes": "Addresses without a register read 0 and ignore writes",
    "answers": "Register accesses take their promised cycles during a run",
    "cleared": "The bus waits while a reset clears memories",
    "halted": "After an error nothing is read, written or counted",
    "strobes": "The debug strobes count the steps of each engine",
}


def all_trials(config: NpuConfig, programs: int) -> Iterator[Trial]:
    """Random programs and what stops, so many of each (see `trials`), then those made for a purpose."""
    yield from trials(config, programs)
    for some in (
        directed,
        limits,
        corner_cases,
        register_bits,
        bus,
        full_width,
        simultaneous_gives,
        vector,
        transfer,
        issue,
        fetch,
        host,
    ):
        yield from some(config)


def table(count: Mapping[str, int]) -> list[str]:
    """Lines of a Markdown table of trials that were run: kind, purpose, number of runs."""
    rows = [f"| `{kind}` | {PURPOSES[kind]} | {n} |" for kind, n in count.items()]
    return ["| trial | purpose | runs |", "|---|---|---|", *rows]
