"""The NPU beside the processors of Zynq-7000 and Zynq UltraScale+: adaptors, open flow, exports for the vendor's tool."""
