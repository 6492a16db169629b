"""The whole-graph model: every op, layout, pin and policy as clauses, each group under a named reason."""
