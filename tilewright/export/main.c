/* Runs a program once on inputs from files of raw bytes, as numpy's `tofile` writes them. */
#include <stdio.h>
#include <stdlib.h>

#include "PROGRAM.h"

#ifdef TW_DEVICE
const tw_device *tw_open_device(void); /* the board's driver */
#else
static const tw_device *tw_open_device(void) { return NULL; }
#endif

static void describe(const char *kind, const tw_tensor *tensors, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        const tw_tensor *t = &tensors[i];
        fprintf(stderr, "  %s %s: %s[", kind, t->name, t->dtype);
        for (uint32_t k = 0; k < t->rank; k++) fprintf(stderr, k ? ", %llu" : "%llu", (unsigned long long)t->shape[k]);
        fprintf(stderr, "], %llu bytes", (unsigned long long)t->nbytes);
        if (t->scale != 0) fprintf(stderr, ", scale %g, zero point %d", t->scale, (int)t->zero_point);
        fprintf(stderr, "\n");
    }
}

/* Reads or writes a whole tensor. */
static int transfer(const char *path, void *data, uint64_t nbytes, int writes) {
    FILE *file = fopen(path, writes ? "wb" : "rb");
    if (!file) {
        perror(path);
        return 1;
    }
    size_t done = writes ? fwrite(data, 1, (size_t)nbytes, file) : data ? fread(data, 1, (size_t)nbytes, file) : nbytes;
    int too_long = !writes && data && fgetc(file) != EOF;
    if ((fclose(file) != 0 && writes) || done != nbytes || too_long) {
        fprintf(stderr, "%s: must %s %llu bytes\n", path, writes ? "take" : "have", (unsigned long long)nbytes);
        return 1;
    }
    return 0;
}

int main(int argc, char **argv) {
    const tw_program *p = &PROGRAM_program;
    if ((uint32_t)argc != 1 + p->input_count + p->output_count) {
        fprintf(stderr, "usage: %s INPUT... OUTPUT...\n%s: for %s, NPU %s\n", argv[0], p->name, p->host, p->config);
        describe("input", p->inputs, p->input_count);
        describe("output", p->outputs, p->output_count);
        return 2;
    }
    uint8_t *raw = malloc((size_t)tw_memory_bytes(p) + TW_ALIGNMENT);
    if (!raw) {
        fprintf(stderr, "%s: no memory\n", argv[0]);
        return 1;
    }
    tw_instance instance;
    uint8_t *memory = raw + (TW_ALIGNMENT - (uintptr_t)raw % TW_ALIGNMENT) % TW_ALIGNMENT;
    int status = tw_init(&instance, p, tw_open_device(), memory);
    for (uint32_t i = 0; !status && i < p->input_count; i++)
        if (transfer(argv[1 + i], tw_data(&instance, &p->inputs[i]), p->inputs[i].nbytes, 0)) return 1;
    if (!status) status = tw_run(&instance);
    if (status) {
        fprintf(stderr, "%s: %s %d\n", argv[0], status == TW_NEEDS_DEVICE ? "needs an NPU: status" : "status", status);
        return 1;
    }
    for (uint32_t i = 0; i < p->output_count; i++) {
        const char *path = argv[1 + p->input_count + i];
        if (transfer(path, tw_data(&instance, &p->outputs[i]), p->outputs[i].nbytes, 1)) return 1;
    }
    free(raw);
    return 0;
}
