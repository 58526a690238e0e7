// Clocks the SoC until its firmware is done, and prints what it says.
#include <cstdio>

#include "Vsoc.h"
#include "verilated.h"

int main() {
    VerilatedContext context;
    Vsoc soc{&context};
    for (long cycle = 0; cycle < 20'000'000; cycle++) {
        soc.rst = cycle < 8;
        soc.clk = 0;
        soc.eval();
        soc.clk = 1;
        soc.eval();
        if (soc.console >> 8 & 1) std::putchar(soc.console & 255);
        if (soc.console >> 9) {
            std::printf("%ld cycles of the SoC\n", cycle);
            return 0;
        }
    }
    std::puts("the firmware does not end");
    return 1;
}
