"""Console commands: parse, plan, call."""
