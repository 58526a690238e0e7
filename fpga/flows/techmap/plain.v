// Adders and multipliers of LUTs, for any family.

// Every adder a carry chain of its own. Yosys would make compressors (two LUTs a bit for each) of sums of three terms and
// more; a chain takes one LUT a bit.
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

	localparam SIGNED = A_SIGNED && B_SIGNED;
	wire subtract = _TECHMAP_CELLTYPE_ == "$sub";
	(* force_downto *)
	wire [Y_WIDTH-1:0] X, CO;
	\$alu #(
		.A_SIGNED(SIGNED), .B_SIGNED(SIGNED), .A_WIDTH(A_WIDTH), .B_WIDTH(B_WIDTH), .Y_WIDTH(Y_WIDTH)
	) chain (.A(A), .B(B), .BI(subtract), .CI(subtract), .Y(Y), .X(X), .CO(CO));
endmodule

// A row of adders for every bit of the narrower factor.
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

	// Both factors are made signed.
	localparam SIGNED = A_SIGNED && B_SIGNED;
	localparam A_LENGTH = SIGNED ? A_WIDTH : A_WIDTH + 1;
	localparam B_LENGTH = SIGNED ? B_WIDTH : B_WIDTH + 1;
	localparam N = A_LENGTH > B_LENGTH ? A_LENGTH : B_LENGTH;
	localparam M = A_LENGTH > B_LENGTH ? B_LENGTH : A_LENGTH;

	wire signed [N-1:0] a_long, b_long;
	\$pos #(.A_SIGNED(SIGNED), .A_WIDTH(A_WIDTH), .Y_WIDTH(N)) a_conv (.A(A), .Y(a_long));
	\$pos #(.A_SIGNED(SIGNED), .A_WIDTH(B_WIDTH), .Y_WIDTH(N)) b_conv (.A(B), .Y(b_long));
	wire signed [N-1:0] a = A_LENGTH >= B_LENGTH ? a_long : b_long;
	wire [M-1:0] b = A_LENGTH >= B_LENGTH ? b_long : a_long;
	wire [N+M-1:0] product;
	\$pos #(.A_SIGNED(SIGNED), .A_WIDTH(N + M), .Y_WIDTH(Y_WIDTH)) y_conv (.A(product), .Y(Y));

	// sum: after the row, from its bit on. The last row is that of the sign.
	genvar j;
	generate
		for (j = 0; j < M; j = j + 1) begin : row
			wire signed [N-1:0] term = a & {N{b[j]}};
			wire signed [N:0] before, sum;
			if (j == 0)
				assign before = 0;
			else
				assign before = row[j-1].sum >>> 1;
			if (j == M - 1) begin
				assign sum = before - term;
				assign product[N+M-1:M-1] = sum;
			end else begin
				assign sum = before + term;
				assign product[j] = sum[0];
			end
		end
	endgenerate
endmodule
