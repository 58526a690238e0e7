// An SDR SDRAM as its data sheets describe it, for simulation: it stores words and checks every command.
//
// Times come in picoseconds and are compared with clock cycles since; nothing here knows the cycles of a controller. The
// first violation is kept in `fault` until the end:
//    1 command before the time after power-on     9 PRECHARGE: tRAS
//    2 LOAD MODE out of place                    10 PRECHARGE: tWR
//    3 mode that is not one of this model        11 REFRESH: an open row, or tRP
//    4 ACTIVE before initialisation              12 refreshes are missing
//    5 ACTIVE: the bank has an open row          13 REFRESH or LOAD MODE too soon before this command (tRFC, tMRD)
//    6 ACTIVE: tRP or tRC                        14 both sides drive the data bus
//    7 ACTIVE: tRRD                              15 READ or WRITE in a bank without an open row, or before tRCD
//    8 PRECHARGE cuts words being read           16 data to write that nobody drives
module sdram_chip #(
    parameter integer WORD_BITS = 16, BURST = 2,  // bits of a word, words of a burst: 1 or 2
    parameter integer BANK_BITS = 2, ROW_BITS = 13, COLUMN_BITS = 9,
    parameter integer CLOCK_PS = 10000,
    parameter integer RCD_PS = 20000, RP_PS = 20000, RC_PS = 66000, RAS_PS = 44000, RRD_PS = 15000, WR_PS = 15000,
    parameter integer RFC_PS = 66000, HZ_PS = 6000, START_PS = 200000000, REFRESH_PS = 7812500,
    parameter integer START_REFRESHES = 8, MODE_CYCLES = 2,
    localparam integer BYTES = WORD_BITS / 8
) (
    input clk, power,  // 0 = as before power-on
    input cke, cs_n, ras_n, cas_n, we_n,
    input [BANK_BITS-1:0] ba,
    input [ROW_BITS-1:0] a,
    input [BYTES-1:0] dqm,
    input [WORD_BITS-1:0] dq_in,
    input dq_in_driven,
    output reg [WORD_BITS-1:0] dq_out,
    output reg dq_out_driven,
    output reg [7:0] fault
);
    localparam BANKS = 1 << BANK_BITS;
    localparam MISSED = 8;  // refreshes that may be put off

    reg [WORD_BITS-1:0] words [0:(1 << (BANK_BITS + ROW_BITS + COLUMN_BITS)) - 1];
    reg [63:0] now;
    reg [63:0] activated [0:BANKS-1], precharged [0:BANKS-1], written [0:BANKS-1], last_read [0:BANKS-1];
    reg [63:0] any_activated, refreshed, moded;
    reg [BANKS-1:0] is_open;
    reg [ROW_BITS-1:0] row [0:BANKS-1];
    reg initialised, all_closed;
    reg [7:0] refreshes;
    reg signed [63:0] debt_ps;
    reg [2:0] latency;
    reg [BYTES-1:0] mask_before;  // DQM acts on what is read at the pins two cycles later

    // Of a burst of two: its second word, which comes in the cycle after; words read, on their way to the pins.
    reg second, second_write;
    reg [BANK_BITS-1:0] second_bank;
    reg [COLUMN_BITS-1:0] second_column;
    reg [WORD_BITS-1:0] passing [0:2];
    reg [2:0] passing_driven;
    reg released;  // the bus was let go in the cycle before

    wire command = cke && !cs_n;
    wire [2:0] code = {ras_n, cas_n, we_n};
    wire is_mode = command && code == 3'b000, is_refresh = command && code == 3'b001;
    wire is_precharge = command && code == 3'b010, is_active = command && code == 3'b011;
    wire is_write = command && code == 3'b100, is_read = command && code == 3'b101;
    wire [BANKS-1:0] closed_now = a[10] ? {BANKS{1'b1}} : (1'b1 << ba);
    integer i;

    task clear;
        begin
            now = 1; fault = 0; is_open = 0; initialised = 0; all_closed = 0; refreshes = 0; debt_ps = 0; latency = 0;
            second = 0; second_write = 0; second_bank = 0; second_column = 0; passing_driven = 0; mask_before = 0;
            any_activated = 0; refreshed = 0; moded = 0; dq_out = 0; dq_out_driven = 0;
            released = 0;
            for (i = 0; i < BANKS; i = i + 1) begin
                activated[i] = 0; precharged[i] = 0; written[i] = 0; last_read[i] = 0; row[i] = 0;
            end
            for (i = 0; i < 3; i = i + 1) passing[i] = 0;
        end
    endtask

    initial clear;

    // Whether fewer than `ps` passed since cycle `since`; 0 = never.
    function too_soon(input [63:0] since, input [63:0] ps);
        too_soon = since != 0 && (now - since) * CLOCK_PS < ps;
    endfunction

    task violation(input [7:0] number);
        if (fault == 0) begin
            fault = number;
            $display("sdram_chip: violation %0d in cycle %0d", number, now);
        end
    endtask

    task move(input writes, input [BANK_BITS-1:0] bank, input [COLUMN_BITS-1:0] column);
        if (writes) begin
            if (!dq_in_driven) violation(16);
            for (i = 0; i < BYTES; i = i + 1)
                if (!dqm[i]) words[{row[bank], bank, column}][8*i +: 8] = dq_in[8*i +: 8];
            written[bank] = now;
        end else begin
            passing[latency - 2] = words[{row[bank], bank, column}];
            passing_driven[latency - 2] = 1;
            last_read[bank] = now;
        end
    endtask

    always @(posedge clk) if (!power) clear; else begin
        debt_ps = debt_ps + CLOCK_PS;
        if (command && code != 3'b111 && code != 3'b110) begin
            if (now * CLOCK_PS < START_PS) violation(1);
            if (too_soon(refreshed, RFC_PS) || (moded != 0 && now - moded < MODE_CYCLES)) violation(13);
        end
        if (command && code == 3'b110) violation(3);  // BURST TERMINATE has no use with such bursts

        // Words read reach the pins, without the bytes DQM takes away. What nobody drives looks like noise.
        if (dq_in_driven && (dq_out_driven || passing_driven[0] || (released && 2 * HZ_PS > CLOCK_PS))) violation(14);
        released = dq_out_driven && !passing_driven[0];
        dq_out_driven = passing_driven[0];
        for (i = 0; i < BYTES; i = i + 1)
            dq_out[8*i +: 8] = passing_driven[0] && !mask_before[i] ? passing[0][8*i +: 8] : now[7:0] ^ {8{i[0]}} ^ 8'hff;
        passing_driven = passing_driven >> 1;
        passing[0] = passing[1];
        passing[1] = passing[2];
        mask_before = dqm;

        if (is_read || is_write) begin
            if (!is_open[ba] || too_soon(activated[ba], RCD_PS)) violation(15);
            if (a[10]) violation(3);  // with auto precharge
            move(is_write, ba, a[COLUMN_BITS-1:0]);
            second = BURST == 2;
            second_write = is_write;
            second_bank = ba;
            second_column = {a[COLUMN_BITS-1:1], ~a[0]};
        end else if (second) begin
            move(second_write, second_bank, second_column);
            second = 0;
        end

        if (is_precharge) begin
            for (i = 0; i < BANKS; i = i + 1) if (closed_now[i] && is_open[i]) begin
                if (too_soon(activated[i], RAS_PS)) violation(9);
                if (too_soon(written[i], WR_PS)) violation(10);
                if (last_read[i] == now) violation(8);
                precharged[i] = now;
            end
            is_open = is_open & ~closed_now;
            if (a[10]) begin
                if (!all_closed) for (i = 0; i < BANKS; i = i + 1) precharged[i] = now;
                all_closed = 1;
            end
        end
        if (is_active) begin
            if (!initialised) violation(4);
            if (is_open[ba]) violation(5);
            if (too_soon(precharged[ba], RP_PS) || too_soon(activated[ba], RC_PS)) violation(6);
            if (too_soon(any_activated, RRD_PS)) violation(7);
            if (debt_ps > MISSED * REFRESH_PS) violation(12);
            is_open[ba] = 1; row[ba] = a; activated[ba] = now; any_activated = now; all_closed = 0;
        end
        if (is_refresh || is_mode) begin
            if (is_open != 0 || (!initialised && !all_closed)) violation(11);
            for (i = 0; i < BANKS; i = i + 1) if (too_soon(precharged[i], RP_PS)) violation(11);
        end
        if (is_refresh) begin
            refreshed = now;
            if (refreshes != 8'hff) refreshes = refreshes + 1;
            if (debt_ps > -MISSED * REFRESH_PS) debt_ps = debt_ps - REFRESH_PS;
        end
        if (is_mode) begin
            if (refreshes < START_REFRESHES) violation(2);
            // Sequential bursts for reads and writes.
            if (ba != 0 || a[ROW_BITS-1:7] != 0 || a[3:0] != BURST - 1 || (a[6:4] != 2 && a[6:4] != 3)) violation(3);
            latency = a[6:4]; initialised = 1; moded = now; debt_ps = 0;
        end
        now = now + 1;
    end
endmodule
