// Adders and multipliers of carry chains, for ECP5.
//
// A bit of CCU2C adds two terms: S = P ^ CIN and COUT = P ? CIN : G, with P = INIT[{D, C, B, A}] and G = INIT[{B, A}].
// nextpnr spends a cell on a CIN that is a constant, and another on the last COUT where it has a net. So the first bit
// of a chain gives the constant (P = 0), its CIN and the last COUT are open.

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
	// A + B, or A + ~B; C = D = 1
	\$__carry_chain #(.WIDTH(Y_WIDTH), .INIT({Y_WIDTH{SUBTRACT ? 16'h900a : 16'h600a}}), .CI(SUBTRACT)) chain (
		.A(a), .B(b), .C({Y_WIDTH{1'b1}}), .D({Y_WIDTH{1'b1}}), .S(Y)
	);
endmodule

// A has N bits, B has M <= N. U is A without its sign bit:
//   A * B = U * B[M-2:0]  -  (U & B[M-1]) << (M-1)  -  (B & A[N-1]) << (N-1)
// Rows 0 and 1 make the first sum; each later row adds N-1 bits to what is above the lowest bit of the sum before.
// x - y = ~(~x + y), so the row of B[M-1] gives the inverted difference n. The last row is ~n - y = ~n + ~y + 1: this 1
// is added in the first row, at the bit where row 0 has ended; no sum becomes longer by it.
//
// The terms are bits of products, so that a row costs no gates besides its adder. All rows are one chain: at the last bit
// of a row, where the carry comes out, both terms are 0, so that the next row begins without a carry.
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

	// Factors are made signed, and long enough to have a row of each kind.
	localparam SIGNED = A_SIGNED && B_SIGNED;
	localparam A_LENGTH = SIGNED ? A_WIDTH : A_WIDTH + 1;
	localparam B_LENGTH = SIGNED ? B_WIDTH : B_WIDTH + 1;
	localparam LONGER = A_LENGTH > B_LENGTH ? A_LENGTH : B_LENGTH;
	localparam SHORTER = A_LENGTH > B_LENGTH ? B_LENGTH : A_LENGTH;
	localparam N = LONGER > 3 ? LONGER : 3;
	localparam M = SHORTER > 3 ? SHORTER : 3;
	localparam W = N - 1;

	wire [N-1:0] a_long, b_long;
	\$pos #(.A_SIGNED(SIGNED), .A_WIDTH(A_WIDTH), .Y_WIDTH(N)) a_conv (.A(A), .Y(a_long));
	\$pos #(.A_SIGNED(SIGNED), .A_WIDTH(B_WIDTH), .Y_WIDTH(N)) b_conv (.A(B), .Y(b_long));
	wire [N-1:0] a = A_LENGTH >= B_LENGTH ? a_long : b_long;
	wire [M-1:0] b = A_LENGTH >= B_LENGTH ? b_long : a_long;
	wire [N+M-1:0] product;
	\$pos #(.A_SIGNED(SIGNED), .A_WIDTH(N + M), .Y_WIDTH(Y_WIDTH)) y_conv (.A(product), .Y(Y));

	localparam ADD_AND_AND = 16'h7888; // (A & B) + (C & D)
	localparam ADD_ONE_AND = 16'h0fff; // 1 + (C & D)
	localparam ADD_AND = 16'h5aaa; // A + (C & D)
	localparam ADD_AND_TO_INVERTED = 16'ha555; // ~A + (C & D)
	localparam ADD_INVERTED = 16'h6a05; // ~A + ~(B & C), D = 1
	localparam ADD_SIGN = 16'h950a; // A + ~(B & C), D = 1: the carry of the row before is its sign, not inverted
	localparam CARRY = 16'h0000; // 0 + 0
	// sums[N*(j-1) +: N]: after row j, from bit j on. Its lowest bit is one of the product.
	localparam ROWS = N * (M - 1);
	wire [ROWS-1:0] sums, ra, rb, rc, rd;
	assign product[0] = a[0] & b[0];
	assign ra[N-1:0] = {2'b11, a[W-1:1]};
	assign rb[N-1:0] = {2'b11, {W-1{b[0]}}};
	assign rc[N-1:0] = {1'b1, a[W-1:0]};
	assign rd[N-1:0] = {1'b1, {W{b[1]}}};
	genvar j;
	generate
		for (j = 2; j < M; j = j + 1) begin : row
			assign product[j-1] = sums[N*(j-2)];
			assign ra[N*(j-1) +: N] = {1'b1, sums[N*(j-2)+1 +: W]};
			assign rb[N*(j-1) +: N] = {N{1'b1}};
			assign rc[N*(j-1) +: N] = {1'b1, a[W-1:0]};
			assign rd[N*(j-1) +: N] = {1'b1, {W{b[j]}}};
		end
		for (j = M - 1; j < W; j = j + 1) begin : middle
			assign product[j] = ~sums[N*(M-2) + j-(M-1)];
		end
	endgenerate
	\$__carry_chain #(
		.WIDTH(ROWS + M + 1),
		.INIT({
			{2{ADD_SIGN}}, {M-1{ADD_INVERTED}},
			CARRY, {W{ADD_AND_TO_INVERTED}},
			{M-3{CARRY, {W{ADD_AND}}}},
			CARRY, ADD_ONE_AND, {W-1{ADD_AND_AND}}
		})
	) chain (
		.A({sums[ROWS-1], sums[ROWS-1 -: M], ra}),
		.B({b[M-1], b, rb}),
		.C({{M+1{a[W]}}, rc}),
		.D({{M+1{1'b1}}, rd}),
		.S({product[W +: M+1], sums})
	);
endmodule
