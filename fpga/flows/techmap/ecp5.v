// Adders and multipliers of carry chains, for ECP5.
//
// A bit of CCU2C adds two terms: S = P ^ CIN and COUT = P ? CIN : G, with P = INIT[{D, C, B, A}] and G = INIT[{B, A}].
// nextpnr spends a cell on a CIN that is a constant, and another on the last COUT where it has a net. So the first bit
// of a chain gives the constant (P = 0), its CIN and the last COUT are open.

// INIT of a bit with C = D = 1: A + B, A + ~B.
`define ADD 16'h600a
`define ADD_INVERTED 16'h900a

// WIDTH bits with 16 bits of INIT each; CI is the carry into the lowest.
(* techmap_celltype = "$__carry_chain" *)
module _carry_chain (A, B, C, D, S);
	parameter WIDTH = 1;
	parameter [16*WIDTH-1:0] INIT = 0;
	parameter CI = 0;

	(* force_downto *)
	input [WIDTH-1:0] A, B, C, D;
	(* force_downto *)
	output [WIDTH-1:0] S;

	localparam CELLS = (WIDTH + 2) / 2;
	localparam LENGTH = 2 * CELLS;
	localparam [15:0] FIRST = CI ? 16'h000f : 16'h0000; // C = D = 1
	localparam [16*LENGTH-1:0] INITS = {16'h0000, INIT, FIRST};
	wire [LENGTH-1:0] a = {1'b1, A, 1'b1}, b = {1'b1, B, 1'b1}, c = {1'b1, C, 1'b1}, d = {1'b1, D, 1'b1}, s;
	wire [CELLS-1:0] carry;
	assign S = s[LENGTH-1:1];
	genvar i;
	generate
		for (i = 0; i < CELLS; i = i + 1) begin : pair
			localparam [15:0] INIT0 = INITS[32*i +: 16];
			localparam [15:0] INIT1 = INITS[32*i+16 +: 16];
			if (CELLS == 1)
				CCU2C #(.INIT0(INIT0), .INIT1(INIT1), .INJECT1_0("NO"), .INJECT1_1("NO")) only (
					.A0(a[2*i]), .B0(b[2*i]), .C0(c[2*i]), .D0(d[2*i]), .S0(s[2*i]),
					.A1(a[2*i+1]), .B1(b[2*i+1]), .C1(c[2*i+1]), .D1(d[2*i+1]), .S1(s[2*i+1])
				);
			else if (i == 0)
				CCU2C #(.INIT0(INIT0), .INIT1(INIT1), .INJECT1_0("NO"), .INJECT1_1("NO")) first (
					.A0(a[2*i]), .B0(b[2*i]), .C0(c[2*i]), .D0(d[2*i]), .S0(s[2*i]),
					.A1(a[2*i+1]), .B1(b[2*i+1]), .C1(c[2*i+1]), .D1(d[2*i+1]), .S1(s[2*i+1]), .COUT(carry[i])
				);
			else if (i == CELLS - 1)
				CCU2C #(.INIT0(INIT0), .INIT1(INIT1), .INJECT1_0("NO"), .INJECT1_1("NO")) last (
					.A0(a[2*i]), .B0(b[2*i]), .C0(c[2*i]), .D0(d[2*i]), .S0(s[2*i]),
					.A1(a[2*i+1]), .B1(b[2*i+1]), .C1(c[2*i+1]), .D1(d[2*i+1]), .S1(s[2*i+1]), .CIN(carry[i-1])
				);
			else
				CCU2C #(.INIT0(INIT0), .INIT1(INIT1), .INJECT1_0("NO"), .INJECT1_1("NO")) next (
					.A0(a[2*i]), .B0(b[2*i]), .C0(c[2*i]), .D0(d[2*i]), .S0(s[2*i]),
					.A1(a[2*i+1]), .B1(b[2*i+1]), .C1(c[2*i+1]), .D1(d[2*i+1]), .S1(s[2*i+1]),
					.CIN(carry[i-1]), .COUT(carry[i])
				);
		end
	endgenerate
endmodule

(* techmap_celltype = "$add $sub" *)
module _adder (A, B, Y);
	parameter A_SIGNED = 0;
	parameter B_SIGNED = 0;
	parameter A_WIDTH = 1;
	parameter B_WIDTH = 1;
	parameter Y_WIDTH = 1;
	parameter _TECHMAP_CELLTYPE_ = "";

	(* force_downto *)
	input [A_WIDTH-1:0] A;
	(* force_downto *)
	input [B_WIDTH-1:0] B;
	(* force_downto *)
	output [Y_WIDTH-1:0] Y;

	wire _TECHMAP_FAIL_ = Y_WIDTH <= 4; // as in yosys' own map: gates
	localparam SUBTRACT = _TECHMAP_CELLTYPE_ == "$sub";
	localparam SIGNED = A_SIGNED && B_SIGNED;
	wire [Y_WIDTH-1:0] a, b;
	\$pos #(.A_SIGNED(SIGNED), .A_WIDTH(A_WIDTH), .Y_WIDTH(Y_WIDTH)) a_conv (.A(A), .Y(a));
	\$pos #(.A_SIGNED(SIGNED), .A_WIDTH(B_WIDTH), .Y_WIDTH(Y_WIDTH)) b_conv (.A(B), .Y(b));
	\$__carry_chain #(.WIDTH(Y_WIDTH), .INIT({Y_WIDTH{SUBTRACT ? `ADD_INVERTED : `ADD}}), .CI(SUBTRACT)) chain (
		.A(a), .B(b), .C({Y_WIDTH{1'b1}}), .D({Y_WIDTH{1'b1}}), .S(Y)
	);
endmodule

// Factors are made signed, B has an even number of bits, not more than A. Two bits of B are a chain (`pair`), and what the
// pairs give is added as a tree: a product is ready after three or four chains, not after one for every bit of B.
(* techmap_celltype = "$mul" *)
module _multiplier (A, B, Y);
	parameter A_SIGNED = 0;
	parameter B_SIGNED = 0;
	parameter A_WIDTH = 1;
	parameter B_WIDTH = 1;
	parameter Y_WIDTH = 1;

	(* force_downto *)
	input [A_WIDTH-1:0] A;
	(* force_downto *)
	input [B_WIDTH-1:0] B;
	(* force_downto *)
	output [Y_WIDTH-1:0] Y;

	localparam SIGNED = A_SIGNED && B_SIGNED;
	localparam A_LENGTH = SIGNED ? A_WIDTH : A_WIDTH + 1;
	localparam B_LENGTH = SIGNED ? B_WIDTH : B_WIDTH + 1;
	localparam SHORTER = A_LENGTH > B_LENGTH ? B_LENGTH : A_LENGTH;
	localparam PAIRS = (SHORTER + 1) / 2;
	localparam LONGER = A_LENGTH > B_LENGTH ? A_LENGTH : B_LENGTH;
	localparam N = LONGER > 2 * PAIRS ? LONGER : 2 * PAIRS;

	wire [N-1:0] a_long, b_long;
	\$pos #(.A_SIGNED(SIGNED), .A_WIDTH(A_WIDTH), .Y_WIDTH(N)) a_conv (.A(A), .Y(a_long));
	\$pos #(.A_SIGNED(SIGNED), .A_WIDTH(B_WIDTH), .Y_WIDTH(N)) b_conv (.A(B), .Y(b_long));
	wire [N-1:0] a = A_LENGTH >= B_LENGTH ? a_long : b_long;
	wire [N-1:0] b = A_LENGTH >= B_LENGTH ? b_long : a_long;
	wire [N+2*PAIRS-1:0] found;
	wire [N+2*PAIRS-1:0] product = PAIRS == 1 ? ~found : found;
	\$pos #(.A_SIGNED(1), .A_WIDTH(N + 2 * PAIRS), .Y_WIDTH(Y_WIDTH)) y_conv (.A(product), .Y(Y));
	\$__product_tree #(.N(N), .PAIRS(PAIRS), .LAST(1)) tree (.A(a), .B(b[2*PAIRS-1:0]), .S(found));
endmodule

// A times B, which has a sign bit if it holds the last bits of the factor; S is signed. The last pair gives its difference
// inverted, x - y = ~(~x + y), which costs nothing in the chain that adds it.
(* techmap_celltype = "$__product_tree" *)
module _product_tree (A, B, S);
	parameter N = 1;
	parameter PAIRS = 1;
	parameter LAST = 0;

	(* force_downto *)
	input [N-1:0] A;
	(* force_downto *)
	input [2*PAIRS-1:0] B;
	(* force_downto *)
	output [N+2*PAIRS-1:0] S;

	localparam ADD_AND_AND = 16'h7888; // (A & B) + (C & D)
	localparam ADD_AND_TO_INVERTED = 16'h8777; // ~(A & B) + (C & D)
	localparam LOW = (PAIRS + 1) / 2;
	localparam HIGH = PAIRS - LOW;
	generate
		if (PAIRS == 1)
			\$__carry_chain #(.WIDTH(N + 2), .INIT({N+2{LAST ? ADD_AND_TO_INVERTED : ADD_AND_AND}})) pair (
				.A({{2{A[N-1]}}, A}), .B({N+2{B[0]}}), .C({A[N-1], A, 1'b0}), .D({N+2{B[1]}}), .S(S)
			);
		else begin : halves
			wire [N+2*LOW-1:0] low;
			wire [N+2*HIGH-1:0] high;
			\$__product_tree #(.N(N), .PAIRS(LOW), .LAST(0)) low_half (.A(A), .B(B[2*LOW-1:0]), .S(low));
			\$__product_tree #(.N(N), .PAIRS(HIGH), .LAST(LAST)) high_half (.A(A), .B(B[2*PAIRS-1:2*LOW]), .S(high));
			assign S[2*LOW-1:0] = low[2*LOW-1:0];
			\$__carry_chain #(.WIDTH(N + 2 * HIGH), .INIT({N+2*HIGH{LAST && HIGH == 1 ? `ADD_INVERTED : `ADD}})) sum (
				.A({{2*HIGH{low[N+2*LOW-1]}}, low[N+2*LOW-1:2*LOW]}), .B(high),
				.C({N+2*HIGH{1'b1}}), .D({N+2*HIGH{1'b1}}), .S(S[N+2*PAIRS-1:2*LOW])
			);
		end
	endgenerate
endmodule
