// Multipliers of LUTs and carry chains, for ECP5.
//
// A bit of CCU2C adds two terms: S = P ^ CIN and COUT = P ? CIN : G, with P = INIT[{D, C, B, A}] and G = INIT[{B, A}].
// The terms are bits of products, so that a row of the multiplier costs no gates besides its adder.
//
// A has N bits, B has M <= N. U is A without its sign bit:
//   A * B = U * B[M-2:0]  -  (U & B[M-1]) << (M-1)  -  (B & A[N-1]) << (N-1)
// Rows 0 and 1 make the first sum; each later row adds N-1 bits to what is above the lowest bit of the sum before.
// x - y = ~(~x + y), so the row of B[M-1] gives the inverted difference n. The last row is ~n - y = ~n + ~y + 1: this 1
// is added in the first row, at the bit where row 0 has ended; no sum becomes longer by it.

(* techmap_celltype = "$mul" *)
module _multiplier_of_luts (A, B, Y);
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

	// sums[N*j +: N]: after row j, from bit j on. Its lowest bit is one of the product.
	wire [N*M-1:0] sums;
	localparam ADD_AND_AND = 16'h7888; // (A & B) + (C & D)
	localparam ADD_ONE_AND = 16'h0fff; // 1 + (C & D)
	localparam ADD_AND = 16'h5aaa; // A + (C & D)
	localparam ADD_AND_TO_INVERTED = 16'ha555; // ~A + (C & D)
	localparam ADD_INVERTED = 16'h6a05; // ~A + ~(B & C), D = 1

	assign product[0] = a[0] & b[0];
	\$__multiplier_row #(.WIDTH(N), .INIT({ADD_AND_AND, ADD_ONE_AND, {W-1{ADD_AND_AND}}})) first (
		.A({2'b00, a[W-1:1]}), .B({N{b[0]}}), .C({1'b0, a[W-1:0]}), .D({N{b[1]}}), .S(sums[N +: N])
	);
	genvar j;
	generate
		for (j = 2; j < M; j = j + 1) begin : row
			assign product[j-1] = sums[N*(j-1)];
			\$__multiplier_row #(.WIDTH(N), .INIT({N{j == M - 1 ? ADD_AND_TO_INVERTED : ADD_AND}})) add (
				.A({1'b0, sums[N*(j-1)+1 +: W]}), .B({N{1'b1}}), .C({1'b0, a[W-1:0]}), .D({N{b[j]}}), .S(sums[N*j +: N])
			);
		end
		for (j = M - 1; j < W; j = j + 1) begin : middle
			assign product[j] = ~sums[N*(M-1) + j-(M-1)];
		end
	endgenerate
	\$__multiplier_row #(.WIDTH(M + 1), .INIT({M+1{ADD_INVERTED}})) last (
		.A({sums[N*M-1], sums[N*M-1 -: M]}), .B({b[M-1], b}), .C({M+1{a[W]}}), .D({M+1{1'b1}}), .S(product[W +: M+1])
	);
endmodule

(* techmap_celltype = "$__multiplier_row" *)
module _row_of_multiplier (A, B, C, D, S);
	parameter WIDTH = 1;
	parameter [16*WIDTH-1:0] INIT = 0;

	(* force_downto *)
	input [WIDTH-1:0] A, B, C, D;
	(* force_downto *)
	output [WIDTH-1:0] S;

	localparam EVEN = (WIDTH + 1) / 2 * 2;
	wire [EVEN-1:0] a = A, b = B, c = C, d = D, s;
	wire [16*EVEN-1:0] init = INIT;
	wire [EVEN/2:0] carry;
	assign carry[0] = 1'b0;
	assign S = s;
	genvar i;
	generate
		for (i = 0; i < EVEN; i = i + 2) begin : pair
			CCU2C #(
				.INIT0(INIT[16*i +: 16]),
				.INIT1(i + 1 < WIDTH ? INIT[16*(i+1 < WIDTH ? i+1 : i) +: 16] : 16'h0000),
				.INJECT1_0("NO"),
				.INJECT1_1("NO")
			) adder (
				.CIN(carry[i/2]),
				.A0(a[i]), .B0(b[i]), .C0(c[i]), .D0(d[i]),
				.A1(a[i+1]), .B1(b[i+1]), .C1(c[i+1]), .D1(d[i+1]),
				.S0(s[i]), .S1(s[i+1]),
				.COUT(carry[i/2+1])
			);
		end
	endgenerate
endmodule
