"""Everything that runs in Lambda: one module a noun, plain functions, imports only downward."""
