/* From reset, or from the boot program, to main. The linker script names stack and zeroed data. */
    .option arch, +zicsr
    .section .text.start, "ax", @progbits
    .globl _start
_start:
    la sp, tw_stack_end
    la t0, trap
    csrw mtvec, t0
    la t0, tw_zeroed
    la t1, tw_zeroed_end
1:  bgeu t0, t1, 2f
    sw zero, 0(t0)
    addi t0, t0, 4
    j 1b
2:  call main
3:  j 3b

    .balign 4
trap:
    la sp, tw_stack_end
    csrr a0, mcause
    csrr a1, mepc
    call tw_trapped
    j 3b
