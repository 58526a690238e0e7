"""The stages of the compiler behind the front end, one file each, in the order `tilewright.compiler.pipeline` calls
them."""
