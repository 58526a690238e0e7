"""The stages of the compiler behind the front end, one file each, in the order `compiler.pipeline` calls them."""
