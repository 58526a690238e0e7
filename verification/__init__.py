"""The laboratory: what shows that the product is right. It imports the product and helpers of `tests`; the product
imports nothing of it.

    formal/         proofs about parts of the NPU, and (`boards`) about what boards put around it
    netlists/       simulators of the netlists that synthesis and place and route leave
    equivalence/    netlist and RTL compute the same
    trials/         runs that show whether an RTL is faulty
    mutants/        faults put into the RTL, and whether trials find them
    source_faults/  faults put into Python and C++ sources, and whether tests find them
    coverage/       which lines and bits of the RTL the trials reach
    fuzz/           random programs, models and damaged files
    programs/       generators of random and directed programs
    code.py         digests of code, whatever its files are called
    measured.py     figures that a command measured, with the command, the day and a digest of the design
    rtl_text.py     the RTL of a configuration as text, and its digest
    signoff.py      the page that sums up what was measured
"""
