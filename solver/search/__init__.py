"""The cost network: its bound, its best assignment and the proof between them."""
