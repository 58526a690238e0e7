/* Runs a compiled program from C99: what `tilewright export-c` writes includes this header.
 *
 * No calls but memcpy and memset, no allocation, no state outside `tw_instance`: usable without an operating system.
 * CPU steps call native kernels, NPU steps go to a `tw_device`, which a board's driver provides.
 */
#ifndef TILEWRIGHT_RUNTIME_H
#define TILEWRIGHT_RUNTIME_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define TW_ALIGNMENT 64 /* bytes: of `memory`, of device memory, of every buffer in them */
#define TW_MAX_REGIONS 8

/* What `tw_init` and `tw_run` return; anything else is the device's own. */
enum tw_status {
    TW_OK = 0,
    TW_NEEDS_DEVICE = -1,  /* the program has NPU steps and `device` is NULL */
    TW_BAD_MEMORY = -2,    /* `memory` is NULL or not aligned */
    TW_DEVICE_MEMORY = -3, /* the device gave no memory that the CPU can reach, or it is not aligned */
};

/* A window of device memory that instructions can name. Addresses as the device sees them, sizes in bytes. */
typedef struct {
    uint64_t base, size;
    uint8_t read, write;
} tw_region;

/* The NPU. Every function returns 0, or a code that `tw_run` or `tw_init` hands on. */
typedef struct {
    void *context; /* handed to every function */
    /* Reserves `nbytes` of memory that NPU and CPU share, until the device is closed: where the NPU sees it, and where
     * the CPU does. */
    int (*allocate)(void *context, uint64_t nbytes, uint64_t *address, uint8_t **pointer);
    /* The CPU wrote these bytes and the NPU reads them next (cache clean), or the other way round (cache invalidate).
     * Both may be NULL where caches are coherent. */
    int (*to_device)(void *context, uint64_t address, uint64_t nbytes);
    int (*to_host)(void *context, uint64_t address, uint64_t nbytes);
    /* Runs `count` instructions, the last of which is END, from byte `offset` of region `program_region`, to completion.
     * `regions` has `region_count` entries, by number. */
    int (*run)(void *context, const tw_region *regions, uint32_t region_count, uint32_t program_region, uint64_t offset,
               uint32_t count);
} tw_device;

/* A CPU step: addresses of its inputs, constants and outputs, and a workspace. */
typedef void (*tw_kernel)(uint8_t **buffers, uint8_t *workspace);

enum tw_space { TW_HOST, TW_CONSTANT, TW_ARENA };

typedef struct {
    enum tw_space space;
    uint64_t offset, nbytes; /* in the space */
    const uint8_t *data;     /* constants of kernels: where they are, instead of in the space; else NULL */
} tw_buffer;

/* A graph input or output. Values are in C order. */
typedef struct {
    const char *name, *dtype; /* dtype as numpy names it: float32, int8, ... */
    uint32_t rank;
    const uint64_t *shape; /* `rank` sizes */
    uint64_t nbytes;
    int32_t buffer;     /* -1: an input that nothing reads */
    float scale;        /* quantisation of the whole tensor; 0 if it has none */
    int32_t zero_point; /* real value = scale * (value - zero_point) */
} tw_tensor;

/* A value that lives from one run to the next. */
typedef struct {
    uint32_t begin, end;    /* buffers: what a run begins with, and the next one; in TW_ARENA one place */
    uint64_t nbytes;
    const uint8_t *initial; /* what the first run begins with */
} tw_state;

/* A region whose base is moved before a run: to row min(value % period, rows - 1) of the arena or of the constants. */
typedef struct {
    uint32_t region, input; /* `input`: whose first element is the value */
    uint64_t period, rows, stride;
    uint8_t arena, wide; /* wide: the value is int64, not int32 */
} tw_window;

typedef struct {
    tw_kernel kernel;        /* NULL: an NPU step */
    const uint32_t *buffers; /* CPU: numbers of its buffers */
    uint32_t count;          /* CPU: of buffers; NPU: of instructions */
    uint64_t offset;         /* NPU: of the first instruction, bytes */
} tw_step;

typedef struct {
    const char *name, *host, *config, *fingerprint; /* of the NPU's configuration */
    const uint8_t *instructions, *constants;        /* what goes to the device */
    uint64_t instruction_bytes, constant_bytes, arena_bytes;
    uint64_t host_bytes, workspace_bytes; /* memory of the CPU */
    uint32_t table_size;                  /* most buffers of one step */
    uint32_t region_count, program_region, constant_region, arena_region;
    const tw_buffer *buffers;
    const tw_tensor *inputs, *outputs;
    const tw_step *steps;
    const tw_state *states;
    const tw_window *windows;
    uint32_t state_count, window_count;
    uint32_t buffer_count, input_count, output_count, step_count, npu_step_count;
} tw_program;

/* A loaded program. Not to be used by two threads at a time. */
typedef struct {
    const tw_program *program;
    const tw_device *device;
    uint8_t *host, *workspace, **table;
    uint8_t *constants, *arena; /* device memory, as the CPU sees it */
    tw_region regions[TW_MAX_REGIONS];
} tw_instance;

static inline uint64_t tw_aligned(uint64_t nbytes) { return (nbytes + TW_ALIGNMENT - 1) / TW_ALIGNMENT * TW_ALIGNMENT; }

/* Bytes of CPU memory `tw_init` wants. */
static inline uint64_t tw_memory_bytes(const tw_program *p) {
    return tw_aligned(p->host_bytes) + tw_aligned(p->workspace_bytes) + p->table_size * sizeof(uint8_t *);
}

/* One region of device memory with these contents (NULL: zeros). */
static inline int tw_load_region(tw_instance *t, uint32_t number, const uint8_t *data, uint64_t nbytes, int write,
                                 uint8_t **pointer) {
    const tw_device *d = t->device;
    tw_region *region = &t->regions[number];
    int status = d->allocate(d->context, nbytes ? nbytes : TW_ALIGNMENT, &region->base, pointer);
    if (status) return status;
    if (!*pointer || region->base % TW_ALIGNMENT || (uintptr_t)*pointer % TW_ALIGNMENT) return TW_DEVICE_MEMORY;
    region->size = nbytes;
    region->read = 1;
    region->write = (uint8_t)write;
    if (data) memcpy(*pointer, data, (size_t)nbytes);
    else memset(*pointer, 0, (size_t)nbytes);
    return d->to_device && nbytes ? d->to_device(d->context, region->base, nbytes) : TW_OK;
}

/* Where a buffer is; only kernels' constants must not be written. */
static inline uint8_t *tw_buffer_data(const tw_instance *t, const tw_buffer *b) {
    if (b->data) return (uint8_t *)(uintptr_t)b->data;
    return (b->space == TW_HOST ? t->host : b->space == TW_ARENA ? t->arena : t->constants) + b->offset;
}

/* Makes the next run the first one: what the program keeps from one run to the next is as at the beginning. */
static inline int tw_reset(tw_instance *t) {
    const tw_program *p = t->program;
    int status = TW_OK;
    for (uint32_t i = 0; i < p->state_count && !status; i++) {
        const tw_buffer *b = &p->buffers[p->states[i].begin];
        memcpy(tw_buffer_data(t, b), p->states[i].initial, (size_t)p->states[i].nbytes);
        if (b->space == TW_ARENA && t->device->to_device)
            status = t->device->to_device(t->device->context, t->regions[p->arena_region].base + b->offset, b->nbytes);
    }
    return status;
}

/* Loads a program.
 *
 * device: NULL for a program without NPU steps.
 * memory: `tw_memory_bytes(program)` bytes, aligned to TW_ALIGNMENT; the caller's, as long as the instance is used.
 */
static inline int tw_init(tw_instance *t, const tw_program *program, const tw_device *device, void *memory) {
    memset(t, 0, sizeof *t);
    if (!memory || (uintptr_t)memory % TW_ALIGNMENT) return TW_BAD_MEMORY;
    t->program = program;
    t->device = device;
    t->host = (uint8_t *)memory;
    t->workspace = t->host + tw_aligned(program->host_bytes);
    t->table = (uint8_t **)(void *)(t->workspace + tw_aligned(program->workspace_bytes));
    memset(t->host, 0, (size_t)program->host_bytes);
    if (!program->npu_step_count && !program->arena_bytes) return tw_reset(t);
    if (!device) return TW_NEEDS_DEVICE;
    uint8_t *image = NULL;
    int status = tw_load_region(t, program->program_region, program->instructions, program->instruction_bytes, 0, &image);
    if (!status)
        status = tw_load_region(t, program->constant_region, program->constants, program->constant_bytes, 0, &t->constants);
    if (!status) status = tw_load_region(t, program->arena_region, NULL, program->arena_bytes, 1, &t->arena);
    return status ? status : tw_reset(t);
}

/* Where to put an input or find an output: `nbytes` of it in C order. NULL for an input that nothing reads. */
static inline void *tw_data(const tw_instance *t, const tw_tensor *tensor) {
    return tensor->buffer < 0 ? NULL : tw_buffer_data(t, &t->program->buffers[tensor->buffer]);
}

/* Hands the arena buffers of a CPU step over to the side that uses them next. */
static inline int tw_sync(const tw_instance *t, const tw_step *step,
                          int (*hand_over)(void *context, uint64_t address, uint64_t nbytes)) {
    uint64_t base = t->regions[t->program->arena_region].base;
    for (uint32_t i = 0; hand_over && i < step->count; i++) {
        const tw_buffer *b = &t->program->buffers[step->buffers[i]];
        int status = b->space == TW_ARENA ? hand_over(t->device->context, base + b->offset, b->nbytes) : TW_OK;
        if (status) return status;
    }
    return TW_OK;
}

/* Moves the regions that begin at another row in every run. */
static inline void tw_move_windows(tw_instance *t) {
    const tw_program *p = t->program;
    for (uint32_t i = 0; i < p->window_count; i++) {
        const tw_window *w = &p->windows[i];
        const tw_tensor *x = &p->inputs[w->input];
        int64_t value = 0, period = (int64_t)w->period;
        int32_t narrow = 0;
        if (w->wide) memcpy(&value, tw_data(t, x), sizeof value);
        else memcpy(&narrow, tw_data(t, x), sizeof narrow), value = narrow;
        value = (value % period + period) % period;
        uint64_t row = (uint64_t)value < w->rows ? (uint64_t)value : w->rows - 1;
        tw_region *r = &t->regions[w->region];
        *r = t->regions[w->arena ? p->arena_region : p->constant_region];
        r->base += row * w->stride;
        r->size -= row * w->stride;
    }
}

/* Runs the program once, on whatever the input buffers hold. Inputs must be written before every run: their memory
 * may have been used again. What the program keeps from one run to the next is kept here; see `tw_reset`. */
static inline int tw_run(tw_instance *t) {
    const tw_program *p = t->program;
    const tw_device *d = t->device;
    int status = TW_OK;
    tw_move_windows(t);
    for (uint32_t i = 0; i < p->step_count && !status; i++) {
        const tw_step *step = &p->steps[i];
        if (!step->kernel) {
            status = d->run(d->context, t->regions, p->region_count, p->program_region, step->offset, step->count);
            continue;
        }
        if (d) status = tw_sync(t, step, d->to_host);
        if (status) break;
        for (uint32_t j = 0; j < step->count; j++) t->table[j] = tw_buffer_data(t, &p->buffers[step->buffers[j]]);
        step->kernel(t->table, t->workspace);
        if (d) status = tw_sync(t, step, d->to_device);
    }
    for (uint32_t i = 0; i < p->state_count && !status; i++) {
        uint64_t begin = p->buffers[p->states[i].begin].offset, end = p->buffers[p->states[i].end].offset;
        if (p->buffers[p->states[i].begin].space == TW_HOST && begin != end) memcpy(t->host + begin, t->host + end, (size_t)p->states[i].nbytes);
    }
    for (uint32_t i = 0; i < p->output_count && !status; i++) {
        const tw_buffer *b = p->outputs[i].buffer < 0 ? NULL : &p->buffers[p->outputs[i].buffer];
        if (b && b->space == TW_ARENA && d->to_host)
            status = d->to_host(d->context, t->regions[p->arena_region].base + b->offset, b->nbytes);
    }
    return status;
}

#endif
