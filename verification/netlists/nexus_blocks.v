// Block RAMs of Nexus FPGAs as far as netlists of tilewright.fpga use them, from Lattice's memory guide (FPGA-TN-02094):
// one clock, memories begin as zeros, outputs have no second register and are not reset.
module PDPSC16K #(
    parameter DATA_WIDTH_W = "X36", parameter DATA_WIDTH_R = "X36"
) (
    input CLK, CEW, CER, RST, input [2:0] CSW, CSR, input [13:0] ADW, ADR, input [35:0] DI, output reg [35:0] DO
);
    function integer bits(input [23:0] width);
        bits = width == "X36" ? 36 : width == "X18" ? 18 : width == "X9" ? 9 : width == "X4" ? 4 : width == "X2" ? 2 : 1;
    endfunction
    localparam integer WIDE = bits(DATA_WIDTH_W), READ = bits(DATA_WIDTH_R);
    // Nine bits of a byte; a port of 4 bits and fewer has no ninth.
    reg [8:0] bytes [0:2047];
    integer i, j;
    initial begin
        for (i = 0; i < 2048; i = i + 1) bytes[i] = 0;
        DO = 0;
    end
    wire [31:0] roww = {21'b0, ADW[13:3]} & ~(WIDE / 9 - (WIDE >= 9)), rowr = {21'b0, ADR[13:3]} & ~(READ / 9 - (READ >= 9));
    // Low bits of the address of a wide row enable its bytes.
    wire [3:0] enabled = WIDE == 36 ? ADW[3:0] : WIDE == 18 ? {2'b0, ADW[1:0]} : 4'b1;
    always @(posedge CLK) begin
        if (CEW && &CSW) begin
            if (WIDE >= 9) begin
                for (i = 0; i < WIDE / 9; i = i + 1) if (enabled[i]) bytes[roww + i] <= DI[9*i +: 9];
            end else bytes[roww][({29'b0, ADW[2:0]} & ~(WIDE - 1)) +: WIDE] <= DI[WIDE-1:0];
        end
        if (CER && &CSR) begin
            if (READ >= 9) begin
                for (j = 0; j < READ / 9; j = j + 1) DO[9*j +: 9] <= bytes[rowr + j];
            end else DO[READ-1:0] <= bytes[rowr][({29'b0, ADR[2:0]} & ~(READ - 1)) +: READ];
        end
    end
endmodule

module DPSC512K (
    input CLK, WEA, CEA, RSTA, CSA, WEB, CEB, RSTB, CSB, input [13:0] ADA, ADB, input [3:0] BENA_N, BENB_N,
    input [31:0] DIA, DIB, output reg [31:0] DOA, DOB
);
    reg [31:0] rows [0:16383];
    integer i;
    initial begin
        for (i = 0; i < 16384; i = i + 1) rows[i] = 0;
        DOA = 0; DOB = 0;
    end
    always @(posedge CLK) begin
        if (CEA && CSA) begin
            if (WEA) begin
                for (i = 0; i < 4; i = i + 1) if (!BENA_N[i]) rows[ADA][8*i +: 8] <= DIA[8*i +: 8];
            end else DOA <= rows[ADA];
        end
        if (CEB && CSB) begin
            if (WEB) begin
                for (i = 0; i < 4; i = i + 1) if (!BENB_N[i]) rows[ADB][8*i +: 8] <= DIB[8*i +: 8];
            end else DOB <= rows[ADB];
        end
    end
endmodule
