/* The program of a board without a host: a network, and the commands of MLPerf Tiny's performance mode.
 *
 * A command ends with %, words are parted by spaces; line ends between commands do not count. Every command is answered
 * by lines and `m-ready`; lines of errors begin with e-. Beside the benchmark's commands there are `output`, the raw
 * bytes of all outputs, and `cycles` of the last inference.
 */
#include <stdint.h>
#include <string.h>

#include "board.h"
#include "console.h"
#include "network.h"
#include "tilewright_npu_device.h"
#include "tilewright_standalone.h" /* TW_MODEL, TW_INPUTS: one of TW_INPUTS_*, TW_ERROR */

enum { COMMAND = 1024, WARMUPS = 10, INFERENCES = 1, BUSY_LED = 1 << 1, READY_LED = 1 << 2, PER_LINE = 8 };

extern uint8_t tw_first[], tw_free[]; /* of the linker script: the program's first byte, the first free one */

static tw_instance instance;
static tw_npu_board board;
static tw_device device;
static uint8_t *input; /* what `db` loaded */
static uint32_t input_bytes, expected, loaded;
static uint32_t lap_ticks, npu_cycles; /* of the last inference */

/* The NPU. */

static uint32_t read_register(void *context, uint32_t offset) {
    return *(volatile uint32_t *)((uintptr_t)context + offset);
}

static void write_register(void *context, uint32_t offset, uint32_t value) {
    *(volatile uint32_t *)((uintptr_t)context + offset) = value;
}

static void forget(void *context, uint64_t address, uint64_t nbytes) {
    (void)context, (void)address, (void)nbytes;
    tw_board_forget();
}

static int run_and_count(void *context, const tw_region *regions, uint32_t count, uint32_t program, uint64_t offset,
                         uint32_t instructions) {
    tw_npu_counters counters;
    int status = tw_npu_device_run(context, regions, count, program, offset, instructions);
    tw_npu_read_counters(&board.port, &counters);
    npu_cycles += (uint32_t)counters.cycles;
    return status;
}

/* The program. */

static const tw_program *network(void) { return &network_program; }

/* Takes `bytes` from the memory that is left, aligned for anything. */
static uint8_t *take(uint64_t bytes) {
    static uint8_t *at = tw_free;
    uint8_t *end = tw_first + tw_board_memory();
    uint8_t *taken = (uint8_t *)(((uintptr_t)at + TW_ALIGNMENT - 1) / TW_ALIGNMENT * TW_ALIGNMENT);
    if (taken > end || bytes > (uint64_t)(end - taken))
        tw_stop("e-[the network needs %u bytes of memory more]\r\n", (uint32_t)(bytes - (uint64_t)(end - taken)), 0, 0, 0);
    at = taken + bytes;
    return taken;
}

static uint32_t elements(const tw_tensor *t) {
    uint32_t count = 1, i;
    for (i = 0; i < t->rank; i++) count *= (uint32_t)t->shape[i];
    return count;
}

/* Bytes of an input as it comes. */
static uint32_t given_bytes(const tw_tensor *t) {
    return TW_INPUTS == TW_INPUTS_FLOATS ? 4 * elements(t) : (uint32_t)t->nbytes;
}

static float float_at(const uint8_t *data, uint32_t i) {
    float value;
    memcpy(&value, data + 4 * i, 4);
    return value;
}

/* A float as a tensor of bytes has it: the nearest step, ties away from zero. */
static uint8_t quantised(const tw_tensor *t, float value) {
    int32_t least = strcmp(t->dtype, "int8") ? 0 : -128, step;
    float steps = value / t->scale, rest;
    if (!(steps > -1024.0f)) step = -1024; /* also what is no number */
    else if (steps > 1024.0f) step = 1024;
    else {
        step = (int32_t)steps;
        rest = steps - (float)step;
        step += (rest >= 0.5f) - (rest <= -0.5f);
    }
    step += t->zero_point;
    return (uint8_t)(step < least ? least : step > least + 255 ? least + 255 : step);
}

static void load(void) {
    const tw_program *p = network();
    const tw_device *used = NULL;
    uint8_t *memory = take(tw_memory_bytes(p));
    uint32_t i;
    int status;
    for (i = 0; i < p->input_count; i++) input_bytes += given_bytes(&p->inputs[i]);
    input = take(input_bytes);
    if (tw_board_npu()) {
        board.port.context = (void *)tw_board_npu();
        board.port.read = read_register;
        board.port.write = write_register;
        board.port.to_host = forget;
        board.pool = take(0);
        board.address = tw_board_npu_address(board.pool);
        board.size = (uint64_t)(tw_first + tw_board_memory() - board.pool);
        status = tw_npu_open(&board.port, 0);
        if (status) tw_stop("e-[no NPU: result %d]\r\n", (uint32_t)status, 0, 0, 0);
        device = tw_npu_device(&board);
        device.run = run_and_count;
        used = &device;
    }
    status = tw_init(&instance, p, used, memory);
    if (status == TW_NPU_POOL_FULL) tw_stop("e-[the network needs more memory than there is]\r\n", 0, 0, 0, 0);
    if (status) tw_stop("e-[the network cannot be loaded: result %d]\r\n", (uint32_t)status, 0, 0, 0);
}

/* One inference; the runtime may use an input's memory again, so they are written every time. Returns 0 or a result of
 * the runtime or the NPU. */
static int infer_once(void) {
    const tw_program *p = network();
    const uint8_t *from = input;
    uint32_t start = (uint32_t)tw_board_ticks(), i, j;
    int status;
    npu_cycles = 0;
    for (i = 0; i < p->input_count; i++) {
        const tw_tensor *t = &p->inputs[i];
        uint8_t *to = tw_data(&instance, t);
        if (to && TW_INPUTS == TW_INPUTS_FLOATS && strcmp(t->dtype, "float32"))
            for (j = 0; j < t->nbytes; j++) to[j] = quantised(t, float_at(from, j));
        else if (to) memcpy(to, from, (size_t)t->nbytes);
        if (to && TW_INPUTS == TW_INPUTS_UNSIGNED && !strcmp(t->dtype, "int8"))
            for (j = 0; j < t->nbytes; j++) to[j] ^= 0x80;
        from += given_bytes(t);
    }
    status = tw_run(&instance);
    lap_ticks = (uint32_t)tw_board_ticks() - start;
    return status;
}

/* Element `i` as a number. */
static float number(const tw_tensor *t, const uint8_t *data, uint32_t i) {
    float value;
    if (!strcmp(t->dtype, "float32")) return float_at(data, i);
    if (!strcmp(t->dtype, "int32")) {
        int32_t whole;
        memcpy(&whole, data + 4 * i, 4);
        value = (float)(whole - t->zero_point);
    } else if (!strcmp(t->dtype, "int64")) {
        int64_t whole;
        memcpy(&whole, data + 8 * i, 8);
        value = (float)whole;
    } else if (!strcmp(t->dtype, "int8")) value = (float)((int8_t)data[i] - t->zero_point);
    else value = (float)(data[i] - t->zero_point);
    return t->scale != 0 ? t->scale * value : value;
}

/* Element `i` of the first input as it came. */
static float given(uint32_t i) {
    const tw_tensor *t = &network()->inputs[0];
    uint8_t moved;
    if (TW_INPUTS == TW_INPUTS_FLOATS) return float_at(input, i);
    if (TW_INPUTS == TW_INPUTS_OWN || strcmp(t->dtype, "int8")) return number(t, input, i);
    moved = input[i] ^ 0x80;
    return number(t, &moved, 0);
}

/* Commands. */

static char *rest; /* of the command, behind the word taken last */

/* The next word of the command, NULL at its end. */
static char *next(void) {
    char *word;
    while (*rest == ' ') rest++;
    if (!*rest) return NULL;
    word = rest;
    while (*rest && *rest != ' ') rest++;
    if (*rest) *rest++ = 0;
    return word;
}

/* A number of digits alone, below 2^31; -1 for another word. */
static int32_t count_of(const char *word) {
    int32_t value = 0;
    for (; *word; word++) {
        if (*word < '0' || *word > '9' || value > (INT32_MAX - 9) / 10) return -1;
        value = 10 * value + (*word - '0'); /* the character alone could take it beyond INT32_MAX */
    }
    return value;
}

static int digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static void timestamp(void) {
    uint64_t ticks = tw_board_ticks();
    uint32_t hz = tw_board_hz();
    /* Seconds and the rest apart, so that nothing overflows. */
    tw_print("m-lap-us-%u\r\n", (uint32_t)(ticks / hz * 1000000 + ticks % hz * 1000000 / hz));
}

static void results(void) {
    const tw_tensor *t = &network()->outputs[0];
    const uint8_t *data = tw_data(&instance, t);
    uint32_t count = elements(t), i;
    tw_print("m-results-[");
    if (TW_ERROR) {
        float sum = 0;
        for (i = 0; i < count; i++) {
            float difference = number(t, data, i) - given(i);
            sum += difference * difference;
        }
        tw_print_thousandths(sum / (float)count);
    } else
        for (i = 0; i < count; i++) {
            if (i) tw_print(",");
            tw_print_thousandths(number(t, data, i));
        }
    tw_print("]\r\n");
}

static void print_bytes(const char *before, const uint8_t *data, uint32_t count) {
    uint32_t i;
    for (i = 0; i < count; i++) {
        if (i % PER_LINE == 0) tw_print("%s", before);
        tw_print("%b%s", data[i], (i + 1) % PER_LINE == 0 || i + 1 == count ? "\r\n" : "-");
    }
}

static void infer(void) {
    int32_t count = INFERENCES, warmups = WARMUPS, left;
    char *word = next();
    int status = 0;
    if (word) {
        count = count_of(word);
        word = next();
        if (word) warmups = count_of(word);
    }
    if (count <= 0) {
        tw_print("e-[Inference iterations must be >0]\r\n");
        return;
    }
    if (warmups < 0) {
        tw_print("e-[Inference warmup must be >=0]\r\n");
        return;
    }
    if (loaded != input_bytes) {
        tw_print("e-[The input has %u bytes, %u are loaded]\r\n", input_bytes, loaded);
        return;
    }
    tw_board_leds(BUSY_LED | READY_LED);
    tw_print("m-warmup-start-%u\r\n", (uint32_t)warmups);
    for (left = warmups; left > 0 && !status; left--) status = infer_once();
    tw_print("m-warmup-done\r\nm-infer-start-%u\r\n", (uint32_t)count);
    timestamp();
    for (left = count; left > 0 && !status; left--) status = infer_once();
    timestamp();
    tw_board_leds(READY_LED);
    if (status) {
        tw_print("e-[The NPU stopped: %s, %s at instruction %u]\r\n", tw_npu_text(status),
                 tw_npu_engine(board.error.engine), board.error.pc);
        return;
    }
    tw_print("m-infer-done\r\n");
    results();
}

static void db(void) {
    char *word = next();
    int32_t count;
    if (!word) {
        tw_print("e-[Command 'db' requires a subcommand]\r\n");
    } else if (!strcmp(word, "load")) {
        word = next();
        count = word ? count_of(word) : 0;
        if (!word) tw_print("e-[Command 'db load' requires the # of bytes]\r\n");
        else if (count <= 0) tw_print("e-[Command 'db load' must be >0 bytes]\r\n");
        else if ((uint32_t)count > input_bytes)
            tw_print("e-[The input has %u bytes, not %u]\r\n", input_bytes, (uint32_t)count);
        else {
            expected = (uint32_t)count;
            loaded = 0;
            tw_print("m-[Expecting %u bytes]\r\n", expected);
        }
    } else if (!strcmp(word, "print")) {
        print_bytes("m-buffer-", input, loaded);
    } else {
        if (strlen(word) & 1) {
            tw_print("e-[Insufficent number of hex digits]\r\n");
            return;
        }
        if (loaded == expected) {
            tw_print("e-[No more bytes are expected: 'db load' first]\r\n");
            return;
        }
        for (; *word && loaded < expected; word += 2) {
            int high = digit(word[0]), low = digit(word[1]);
            if (high < 0 || low < 0) {
                word[2] = 0;
                tw_print("e-[Invalid hex digit '%s']\r\n", word);
                return;
            }
            input[loaded++] = (uint8_t)(high << 4 | low);
        }
        if (loaded == expected) tw_print("m-load-done\r\n");
    }
}

static void output(void) {
    const tw_program *p = network();
    uint32_t i;
    for (i = 0; i < p->output_count; i++) {
        const tw_tensor *t = &p->outputs[i];
        tw_print("m-tensor-%u-%s-%s\r\n", i, t->dtype, t->name);
        print_bytes("m-output-", tw_data(&instance, t), (uint32_t)t->nbytes);
    }
}

static void help(void) {
    tw_print("Tilewright without a host: %s\r\n\r\n"
             "help         : Print this information\r\n"
             "name         : Print the name of the device\r\n"
             "profile      : Print the benchmark's profile and the network\r\n"
             "timestamp    : Print microseconds since the start\r\n"
             "db load N    : Expect N bytes of input\r\n"
             "db HH[HH]*   : The next bytes of the input\r\n"
             "db print     : Print the input\r\n"
             "infer N [W=10]: N inferences after W others, timed\r\n"
             "results      : Print the first output as numbers, or its error\r\n"
             "output       : Print the bytes of all outputs\r\n"
             "cycles       : Print cycles of the last inference: all, the NPU's\r\n",
             network()->name);
}

static void execute(char *command) {
    char *word;
    rest = command;
    word = next();
    if (!word) return;
    if (!strcmp(word, "name")) tw_print("m-name-dut-[tilewright]\r\n");
    else if (!strcmp(word, "timestamp")) timestamp();
    else if (!strcmp(word, "profile"))
        tw_print("m-profile-[ULPMark for tinyML Firmware V0.0.1]\r\nm-model-[%s]\r\n", TW_MODEL);
    else if (!strcmp(word, "help")) help();
    else if (!strcmp(word, "db")) db();
    else if (!strcmp(word, "infer")) infer();
    else if (!strcmp(word, "results")) results();
    else if (!strcmp(word, "output")) output();
    else if (!strcmp(word, "cycles")) tw_print("m-cycles-%u-%u\r\n", lap_ticks, npu_cycles);
    else tw_print("e-[Unknown command: %s]\r\n", word);
    tw_print("m-ready\r\n");
}

int main(void) {
    static char command[COMMAND + 1];
    uint32_t length = 0;
    load();
    tw_board_leds(READY_LED);
    tw_print("m-timestamp-mode-performance\r\n");
    timestamp();
    tw_print("m-init-done\r\nm-ready\r\n");
    for (;;) {
        int byte = tw_board_receive();
        if (byte < 0) continue;
        if (byte == '%') {
            command[length < COMMAND ? length : COMMAND] = 0;
            if (tw_board_lost() || length > COMMAND)
                tw_print("e-[The command has more than %u characters, or came too fast]\r\nm-ready\r\n", (uint32_t)COMMAND);
            else execute(command);
            length = 0;
        } else if (byte != '\r' && byte != '\n') {
            if (length < COMMAND) command[length] = (char)byte;
            length += length <= COMMAND;
        }
    }
}
