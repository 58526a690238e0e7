/* The NPU from C99, without an operating system: registers, a run, errors, counters.
 *
 * No allocation, no state of its own, no calls but those of the port. Registers, counters and
 * error codes come from tilewright_npu_registers.h, which is generated from the tables in isa/.
 * The caller owns the memory: regions are addresses as the NPU sees them.
 */
#ifndef TILEWRIGHT_NPU_H
#define TILEWRIGHT_NPU_H

#include <stdint.h>

#include "tilewright_npu_registers.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What the driver needs of the system. */
typedef struct {
    void *context; /* handed to every function */
    uint32_t (*read)(void *context, uint32_t offset);
    void (*write)(void *context, uint32_t offset, uint32_t value);
    /* Called while the driver waits for a run, `asked` times before in this run: sleeps until the interrupt, or for a
     * while, or not at all. Nonzero ends the wait: the time is over. NULL: waits for ever. */
    int (*wait)(void *context, uint32_t asked);
    /* Cache clean before a run, cache invalidate after it. NULL where caches are coherent. */
    void (*to_device)(void *context, uint64_t address, uint64_t nbytes);
    void (*to_host)(void *context, uint64_t address, uint64_t nbytes);
} tw_npu_port;

/* Codes of the machine. */
enum tw_npu_code {
#define TW_NPU_CODE(name, code, meaning) TW_NPU_ERROR_##name = code,
    TW_NPU_ERRORS(TW_NPU_CODE)
#undef TW_NPU_CODE
    TW_NPU_ERROR_COUNT
};

/* Results. Positive ones are codes of the machine. */
enum tw_npu_result {
    TW_NPU_OK = 0,
    TW_NPU_ABSENT = -101,        /* IDENTITY is not that of an NPU */
    TW_NPU_OTHER_VERSION = -102, /* another version of the register table */
    TW_NPU_CONFIGURATION = -103, /* the bitstream has another configuration than the program */
    TW_NPU_GIVEN_UP = -104,      /* the port ended the wait for the run; the NPU was reset */
    TW_NPU_STUCK = -105,         /* a soft reset does not end: the bus does not answer the NPU */
    TW_NPU_WAS_RESET = -106,     /* somebody reset the NPU during the run */
    TW_NPU_ARGUMENT = -107       /* a region or a program the registers cannot express */
};

typedef struct {
    uint64_t base, size; /* bytes; base a multiple of the bus width, size below 2^32 */
    uint8_t read, write;
} tw_npu_region;

/* One run. */
typedef struct {
    const tw_npu_region *regions; /* by number */
    uint32_t region_count;        /* at most TW_NPU_REGIONS; the others are closed */
    uint32_t program_region;
    uint32_t program_offset; /* bytes, a multiple of TW_NPU_INSTRUCTION_BYTES */
    uint32_t program_length; /* instructions, END included */
    uint32_t watchdog;       /* cycles without progress; 0 = TW_NPU_WATCHDOG_CYCLES */
    uint32_t timeout;        /* cycles of the run; 0 = no limit */
} tw_npu_job;

/* What stopped the machine. */
typedef struct {
    uint32_t code, engine; /* `tw_npu_text` and `tw_npu_engine` name them */
    uint32_t pc;           /* index of the instruction */
    uint64_t address;      /* memory address, scratchpad row or semaphore */
} tw_npu_error;

/* Counters of the last run; what they count is in docs/isa.md. `macs` counts steps of the array. */
typedef struct {
#define TW_NPU_FIELD(name, offset) uint64_t name;
    TW_NPU_COUNTERS(TW_NPU_FIELD)
#undef TW_NPU_FIELD
} tw_npu_counters;

/* The configuration of the bitstream. */
uint64_t tw_npu_fingerprint(const tw_npu_port *port);

/* Whether this is an NPU of this version and, unless `fingerprint` is 0, of this configuration; ends what an earlier
 * owner left running. Call it once before anything else. */
int tw_npu_open(const tw_npu_port *port, uint64_t fingerprint);

/* Ends whatever runs and clears errors, counters, queues and semaphores. */
int tw_npu_reset(const tw_npu_port *port);

/* Starts a job and returns. With interrupts for the end enabled: the line is high from then on until the next start. */
int tw_npu_start(const tw_npu_port *port, const tw_npu_job *job);

/* Whether the job has ended, one way or the other. */
int tw_npu_finished(const tw_npu_port *port);

/* How it ended: TW_NPU_OK, a code of the machine with its details in `error`, or TW_NPU_WAS_RESET. After an error the
 * NPU is reset. `error` may be NULL. */
int tw_npu_result(const tw_npu_port *port, tw_npu_error *error);

/* Start, wait, result, with the port's cache maintenance of every open region. */
int tw_npu_run(const tw_npu_port *port, const tw_npu_job *job, tw_npu_error *error);

void tw_npu_read_counters(const tw_npu_port *port, tw_npu_counters *counters);

/* Text for people: of a code of the machine or a result of the driver; the name of an engine. */
const char *tw_npu_text(int result);
const char *tw_npu_engine(uint32_t engine);

#ifdef __cplusplus
}
#endif

#endif
