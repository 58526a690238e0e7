// Block RAMs and the PLL of 7-series FPGAs as far as netlists of tilewright.fpga use them, from the vendor's guides
// (UG473, UG472): memories begin as zeros, a row that is written reads as it was, outputs have no second register.
module tw_ramb #(
    parameter integer BYTES = 2048,
    parameter integer LANES = 4,  // bytes of a row that both ports make together
    parameter RAM_MODE = "TDP",
    parameter integer READ_WIDTH_A = 0, READ_WIDTH_B = 0, WRITE_WIDTH_A = 0, WRITE_WIDTH_B = 0
) (
    input clka, clkb, ena, enb,
    input [15:0] addra, addrb,
    input [8*LANES-1:0] di, output reg [8*LANES-1:0] dout,
    input [LANES-1:0] dip, output reg [LANES-1:0] doutp,
    input [LANES/2-1:0] wea, input [LANES-1:0] web
);
    localparam HALF = LANES / 2;
    localparam SDP = RAM_MODE == "SDP";
    reg [7:0] data [0:BYTES-1];
    reg parity [0:BYTES-1];
    integer i, j;
    initial begin
        for (i = 0; i < BYTES; i = i + 1) begin data[i] = 0; parity[i] = 0; end
        dout = 0; doutp = 0;
    end
    // Bytes of a port, 0 where it has less than one: then `bits` of them.
    function integer lanes(input integer width); lanes = width / 9; endfunction
    wire [31:0] bytea = {19'b0, addra[15:3]} & (BYTES - 1), byteb = {19'b0, addrb[15:3]} & (BYTES - 1);
    generate
        if (SDP) begin : sdp
            wire [31:0] rowa = bytea & ~(lanes(READ_WIDTH_A) - 1), rowb = byteb & ~(lanes(WRITE_WIDTH_B) - 1);
            always @(posedge clka) if (ena)
                for (i = 0; i < lanes(READ_WIDTH_A); i = i + 1) begin
                    dout[8*i +: 8] <= data[rowa + i];
                    doutp[i] <= parity[rowa + i];
                end
            always @(posedge clkb) if (enb)
                for (j = 0; j < lanes(WRITE_WIDTH_B); j = j + 1) if (web[j]) begin
                    data[rowb + j] <= di[8*j +: 8];
                    parity[rowb + j] <= dip[j];
                end
        end else begin : tdp
            if (WRITE_WIDTH_A >= 9) begin : wa
                wire [31:0] row = bytea & ~(lanes(WRITE_WIDTH_A) - 1);
                always @(posedge clka) if (ena)
                    for (i = 0; i < lanes(WRITE_WIDTH_A); i = i + 1) if (wea[i]) begin
                        data[row + i] <= di[8*i +: 8];
                        parity[row + i] <= dip[i];
                    end
            end else if (WRITE_WIDTH_A > 0) begin : wa
                always @(posedge clka) if (ena && wea[0])
                    data[bytea][(addra[2:0] & ~(WRITE_WIDTH_A - 1)) +: WRITE_WIDTH_A] <= di[WRITE_WIDTH_A-1:0];
            end
            if (READ_WIDTH_B >= 9) begin : rb
                wire [31:0] row = byteb & ~(lanes(READ_WIDTH_B) - 1);
                always @(posedge clkb) if (enb)
                    for (j = 0; j < lanes(READ_WIDTH_B); j = j + 1) begin
                        dout[8*(HALF + j) +: 8] <= data[row + j];
                        doutp[HALF + j] <= parity[row + j];
                    end
            end else if (READ_WIDTH_B > 0) begin : rb
                always @(posedge clkb) if (enb)
                    dout[8*HALF +: READ_WIDTH_B] <= data[byteb][(addrb[2:0] & ~(READ_WIDTH_B - 1)) +: READ_WIDTH_B];
            end
        end
    endgenerate
endmodule

module RAMB18E1 #(
    parameter RAM_MODE = "TDP",
    parameter integer READ_WIDTH_A = 0, READ_WIDTH_B = 0, WRITE_WIDTH_A = 0, WRITE_WIDTH_B = 0
) (
    input CLKARDCLK, CLKBWRCLK, ENARDEN, ENBWREN, REGCEAREGCE, REGCEB,
    input RSTRAMARSTRAM, RSTRAMB, RSTREGARSTREG, RSTREGB,
    input [13:0] ADDRARDADDR, ADDRBWRADDR, input [15:0] DIADI, DIBDI, input [1:0] DIPADIP, DIPBDIP,
    input [1:0] WEA, input [3:0] WEBWE, output [15:0] DOADO, DOBDO, output [1:0] DOPADOP, DOPBDOP
);
    tw_ramb #(2048, 4, RAM_MODE, READ_WIDTH_A, READ_WIDTH_B, WRITE_WIDTH_A, WRITE_WIDTH_B) ram (
        CLKARDCLK, CLKBWRCLK, ENARDEN, ENBWREN, {2'b0, ADDRARDADDR}, {2'b0, ADDRBWRADDR},
        {DIBDI, DIADI}, {DOBDO, DOADO}, {DIPBDIP, DIPADIP}, {DOPBDOP, DOPADOP}, WEA, WEBWE);
endmodule

module RAMB36E1 #(
    parameter RAM_MODE = "TDP",
    parameter integer READ_WIDTH_A = 0, READ_WIDTH_B = 0, WRITE_WIDTH_A = 0, WRITE_WIDTH_B = 0
) (
    input CLKARDCLK, CLKBWRCLK, ENARDEN, ENBWREN, REGCEAREGCE, REGCEB,
    input RSTRAMARSTRAM, RSTRAMB, RSTREGARSTREG, RSTREGB,
    input [15:0] ADDRARDADDR, ADDRBWRADDR, input [31:0] DIADI, DIBDI, input [3:0] DIPADIP, DIPBDIP,
    input [3:0] WEA, input [7:0] WEBWE, output [31:0] DOADO, DOBDO, output [3:0] DOPADOP, DOPBDOP
);
    tw_ramb #(4096, 8, RAM_MODE, READ_WIDTH_A, READ_WIDTH_B, WRITE_WIDTH_A, WRITE_WIDTH_B) ram (
        CLKARDCLK, CLKBWRCLK, ENARDEN, ENBWREN, {1'b0, ADDRARDADDR[14:0]}, {1'b0, ADDRBWRADDR[14:0]},
        {DIBDI, DIADI}, {DOBDO, DOADO}, {DIPBDIP, DIPADIP}, {DOPBDOP, DOPADOP}, WEA, WEBWE);
endmodule

// Cycles are those of the output.
module PLLE2_ADV (
    input CLKIN1, CLKIN2, CLKINSEL, CLKFBIN, RST, PWRDWN, DCLK, DEN, DWE, input [15:0] DI, input [6:0] DADDR,
    output CLKFBOUT, CLKOUT0, CLKOUT1, CLKOUT2, CLKOUT3, CLKOUT4, CLKOUT5, LOCKED, DRDY, output [15:0] DO
);
    assign CLKOUT0 = CLKIN1, LOCKED = !RST && !PWRDWN;
endmodule
