/* Joins the two: a `tw_npu_port` as the `tw_device` of tilewright_runtime.h, for programs of `tilewright export-c`.
 *
 * Memory comes from one contiguous pool that the caller gives, which CPU and NPU share.
 */
#ifndef TILEWRIGHT_NPU_DEVICE_H
#define TILEWRIGHT_NPU_DEVICE_H

#include "tilewright_npu.h"
#include "tilewright_runtime.h"

enum { TW_NPU_POOL_FULL = -108 };

typedef struct {
    tw_npu_port port;
    uint8_t *pool;     /* where the CPU sees it; aligned to TW_ALIGNMENT */
    uint64_t address;  /* where the NPU sees it; aligned to TW_ALIGNMENT */
    uint64_t size;     /* bytes */
    uint64_t used;     /* 0 at first */
    tw_npu_error error; /* of the last run that failed */
} tw_npu_board;

static int tw_npu_device_allocate(void *context, uint64_t nbytes, uint64_t *address, uint8_t **pointer) {
    tw_npu_board *board = (tw_npu_board *)context;
    if (tw_aligned(nbytes) > board->size - board->used) return TW_NPU_POOL_FULL;
    *address = board->address + board->used;
    *pointer = board->pool + board->used;
    board->used += tw_aligned(nbytes);
    return TW_OK;
}

static int tw_npu_device_to_device(void *context, uint64_t address, uint64_t nbytes) {
    tw_npu_board *board = (tw_npu_board *)context;
    if (board->port.to_device) board->port.to_device(board->port.context, address, nbytes);
    return TW_OK;
}

static int tw_npu_device_to_host(void *context, uint64_t address, uint64_t nbytes) {
    tw_npu_board *board = (tw_npu_board *)context;
    if (board->port.to_host) board->port.to_host(board->port.context, address, nbytes);
    return TW_OK;
}

static int tw_npu_device_run(void *context, const tw_region *regions, uint32_t region_count, uint32_t program_region,
                             uint64_t offset, uint32_t count) {
    tw_npu_board *board = (tw_npu_board *)context;
    tw_npu_region windows[TW_NPU_REGIONS];
    tw_npu_job job;
    uint32_t i;
    if (region_count > TW_NPU_REGIONS || offset > UINT32_MAX) return TW_NPU_ARGUMENT;
    for (i = 0; i < region_count; i++) {
        windows[i].base = regions[i].base;
        windows[i].size = regions[i].size;
        windows[i].read = regions[i].read;
        windows[i].write = regions[i].write;
    }
    job.regions = windows;
    job.region_count = region_count;
    job.program_region = program_region;
    job.program_offset = (uint32_t)offset;
    job.program_length = count;
    job.watchdog = job.timeout = 0;
    return tw_npu_run(&board->port, &job, &board->error);
}

/* The device of a board. Both must live as long as the programs on it; give `fingerprint` of the program to
 * `tw_npu_open` before. */
static inline tw_device tw_npu_device(tw_npu_board *board) {
    tw_device device;
    device.context = board;
    device.allocate = tw_npu_device_allocate;
    device.to_device = tw_npu_device_to_device;
    device.to_host = tw_npu_device_to_host;
    device.run = tw_npu_device_run;
    return device;
}

#endif
