"""Files derived from the tables of `isa`: one module makes each, `files` writes and checks them."""
