"""The NPU beside the processors of Zynq-7000 and Zynq UltraScale+: adaptors, open flow, export to the vendor's tool."""
