#include "tilewright_npu.h"

#include <stddef.h>

#define BIT(register, name) (UINT32_C(1) << TW_NPU_REG_##register##_##name##_LOW)
#define FIELD(register, name, value) \
    ((value) >> TW_NPU_REG_##register##_##name##_LOW & ((UINT32_C(1) << TW_NPU_REG_##register##_##name##_BITS) - 1))
/* Bytes from one region's registers to the next's. */
#define REGION_STRIDE (TW_NPU_REG_REGION1_BASE_LO - TW_NPU_REG_REGION0_BASE_LO)
/* Looks at STATUS before a reset is given up, where the port has no clock. */
#define RESET_LOOKS 1000000u

static uint32_t get(const tw_npu_port *port, uint32_t offset) { return port->read(port->context, offset); }

static void set(const tw_npu_port *port, uint32_t offset, uint32_t value) { port->write(port->context, offset, value); }

/* A 64-bit value in two registers. */
static uint64_t get_pair(const tw_npu_port *port, uint32_t offset) {
    return (uint64_t)get(port, offset) | (uint64_t)get(port, offset + 4) << 32;
}

static int is_busy(const tw_npu_port *port) {
    return (get(port, TW_NPU_REG_STATUS) & (BIT(STATUS, BUSY) | BIT(STATUS, RESETTING))) != 0;
}

uint64_t tw_npu_fingerprint(const tw_npu_port *port) { return get_pair(port, TW_NPU_REG_FINGERPRINT_LO); }

int tw_npu_open(const tw_npu_port *port, uint64_t fingerprint) {
    if (get(port, TW_NPU_REG_IDENTITY) != TW_NPU_IDENTITY) return TW_NPU_ABSENT;
    if (get(port, TW_NPU_REG_VERSION) != TW_NPU_VERSION) return TW_NPU_OTHER_VERSION;
    if (fingerprint && tw_npu_fingerprint(port) != fingerprint) return TW_NPU_CONFIGURATION;
    if (is_busy(port) || (get(port, TW_NPU_REG_STATUS) & BIT(STATUS, ERROR))) return tw_npu_reset(port);
    return TW_NPU_OK;
}

int tw_npu_reset(const tw_npu_port *port) {
    uint32_t looks;
    set(port, TW_NPU_REG_CONTROL, BIT(CONTROL, SOFT_RESET));
    for (looks = 0; looks < RESET_LOOKS; looks++)
        if (!is_busy(port)) return TW_NPU_OK;
    return TW_NPU_STUCK;
}

/* Whether the registers can express a job. */
static int is_valid(const tw_npu_job *job) {
    uint32_t i;
    if (job->region_count > TW_NPU_REGIONS || job->program_region >= TW_NPU_REGIONS) return 0;
    if (job->program_offset % TW_NPU_INSTRUCTION_BYTES) return 0;
    for (i = 0; i < job->region_count; i++)
        if (job->regions[i].size > UINT32_MAX) return 0;
    return 1;
}

int tw_npu_start(const tw_npu_port *port, const tw_npu_job *job) {
    uint32_t both = BIT(IRQ_STATUS, DONE) | BIT(IRQ_STATUS, ERROR);
    uint32_t i;
    if (!is_valid(job)) return TW_NPU_ARGUMENT;
    for (i = 0; i < TW_NPU_REGIONS; i++) {
        uint32_t at = i * REGION_STRIDE;
        const tw_npu_region *r = i < job->region_count ? &job->regions[i] : NULL;
        set(port, TW_NPU_REG_REGION0_BASE_LO + at, r ? (uint32_t)r->base : 0);
        set(port, TW_NPU_REG_REGION0_BASE_HI + at, r ? (uint32_t)(r->base >> 32) : 0);
        set(port, TW_NPU_REG_REGION0_SIZE + at, r ? (uint32_t)r->size : 0);
        set(port, TW_NPU_REG_REGION0_FLAGS + at,
            (r && r->read ? BIT(REGION0_FLAGS, READ) : 0) | (r && r->write ? BIT(REGION0_FLAGS, WRITE) : 0));
    }
    set(port, TW_NPU_REG_PROGRAM_REGION, job->program_region);
    set(port, TW_NPU_REG_PROGRAM_OFFSET, job->program_offset);
    set(port, TW_NPU_REG_PROGRAM_LENGTH, job->program_length);
    set(port, TW_NPU_REG_WATCHDOG, job->watchdog ? job->watchdog : TW_NPU_WATCHDOG_CYCLES);
    set(port, TW_NPU_REG_TIMEOUT, job->timeout);
    set(port, TW_NPU_REG_IRQ_STATUS, both);
    set(port, TW_NPU_REG_IRQ_ENABLE, both);
    set(port, TW_NPU_REG_CONTROL, BIT(CONTROL, START));
    return TW_NPU_OK;
}

int tw_npu_finished(const tw_npu_port *port) { return !is_busy(port); }

int tw_npu_result(const tw_npu_port *port, tw_npu_error *error) {
    uint32_t status = get(port, TW_NPU_REG_STATUS), code;
    int reset;
    if (status & BIT(STATUS, DONE)) return TW_NPU_OK;
    if (!(status & BIT(STATUS, ERROR))) return TW_NPU_WAS_RESET;
    code = get(port, TW_NPU_REG_ERROR_CODE);
    if (error) {
        error->code = FIELD(ERROR_CODE, CODE, code);
        error->engine = FIELD(ERROR_CODE, ENGINE, code);
        error->pc = get(port, TW_NPU_REG_ERROR_PC);
        error->address = get_pair(port, TW_NPU_REG_ERROR_ADDRESS_LO);
    }
    reset = tw_npu_reset(port);
    return reset ? reset : (int)FIELD(ERROR_CODE, CODE, code);
}

int tw_npu_run(const tw_npu_port *port, const tw_npu_job *job, tw_npu_error *error) {
    uint32_t i, asked;
    int result;
    for (i = 0; port->to_device && i < job->region_count; i++)
        if (job->regions[i].read) port->to_device(port->context, job->regions[i].base, job->regions[i].size);
    result = tw_npu_start(port, job);
    if (result) return result;
    for (asked = 0; !tw_npu_finished(port); asked++)
        if (port->wait && port->wait(port->context, asked)) {
            result = tw_npu_reset(port);
            return result ? result : TW_NPU_GIVEN_UP;
        }
    result = tw_npu_result(port, error);
    for (i = 0; port->to_host && i < job->region_count; i++)
        if (job->regions[i].write) port->to_host(port->context, job->regions[i].base, job->regions[i].size);
    return result;
}

void tw_npu_read_counters(const tw_npu_port *port, tw_npu_counters *counters) {
#define READ(name, offset) counters->name = get_pair(port, offset);
    TW_NPU_COUNTERS(READ)
#undef READ
}

const char *tw_npu_text(int result) {
    switch (result) {
#define TEXT(name, code, meaning) \
    case code: return #name ": " meaning;
        TW_NPU_ERRORS(TEXT)
#undef TEXT
    case TW_NPU_ABSENT: return "no Tilewright NPU answers";
    case TW_NPU_OTHER_VERSION: return "another version of the register table";
    case TW_NPU_CONFIGURATION: return "the bitstream has another configuration than the program";
    case TW_NPU_GIVEN_UP: return "the NPU did not finish in time and was reset";
    case TW_NPU_STUCK: return "the reset does not end: the bus does not answer the NPU";
    case TW_NPU_WAS_RESET: return "the NPU was reset during the run";
    case TW_NPU_ARGUMENT: return "a region or a program that the registers cannot express";
    default: return "unknown result";
    }
}

const char *tw_npu_engine(uint32_t engine) {
    switch (engine) {
#define NAME(name, number) \
    case number: return #name;
        TW_NPU_ENGINES(NAME)
#undef NAME
    default: return "unknown engine";
    }
}
