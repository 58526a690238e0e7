"""Which site each DSP block and block RAM takes, decided before nextpnr places the cells around them.

`conductance` says how much two blocks pull at each other, `annealing` finds sites for all of them, `ecp5` asks nextpnr
for the sites and writes the choice into the netlist.
"""
