// Every addition a carry chain of its own. Yosys would make compressors (two LUTs a bit for each) of sums of three terms
// and more; a chain takes one LUT a bit.

(* techmap_celltype = "$add" *)
module _adder (A, B, Y);
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
	(* force_downto *)
	wire [Y_WIDTH-1:0] X, CO;
	\$alu #(
		.A_SIGNED(SIGNED), .B_SIGNED(SIGNED), .A_WIDTH(A_WIDTH), .B_WIDTH(B_WIDTH), .Y_WIDTH(Y_WIDTH)
	) chain (.A(A), .B(B), .BI(1'b0), .CI(1'b0), .Y(Y), .X(X), .CO(CO));
endmodule
