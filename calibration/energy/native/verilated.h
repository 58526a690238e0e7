// hw/sim/harness.cpp drives gates through the interface of Verilator's models; this is all it needs of Verilator.
#pragma once
struct VerilatedContext {};
