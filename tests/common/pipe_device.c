/* A device at the other end of a pipe: requests on standard output, answers on standard input.
 *
 * Request: 64-bit numbers region_count, program_region, offset, count; then base, size, read, write and the bytes of
 * each region. Answer: a 64-bit status, then the bytes of each writable region. `served_by` in c_programs.py answers.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tilewright_runtime.h"

static struct {
    uint8_t *pointer;
    uint64_t address, nbytes;
} blocks[TW_MAX_REGIONS];
static uint32_t block_count;
static uint64_t dirty; /* bytes handed over since the last run, by either side */

static int allocate(void *context, uint64_t nbytes, uint64_t *address, uint8_t **pointer) {
    static uint64_t top = 4096; /* device addresses are not pointers */
    (void)context;
    uint8_t *raw = malloc((size_t)nbytes + TW_ALIGNMENT);
    if (!raw || block_count == TW_MAX_REGIONS) return 1;
    *pointer = raw + (TW_ALIGNMENT - (uintptr_t)raw % TW_ALIGNMENT) % TW_ALIGNMENT;
    *address = top;
    top += tw_aligned(nbytes);
    blocks[block_count].pointer = *pointer;
    blocks[block_count].nbytes = nbytes;
    blocks[block_count++].address = *address;
    return 0;
}

static uint8_t *at(uint64_t address) {
    for (uint32_t i = 0; i < block_count; i++)
        if (blocks[i].address <= address && address < blocks[i].address + blocks[i].nbytes)
            return blocks[i].pointer + (address - blocks[i].address); /* a window begins anywhere in its block */
    exit(9);
}

static int hand_over(void *context, uint64_t address, uint64_t nbytes) {
    (void)context, (void)address;
    dirty += nbytes;
    return 0;
}

static int run(void *context, const tw_region *regions, uint32_t region_count, uint32_t program_region, uint64_t offset,
               uint32_t count) {
    (void)context;
    if (!dirty) return 2; /* the runtime must have said what it wrote */
    uint64_t head[4] = {region_count, program_region, offset, count};
    fwrite(head, sizeof head, 1, stdout);
    for (uint32_t i = 0; i < region_count; i++) {
        const tw_region *r = &regions[i];
        uint64_t fields[4] = {r->base, r->size, r->read, r->write};
        fwrite(fields, sizeof fields, 1, stdout);
        fwrite(at(r->base), 1, (size_t)r->size, stdout);
    }
    fflush(stdout);
    int64_t status;
    if (fread(&status, sizeof status, 1, stdin) != 1) return 3;
    for (uint32_t i = 0; i < region_count && !status; i++)
        if (regions[i].write && fread(at(regions[i].base), 1, (size_t)regions[i].size, stdin) != regions[i].size) return 3;
    dirty = 0;
    return (int)status;
}

const tw_device *tw_open_device(void) {
    static const tw_device device = {NULL, allocate, hand_over, hand_over, run};
    return &device;
}
