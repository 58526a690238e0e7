/* The boot program: takes the image from the flash memory, checks it, and starts it.
 *
 * It is part of the bitstream. What is wrong with an image is said in one line, again for every command that comes. */
#include "board.h"
#include "console.h"
#include "tilewright_image.h"
#include "tilewright_npu_registers.h"
#include "tilewright_soc.h"

static uint32_t word(uint32_t address) { return *(volatile uint32_t *)(uintptr_t)address; }

/* CRC-32 as zlib's, by bytes. */
static uint32_t table[256];

static void make_table(void) {
    uint32_t i, bit;
    for (i = 0; i < 256; i++)
        for (table[i] = i, bit = 0; bit < 8; bit++) table[i] = table[i] >> 1 ^ (table[i] & 1 ? 0xedb88320u : 0);
}

static uint32_t check(uint32_t crc, uint32_t value) {
    crc ^= value;
    crc = crc >> 8 ^ table[crc & 255];
    crc = crc >> 8 ^ table[crc & 255];
    crc = crc >> 8 ^ table[crc & 255];
    return crc >> 8 ^ table[crc & 255];
}

int main(void) {
    uint32_t image = TW_SOC_FLASH + TW_IMAGE_OFFSET, payload = image + TW_IMAGE_HEADER_BYTES;
    uint32_t bytes, needed, low, high, at, crc = ~0u;
    make_table();
    (void)word(image + 0x1000); /* for nothing: after configuration the pin may swallow the first edges of the clock */
    if (word(image + TW_IMAGE_MAGIC) != TW_IMAGE_MAGIC_VALUE)
        tw_stop("e-[no image in the flash memory at 0x%x]\r\n", TW_IMAGE_OFFSET, 0, 0, 0);
    for (at = 0; at < TW_IMAGE_HEADER_CHECK; at += 4) crc = check(crc, word(image + at));
    if (~crc != word(image + TW_IMAGE_HEADER_CHECK)) tw_stop("e-[the image's header is damaged]\r\n", 0, 0, 0, 0);
    bytes = word(image + TW_IMAGE_BYTES);
    needed = word(image + TW_IMAGE_NEEDED);
    if (needed > tw_board_memory() || bytes > needed)
        tw_stop("e-[the image needs %u bytes of memory, there are %u]\r\n", needed, tw_board_memory(), 0, 0);
    low = word(image + TW_IMAGE_FINGERPRINT_LO);
    high = word(image + TW_IMAGE_FINGERPRINT_HI);
    if ((low || high) && (low != word(TW_SOC_NPU + TW_NPU_REG_FINGERPRINT_LO) ||
                          high != word(TW_SOC_NPU + TW_NPU_REG_FINGERPRINT_HI)))
        tw_stop("e-[the image is for configuration %x%x, the bitstream has %x%x]\r\n", high, low,
                word(TW_SOC_NPU + TW_NPU_REG_FINGERPRINT_HI), word(TW_SOC_NPU + TW_NPU_REG_FINGERPRINT_LO));
    for (crc = ~0u, at = 0; at < bytes; at += 4) {
        volatile uint32_t *to = (volatile uint32_t *)(uintptr_t)(TW_IMAGE_TO + at);
        *to = word(payload + at);
        crc = check(crc, *to); /* of what the memory kept */
    }
    if (~crc != word(image + TW_IMAGE_CHECK))
        tw_stop("e-[the image is damaged, in the flash memory or in RAM]\r\n", 0, 0, 0, 0);
    __asm__ volatile("fence.i" ::: "memory");
    ((void (*)(void))(uintptr_t)word(image + TW_IMAGE_ENTRY))();
    return 0;
}
