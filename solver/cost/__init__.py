"""What things cost, in integer picoseconds and bytes: hardware, collectives, reshards, compute and memory."""
